// Hop: decentralized training in which every worker exchanges updates with its neighbours in a
// graph, and tokens keep it from running away from those that it sends to ("Hop:
// Heterogeneity-aware Decentralized Training", ASPLOS 2019). Run on the engine's thread.
//
//   hop:GRAPH[,max_ig=4][,backup=B][,backup.RANK=B][,staleness=S][,skip=N][,skip_trigger=N]
//   [,force=1]
//
// - Tokens (section 4.2): worker i enters iteration k only if k - c_j <= max_ig for every
//   out-neighbour j, c_j being the iteration that j is in.
// - Standard: collect(k) waits for every in-neighbour's update of iteration k.
// - backup=B (section 4.3): all but B of them are enough; the others are used if they are there.
//   backup.RANK=B gives one worker a number of its own, backup.3-7=B several (the paper's
//   N_buw(i)). A job is refused in which a worker would need nobody's update; where losses leave it
//   no more than B in-neighbours, it waits for one of them.
// - staleness=S (section 4.4): from each in-neighbour the newest update, not older than k - S; one
//   that was used before and is still not too old does not hold anybody up, and is left out. With
//   backup, too: at least all but B in-neighbours have one that is not too old.
// - skip=N (section 5): a worker whose out-neighbours are all at least skip_trigger (default:
//   max_ig; with staleness the smaller of max_ig and S + 1) ahead jumps by up to N iterations,
//   never past them, if the updates of the iteration before its new one can be collected at once.
#pragma once

#include "daemon/core/policies/policy_text.h"

namespace syncd {

MakePolicy make_hop;

}  // namespace syncd
