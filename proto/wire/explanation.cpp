// See explanation.h.
#include "proto/wire/explanation.h"

#include <cstdio>

namespace syncd {
namespace {

void append_range(std::string& out, const RankRange& range) {
  const auto [first, last] = range;
  if (!out.empty()) out += ", ";
  out += std::to_string(first);
  if (last == first) return;
  out += last == first + 1 ? ", " : "-";
  out += std::to_string(last);
}

// A worker that has not joined yet has neither host nor name, and no clock to speak of.
std::string describe(const WaitedFor& worker) {
  std::string out = "worker " + std::to_string(worker.rank);
  const std::string& place = worker.host.empty() ? worker.name : worker.host;
  if (place.empty()) return worker.state.empty() ? out : out + " (" + worker.state + ")";
  out += " (" + place + ", clock " + std::to_string(worker.clock) + ", ";
  out += worker.last_push_age_us < 0
             ? "no push yet"
             : "last push " + format_duration(worker.last_push_age_us) + " ago";
  if (!worker.state.empty()) out += ", " + worker.state;
  return out + ")";
}

}  // namespace

std::string compress_ranks(const std::vector<std::uint32_t>& ranks, std::size_t ranges_max) {
  std::vector<RankRange> shown;
  for (const std::uint32_t rank : ranks) {
    if (!shown.empty() && rank == shown.back().last + 1) {
      shown.back().last = rank;
    } else if (shown.size() < ranges_max) {
      shown.push_back({rank, rank});
    } else {
      break;
    }
  }
  return compress_ranges(shown, ranks.size());
}

std::string compress_ranges(const std::vector<RankRange>& shown, std::size_t count) {
  std::string out;
  for (const RankRange& range : shown) {
    append_range(out, range);
    count -= range.last - range.first + std::size_t{1};
  }
  if (count > 0) out += ", and " + std::to_string(count) + " more";
  return out;
}

std::string format_duration(std::int64_t us) {
  // Each unit ends where rounding would write the next one's first value ("1000 ms").
  if (us < 0) return std::string("-").append(format_duration(us == INT64_MIN ? INT64_MAX : -us));
  char text[64];
  const double ms = static_cast<double>(us) / 1e3;
  if (us < 1000) {
    std::snprintf(text, sizeof text, "%d us", static_cast<int>(us));
  } else if (us < 9'950) {
    std::snprintf(text, sizeof text, "%.1f ms", ms);
  } else if (us < 999'500) {
    std::snprintf(text, sizeof text, "%.0f ms", ms);
  } else if (us < 119'950'000) {
    std::snprintf(text, sizeof text, "%.1f s", ms / 1e3);
  } else if (us < 7'199'500'000) {
    const auto s = static_cast<int>((us + 500'000) / 1'000'000);
    std::snprintf(text, sizeof text, "%d min %d s", s / 60, s % 60);
  } else {
    const std::int64_t min = us / 60'000'000 + (us % 60'000'000 >= 30'000'000 ? 1 : 0);
    std::snprintf(text, sizeof text, "%lld h %d min", static_cast<long long>(min / 60),
                  static_cast<int>(min % 60));
  }
  return text;
}

std::string to_text(const Explanation& explanation) {
  std::string out;
  if (!explanation.rule.empty()) out = explanation.rule + ": ";
  out += explanation.text;
  if (explanation.waited_for_count == 0) return out;
  out += "; waiting for ";
  if (explanation.waited_for_count == 1 && explanation.workers.size() == 1) {
    return out + describe(explanation.workers.front());
  }
  out += std::to_string(explanation.waited_for_count) + " workers: " + explanation.ranks;
  for (std::size_t i = 0; i < explanation.workers.size(); ++i) {
    out += i == 0 ? "; " : ", ";
    out += describe(explanation.workers[i]);
  }
  return out;
}

}  // namespace syncd
