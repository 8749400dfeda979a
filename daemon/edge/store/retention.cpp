// See retention.h.
#include "daemon/edge/store/retention.h"

namespace syncd::store {

Sequence first_to_keep(const Extent& extent, const RetentionRules& rules, Micros now_us) {
  Sequence first = extent.first;
  std::uint64_t gone = extent.removed_bytes;
  for (const Mark& mark : extent.marks) {
    if (mark.sequence < extent.first) continue;
    const bool old = rules.keep_us > 0 && mark.time_us <= now_us - rules.keep_us;
    const bool large = rules.keep_bytes > 0 && extent.bytes - gone > rules.keep_bytes;
    if (!old && !large) break;
    first = mark.sequence + 1;
    gone = mark.bytes;
  }
  return first;
}

bool is_outdated(const Extent& extent, const RetentionRules& rules, Micros now_us) {
  return extent.stopped && rules.keep_us > 0 && extent.last_us <= now_us - rules.keep_us;
}

}  // namespace syncd::store
