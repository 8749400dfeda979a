// elastic_bsp:R[,ALGORITHM][,predictor=P][,objective=max|rate][,beta=B] (Zhao et al., "ElasticBSP",
// sections 3 to 5): barriers, but at times that are chosen so that nobody waits long for them.
//
// A superstep has participants: the workers that are active when it begins. Later ones wait in
// begin for its barrier. Clocks are relative to the last barrier. Its phases:
//   monitor   everybody goes on, but nobody is granted while more than R ahead of the slowest
//             participant, until every participant has pushed twice.
//   plan      from each one's latest push and interval R ends of iterations are predicted, and
//             ZipLine picks one per participant, so that they lie as close together as possible.
//             It runs off the loop; meanwhile the monitor rule holds.
//   run       everybody goes on until the picked iteration, and waits there.
//   barrier   all have arrived: all go on, and are told of it by the flag BARRIER on their next
//             grant. The next superstep begins.
// So at a grant no participant is more than max(R, 2R - 1) ahead of another in the superstep.
// Time that the daemon held a begin never counts as an interval's; what an overlay holds back at
// every grant (naive_wait) is added to each iteration that is predicted. Participants that leave or
// are lost drop out; when none is left, the superstep ends.
//
// Plans and barriers are recorded, with predicted and actual times. A plan that was being computed
// when the daemon ended is asked for again with the same input. Run on the engine's thread.
#pragma once

#include "daemon/core/policies/policy_text.h"

namespace syncd {

MakePolicy make_elastic_bsp;

}  // namespace syncd
