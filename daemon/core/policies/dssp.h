// dssp:SL-SU, dynamic stale synchronous parallel (Zhao et al., ICDCS 2019; ElasticBSP paper,
// section 7). With gap = q_i - q_min, a begin is granted if the worker has extra iterations left
// and gap <= SU, or if gap <= SL. Else the controller is asked, once for this begin: it compares
// the predicted ends of a fastest worker's iterations with those of the slowest one's, and gives
// the number of further iterations after which the fastest waits least. Where the paper would let a
// worker pass SU, no more are given than SU leaves room for: SU is never exceeded at a grant.
//
// A worker's extra iterations are lost when it leaves, is lost, enters or comes back, and with the
// daemon's life. The slowest worker is found in O(log n). Run on the engine's thread.
#pragma once

#include "daemon/core/policies/policy_text.h"

namespace syncd {

MakePolicy make_dssp;

}  // namespace syncd
