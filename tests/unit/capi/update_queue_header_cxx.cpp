// Compiles only if <syncd/update_queue.h> is C++ without a warning, on its own, as the first
// include.
#include <syncd/update_queue.h>
// A second time, to see its guard.
#include <syncd/update_queue.h>

namespace {
const syncd_update_queue_options kOptions = SYNCD_UPDATE_QUEUE_OPTIONS_INIT;
}  // namespace

bool update_queue_header_is_usable_in_cxx();
bool update_queue_header_is_usable_in_cxx() {
  return kOptions.struct_size == sizeof(syncd_update_queue_options) && kOptions.memory == nullptr;
}
