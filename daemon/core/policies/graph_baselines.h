// What NOTIFY-ACK is compared with ("ASAP: Asynchronous Approximate Data-Parallel Computation",
// section 6.2). Unsafe baselines: they lose and tear updates on purpose, for measurements alone.
// Run on the engine's thread.
//
//   barrier:GRAPH[,force=1]    async:GRAPH[,force=1]
//
// Under both a worker posts its update into one slot per neighbour, does not wait until it is sent,
// and overwrites what the slot holds, read or not.
// - barrier: collect(k) waits until every worker of the job has pushed iteration k.
// - async: no call waits; collect names the latest update that each in-neighbour has posted.
#pragma once

#include "daemon/core/policies/policy_text.h"

namespace syncd {

MakePolicy make_graph_barrier;
MakePolicy make_graph_async;

}  // namespace syncd
