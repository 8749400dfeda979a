// See lateness.h.
#include "daemon/core/engine/lateness.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "proto/wire/explanation.h"

namespace syncd {
namespace {

// Spans are within kSpanMax by far, so that no sum overflows.
Micros slow_after(const UsualSpan& usual) {
  return limits::kLateMedians * usual.median_us + limits::kLateSpreads * usual.spread_us;
}

Micros within(Micros value, Micros floor, Micros ceiling, Micros median_us) {
  return std::max(std::clamp(value, floor, ceiling), 2 * median_us);
}

}  // namespace

UsualSpan RecentSpans::usual() const {
  if (looked_at_ == 0) return {};
  std::array<Micros, limits::kSpansKept> window{};
  for (std::size_t i = 0, at = next_ + spans_.size() - since_look_; i < looked_at_; ++i) {
    window[i] = std::clamp<Micros>(spans_[--at % spans_.size()], 0, limits::kSpanMax);
  }
  // Of an even number the upper one of the two in the middle.
  const auto median_of_window = [&] {
    const auto middle = window.begin() + looked_at_ / 2;
    std::nth_element(window.begin(), middle, window.begin() + looked_at_);
    return *middle;
  };
  const Micros median = median_of_window();
  for (Micros& span : window) span = std::abs(span - median);
  return {looked_at_, median, median_of_window()};
}

Lateness lateness(const JobSpec& spec, const RecentSpans& spans) {
  Lateness out{spec.warn_after_us, spec.evict_after_us};
  const bool warns = spec.warn_after_us == kAutoSpan;
  const bool evicts = spec.evict_after_us == kAutoSpan;
  if (!warns && !evicts) return out;
  const UsualSpan usual = spans.usual();
  const Micros slow_us = slow_after(usual);
  if (evicts) {
    out.evict_after_us = limits::kEvictAfterCeiling;
    if (usual.spans > 0) {
      out.evict_after_us = within(limits::kEvictPerWarn * slow_us, limits::kEvictAfterFloor,
                                  limits::kEvictAfterCeiling, usual.median_us) +
                           spans.exchange_us();
    }
    out.evict_after_us = std::max(out.evict_after_us, spec.warn_after_us);
  }
  if (warns) {
    out.warn_after_us = limits::kWarnAfterUnknown;
    if (usual.spans > 0) {
      out.warn_after_us =
          within(slow_us, limits::kWarnAfterFloor, limits::kWarnAfterCeiling, usual.median_us) +
          spans.exchange_us();
    }
    if (out.evict_after_us > 0) out.warn_after_us = std::min(out.warn_after_us, out.evict_after_us);
  }
  return out;
}

Micros least_patience(const JobSpec& spec, bool are_spans_known) {
  const auto least = [&](Micros after_us, Micros floor, Micros unknown) {
    if (after_us == kAutoSpan) return are_spans_known ? floor : unknown;
    return after_us == 0 ? kNever : after_us;
  };
  return std::min(least(spec.warn_after_us, limits::kWarnAfterFloor, limits::kWarnAfterUnknown),
                  least(spec.evict_after_us, limits::kEvictAfterFloor, limits::kEvictAfterCeiling));
}

std::string lateness_rule(const JobSpec& spec, const RecentSpans& spans) {
  const bool warns = spec.warn_after_us == kAutoSpan;
  const bool evicts = spec.evict_after_us == kAutoSpan;
  if (!warns && !evicts) return {};
  const UsualSpan usual = spans.usual();
  if (usual.spans == 0) {
    return fmt::format("auto: until {} of its iterations are known", limits::kSpansFewest);
  }
  std::string text =
      fmt::format("auto: {} x median {} + {} x spread {} of its last {} iterations",
                  limits::kLateMedians, format_duration(usual.median_us), limits::kLateSpreads,
                  format_duration(usual.spread_us), usual.spans);
  if (evicts) text += fmt::format(", evict at {} times that", limits::kEvictPerWarn);
  const Micros slow_us = slow_after(usual);
  const auto bound = [&](const char* what, Micros value, Micros floor, Micros ceiling) {
    if (value < floor) text += fmt::format("; {} at least {}", what, format_duration(floor));
    if (value > ceiling) text += fmt::format("; {} at most {}", what, format_duration(ceiling));
  };
  if (warns) bound("warn", slow_us, limits::kWarnAfterFloor, limits::kWarnAfterCeiling);
  if (evicts) {
    bound("evict", limits::kEvictPerWarn * slow_us, limits::kEvictAfterFloor,
          limits::kEvictAfterCeiling);
  }
  if (spans.exchange_us() > 0) {
    text += fmt::format("; {} of exchange on top", format_duration(spans.exchange_us()));
  }
  return text;
}

}  // namespace syncd
