// See bounds.h.
#include "daemon/core/topology/bounds.h"

#include <fmt/format.h>

#include <algorithm>

#include "proto/base/check.h"
#include "proto/base/number.h"

namespace syncd::topology {
namespace {

using Gap = std::optional<std::int64_t>;

Gap times(std::int64_t factor, std::uint32_t steps) {
  return steps == kUnreachable ? Gap() : Gap(factor * std::int64_t{steps});
}

// Empty is larger than any number.
Gap smaller(Gap a, Gap b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

// What the setting alone allows: iterations per step of the path from j to i, then from i to j.
// Empty: no bound that way.
struct PerStep {
  std::optional<std::int64_t> forward;
  std::optional<std::int64_t> backward;
};
PerStep per_step(const GapSetting& setting) {
  switch (setting.kind) {
    case GapSetting::Kind::kStandard:
      return {1, std::nullopt};
    case GapSetting::Kind::kStaleness:
      return {setting.staleness + 1, std::nullopt};
    case GapSetting::Kind::kNotifyAck:
      return {1, 2};
    case GapSetting::Kind::kBackup:
    case GapSetting::Kind::kHybrid:
      break;
  }
  return {};
}

}  // namespace

const char* known_gap_settings() {
  return "standard, staleness:S, backup, hybrid, notify_ack";
}

std::optional<GapSetting> parse_gap_setting(std::string_view text, std::string& error) {
  using Kind = GapSetting::Kind;
  if (text == "standard") return GapSetting{Kind::kStandard, 0};
  if (text == "backup") return GapSetting{Kind::kBackup, 0};
  if (text == "hybrid") return GapSetting{Kind::kHybrid, 0};
  if (text == "notify_ack") return GapSetting{Kind::kNotifyAck, 0};
  constexpr std::string_view kStaleness = "staleness:";
  if (!text.starts_with(kStaleness)) {
    error = fmt::format("setting '{}' is unknown: allowed are {}", text, known_gap_settings());
    return std::nullopt;
  }
  const std::string_view number = text.substr(kStaleness.size());
  std::int64_t staleness = -1;
  if (parse_number(number, staleness) && staleness >= 0 && staleness <= kStalenessMax) {
    return GapSetting{Kind::kStaleness, staleness};
  }
  error = fmt::format("setting '{}': S is '{}', allowed are whole numbers from 0 to {}", text,
                      number, kStalenessMax);
  return std::nullopt;
}

GapBounds gap_bounds(const Graph& graph, const GapSetting& setting,
                     std::optional<std::int64_t> max_ig) {
  SYNCD_CHECK(!max_ig || (*max_ig >= 1 && *max_ig <= kMaxIgMax &&
                          setting.kind != GapSetting::Kind::kNotifyAck));
  PerStep allowed = per_step(setting);
  if (max_ig) allowed.backward = max_ig;
  const Distances distances(graph);
  GapBounds bounds(graph.size());
  for (Node i = 0; i < graph.size(); ++i) {
    for (Node j = 0; j < graph.size(); ++j) {
      const Gap forward = allowed.forward ? times(*allowed.forward, distances(j, i)) : Gap();
      const Gap backward = allowed.backward ? times(*allowed.backward, distances(i, j)) : Gap();
      bounds(i, j) = i == j ? Gap(0) : smaller(forward, backward);
    }
  }
  return bounds;
}

}  // namespace syncd::topology
