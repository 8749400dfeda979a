// NOTIFY-ACK: decentralized training on a sparse graph in which a worker sends its next update only
// when all that it sends to have read the one before ("ASAP: Asynchronous Approximate Data-Parallel
// Computation", section 3.3). Every reduce sees exactly one whole update of its iteration from each
// in-neighbour. Run on the engine's thread.
//
//   notify_ack:GRAPH[,every=N][,force=1]
//
// every=N: a trainer computes N batches between two reduces; the iterations that are counted here
// are the reduces.
// - targets(k) waits until every out-neighbour has consumed iteration k - 1: its ACK.
// - collect(k) waits until every in-neighbour has pushed iteration k: its NOTIFY.
#pragma once

#include "daemon/core/policies/policy_text.h"

namespace syncd {

MakePolicy make_notify_ack;

}  // namespace syncd
