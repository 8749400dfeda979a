// See lateness.h.
#include "daemon/core/engine/lateness.h"

#include <algorithm>
#include <cstdlib>

#include "proto/wire/explanation.h"

namespace syncd {
namespace {

// Of an even number the upper one of the two in the middle. Reorders them.
Micros median(Micros* first, std::uint32_t count) {
  std::nth_element(first, first + count / 2, first + count);
  return first[count / 2];
}

// Spans are within kSpanMax by far, so that no sum overflows.
Micros usual(const RecentSpans& spans) {
  return limits::kLateMedians * spans.median_us() + limits::kLateSpreads * spans.spread_us();
}

Micros within(Micros value, Micros floor, Micros ceiling, Micros median_us) {
  return std::max(std::clamp(value, floor, ceiling), 2 * median_us);
}

}  // namespace

void RecentSpans::add(Micros span_us) {
  spans_[next_] = std::clamp<Micros>(span_us, 0, limits::kSpanMax);
  next_ = (next_ + 1) % limits::kSpansKept;
  count_ = std::min(count_ + 1, limits::kSpansKept);
  if (count_ < limits::kSpansFewest) return;
  if (looked_at_ > 0 && ++since_look_ < limits::kSpansPerLook) return;
  since_look_ = 0;
  looked_at_ = count_;
  ++looks_;
  std::array<Micros, limits::kSpansKept> sorted = spans_;
  median_us_ = median(sorted.data(), count_);
  for (std::uint32_t i = 0; i < count_; ++i) sorted[i] = std::abs(sorted[i] - median_us_);
  spread_us_ = median(sorted.data(), count_);
}

Lateness lateness(const JobSpec& spec, const RecentSpans& spans) {
  Lateness out{spec.warn_after_us, spec.evict_after_us};
  const Micros usual_us = spans.known() ? usual(spans) : 0;
  if (spec.evict_after_us == kAutoSpan) {
    out.evict_after_us = spans.known()
                             ? within(limits::kEvictPerWarn * usual_us, limits::kEvictAfterFloor,
                                      limits::kEvictAfterCeiling, spans.median_us())
                             : limits::kEvictAfterCeiling;
    if (spec.warn_after_us > 0) {
      out.evict_after_us = std::max(out.evict_after_us, spec.warn_after_us);
    }
  }
  if (spec.warn_after_us == kAutoSpan) {
    out.warn_after_us = spans.known() ? within(usual_us, limits::kWarnAfterFloor,
                                               limits::kWarnAfterCeiling, spans.median_us())
                                      : limits::kWarnAfterUnknown;
    if (out.evict_after_us > 0) out.warn_after_us = std::min(out.warn_after_us, out.evict_after_us);
  }
  return out;
}

std::string lateness_rule(const JobSpec& spec, const RecentSpans& spans) {
  const bool warns = spec.warn_after_us == kAutoSpan;
  const bool evicts = spec.evict_after_us == kAutoSpan;
  if (!warns && !evicts) return {};
  if (!spans.known()) {
    return "auto: until " + std::to_string(limits::kSpansFewest) + " of its iterations are known";
  }
  std::string text = "auto: " + std::to_string(limits::kLateMedians) + " x median " +
                     format_duration(spans.median_us()) + " + " +
                     std::to_string(limits::kLateSpreads) + " x spread " +
                     format_duration(spans.spread_us()) + " of its last " +
                     std::to_string(spans.looked_at()) + " iterations";
  if (evicts) text += ", evict at " + std::to_string(limits::kEvictPerWarn) + " times that";
  const Micros usual_us = usual(spans);
  const auto bound = [&](const char* what, Micros value, Micros floor, Micros ceiling) {
    if (value < floor) text += std::string("; ") + what + " at least " + format_duration(floor);
    if (value > ceiling) text += std::string("; ") + what + " at most " + format_duration(ceiling);
  };
  if (warns) bound("warn", usual_us, limits::kWarnAfterFloor, limits::kWarnAfterCeiling);
  if (evicts) {
    bound("evict", limits::kEvictPerWarn * usual_us, limits::kEvictAfterFloor,
          limits::kEvictAfterCeiling);
  }
  return text;
}

}  // namespace syncd
