// Compiles only if <syncd/client.h> is C++ without a warning, on its own, as the first include.
#include <syncd/client.h>
// A second time, to see its guard.
#include <syncd/client.h>

namespace {
const syncd_client_options kClientOptions = SYNCD_CLIENT_OPTIONS_INIT;
const syncd_join_options kJoinOptions = SYNCD_JOIN_OPTIONS_INIT;
const syncd_push_info kPushInfo = SYNCD_PUSH_INFO_INIT;
const syncd_step kStep = SYNCD_STEP_INIT;
}  // namespace

bool header_is_usable_in_cxx();
bool header_is_usable_in_cxx() {
  return kClientOptions.addresses == nullptr && kJoinOptions.rank == SYNCD_RANK_ANY &&
         kPushInfo.loss != kPushInfo.loss && kStep.struct_size == sizeof(syncd_step);
}
