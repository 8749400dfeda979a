// See lateness.h.
#include "daemon/core/engine/lateness.h"

#include <algorithm>
#include <cstdlib>

#include "proto/wire/explanation.h"

namespace syncd {
namespace {

// The median of the distances of sorted numbers from their own median: they grow to both sides of
// it, so that the smaller ones come first when the two sides are merged.
Micros spread_of(const Micros* sorted, std::uint32_t count) {
  const std::uint32_t middle = count / 2;
  const Micros median = sorted[middle];
  std::uint32_t below = middle, above = middle;  // [below, above) are looked at
  Micros distance = 0;
  for (std::uint32_t seen = 0; seen <= middle; ++seen) {
    const bool takes_above =
        below == 0 || (above < count && sorted[above] - median < median - sorted[below - 1]);
    distance = takes_above ? sorted[above++] - median : median - sorted[--below];
  }
  return distance;
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
  span_us = std::clamp<Micros>(span_us, 0, limits::kSpanMax);
  Micros* place = sorted_.data() + count_;
  if (count_ == limits::kSpansKept) {
    place = std::lower_bound(sorted_.data(), sorted_.data() + count_, spans_[next_]);
  } else {
    ++count_;
  }
  // From the place that is free to the one that keeps the order.
  const Micros* end = sorted_.data() + count_;
  for (; place + 1 < end && place[1] < span_us; ++place) place[0] = place[1];
  for (; place > sorted_.data() && place[-1] > span_us; --place) place[0] = place[-1];
  *place = span_us;
  spans_[next_] = span_us;
  next_ = (next_ + 1) % limits::kSpansKept;
  if (count_ < limits::kSpansFewest) return;
  if (looked_at_ > 0 && ++since_look_ < limits::kSpansPerLook) return;
  since_look_ = 0;
  looked_at_ = count_;
  ++looks_;
  median_us_ = sorted_[count_ / 2];  // of an even number the upper one of the two in the middle
  spread_us_ = spread_of(sorted_.data(), count_);
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
