// See figures.h.
#include "daemon/tools/bench/figures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "proto/base/text.h"

namespace syncd::bench {

std::size_t Spans::class_of(std::int64_t ns) {
  const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(0, ns));
  if (value < 2 * kFine) return static_cast<std::size_t>(value);
  // The highest bits down to 1/64 of the value.
  const int shift = std::bit_width(value) - 7;
  return kFine * static_cast<std::size_t>(shift) + static_cast<std::size_t>(value >> shift);
}

std::int64_t Spans::top_of(std::size_t index) {
  if (index < 2 * kFine) return static_cast<std::int64_t>(index);
  const std::size_t shift = index / kFine - 1;
  const std::uint64_t high = index - kFine * shift;
  return static_cast<std::int64_t>(((high + 1) << shift) - 1);
}

void Spans::add(std::int64_t ns) {
  ++counts_[class_of(ns)];
  ++count_;
  max_ = std::max(max_, ns);
}

std::int64_t Spans::percentile(double share) const {
  if (count_ == 0) return 0;
  const auto wanted = std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(count_))));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= wanted) return std::min(max_, top_of(i));
  }
  return max_;
}

void BarrierTimes::pushing(std::int64_t iteration, std::int64_t now_ns) {
  Barrier& barrier = open_[iteration];
  ++barrier.pushes;
  barrier.last_push_ns = now_ns;
}

void BarrierTimes::granted(std::int64_t iteration, std::int64_t now_ns) {
  const auto found = open_.find(iteration - 1);
  if (found == open_.end() || ++found->second.grants < workers_) return;
  if (found->second.pushes == workers_) spans_.add(now_ns - found->second.last_push_ns);
  open_.erase(open_.begin(), std::next(found));
}

bool parse_questions(std::string_view text, std::vector<Question>& questions, std::string& error) {
  questions.clear();
  for (const std::string_view word : split(text, ',')) {
    const auto* found = std::find(kQuestionNames.begin(), kQuestionNames.end(), word);
    if (found == kQuestionNames.end()) {
      error = fmt::format("'{}' is no question; allowed: {}", word, fmt::join(kQuestionNames, " "));
      return false;
    }
    questions.push_back(static_cast<Question>(found - kQuestionNames.begin()));
  }
  return true;
}

}  // namespace syncd::bench
