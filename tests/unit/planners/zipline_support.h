// Random inputs for ZipLine, and what all its tests say of an answer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "daemon/core/planners/zipline.h"

namespace syncd::planners {

inline constexpr ZiplineAlgorithm kExactAlgorithms[] = {
    ZiplineAlgorithm::kAuto,         ZiplineAlgorithm::kFullGridScan,
    ZiplineAlgorithm::kZipline,      ZiplineAlgorithm::kZiplineOpt,
    ZiplineAlgorithm::kZiplineOptBs, ZiplineAlgorithm::kZiplineLinked,
    ZiplineAlgorithm::kZiplineGaps};

using Rows = std::vector<std::vector<Micros>>;

inline EndTimes matrix(const Rows& rows) {
  EndTimes ends;
  for (const std::vector<Micros>& row : rows) ends.add_row(row);
  return ends;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t upto(std::int64_t highest) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(highest + 1));
  }
  std::int64_t between(std::int64_t lowest, std::int64_t highest) {
    return lowest + upto(highest - lowest);
  }

 private:
  std::mt19937_64 engine_;
};

// Rows of unequal lengths; the smaller the range of times, the more of them are equal.
inline Rows random_rows(Random& random, std::int64_t workers, std::int64_t length,
                        std::int64_t range) {
  Rows rows(static_cast<std::size_t>(workers));
  const Micros base = random.between(-range, range);
  for (std::vector<Micros>& row : rows) {
    row.resize(static_cast<std::size_t>(random.between(1, length)));
    for (Micros& end : row) end = base + random.upto(range);
    std::sort(row.begin(), row.end());
  }
  return rows;
}

inline std::string text(const Rows& rows) {
  std::string out;
  for (const std::vector<Micros>& row : rows) {
    for (const Micros end : row) out += std::to_string(end) + " ";
    out += "/ ";
  }
  return out;
}

inline ZiplinePlan plan_or_die(const EndTimes& ends, const ZiplineOptions& options) {
  std::string error;
  const std::optional<ZiplinePlan> plan = plan_zipline(ends, options, error);
  EXPECT_TRUE(plan) << error;
  return plan.value_or(ZiplinePlan{});
}

}  // namespace syncd::planners
