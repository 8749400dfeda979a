// See zipline.h. This file checks the input, chooses the algorithm and completes its answer.
#include "daemon/core/planners/zipline.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "daemon/core/planners/zipline_parts.h"

namespace syncd::planners {
namespace {

bool fail(std::string& error, std::string why) {
  error = std::move(why);
  return false;
}

bool fail_range(std::string& error, std::size_t worker, Micros time) {
  return fail(error,
              fmt::format("worker {}: end time {} us is out of range, allowed is -2^60 to 2^60",
                          worker, time));
}

bool check_size(std::size_t workers, std::uint64_t ends, std::string& error) {
  if (ends > kEndsMax) {
    return fail(error, fmt::format("{} end times are too many, allowed are {}", ends, kEndsMax));
  }
  return workers > 0 || fail(error, "there are no workers: at least one is needed");
}

bool check_row(std::size_t worker, std::span<const Micros> row, std::string& error) {
  if (row.empty()) {
    return fail(error, fmt::format("worker {} has no end times: at least one is needed", worker));
  }
  bool ascending = true;  // without a branch: this pass over all ends should cost little
  for (std::size_t j = 1; j < row.size(); ++j) ascending &= row[j - 1] <= row[j];
  if (ascending && row.front() >= -kTimeMax && row.back() <= kTimeMax) return true;
  const auto falls = std::adjacent_find(row.begin(), row.end(), std::greater<>());
  if (falls == row.end()) {
    return fail_range(error, worker, row.front() < -kTimeMax ? row.front() : row.back());
  }
  return fail(error, fmt::format("worker {}: end time {} us follows {} us: they must be in "
                                 "ascending order",
                                 worker, falls[1], falls[0]));
}

bool check(const EndTimes& ends, std::string& error) {
  bool good = check_size(ends.workers(), ends.size(), error);
  for (std::size_t p = 0; good && p < ends.workers(); ++p) good = check_row(p, ends.row(p), error);
  return good;
}

bool check(std::span<const Progression> workers, std::uint32_t r, std::string& error) {
  if (r == 0) return fail(error, "R is 0, allowed is 1 or more");
  // n * R fits 64 bits: R has 32, and that many workers would not fit the memory.
  if (!check_size(workers.size(), std::uint64_t{workers.size()} * r, error)) return false;
  for (std::size_t p = 0; p < workers.size(); ++p) {
    const auto [first, interval] = workers[p];
    if (interval < 0) {
      return fail(error, fmt::format("worker {}: interval {} us is negative, allowed is 0 or more",
                                     p, interval));
    }
    if (first < -kTimeMax || first > kTimeMax) return fail_range(error, p, first);
    if (r > 1 && interval > (kTimeMax - first) / (r - 1)) {
      return fail(error, fmt::format("worker {}: {} intervals of {} us reach beyond 2^60 us", p, r,
                                     interval));
    }
  }
  return true;
}

// A worker's iterations since the last barrier: more than this is no count of anything.
constexpr std::int64_t kDoneMax = std::int64_t{1} << 60;

bool check_rate(const ZiplineOptions& options, const Reach& reach, std::size_t workers,
                std::string& error) {
  for (const std::int64_t done : options.done) {
    if (done >= 0 && done <= kDoneMax) continue;
    return fail(error, fmt::format("done is {}, allowed is 0 to 2^60", done));
  }
  if (options.beta && *options.beta < 0) {
    return fail(error, fmt::format("beta is {}, allowed is 0 or more", *options.beta));
  }
  if (!options.done.empty() && options.done.size() != workers) {
    return fail(error,
                fmt::format("done has {} entries for {} workers: one each is needed, or none",
                            options.done.size(), workers));
  }
  if (options.previous_barrier < -kTimeMax || options.previous_barrier > kTimeMax) {
    return fail(error,
                fmt::format("previous_barrier {} us is out of range, allowed is -2^60 to 2^60",
                            options.previous_barrier));
  }
  if (reach.latest_last - reach.earliest_first > INT64_MAX / static_cast<Micros>(workers)) {
    return fail(error,
                fmt::format("the end times of {} workers are too far apart: the sum of their "
                            "waits does not fit 64 bits",
                            workers));
  }
  return true;
}

template <class Rows>
ZiplinePlan complete(const Rows& rows, Barrier barrier, ZiplineAlgorithm algorithm,
                     ZiplineObjective objective) {
  ZiplinePlan plan{barrier.time, barrier.wait, {}, algorithm, objective};
  plan.iterations.resize(rows.workers());
  for (std::size_t p = 0; p < rows.workers(); ++p) {
    plan.iterations[p] = rows.count_until(p, barrier.time);
  }
  return plan;
}

template <class Rows>
ZiplinePlan plan_max(const Rows& rows, ZiplineAlgorithm algorithm) {
  const auto by = [&](const Barrier& barrier, ZiplineAlgorithm ran) {
    return complete(rows, barrier, ran, ZiplineObjective::kMax);
  };
  switch (algorithm) {
    case ZiplineAlgorithm::kGridScan:
      return grid_scan(rows.matrix());
    case ZiplineAlgorithm::kFullGridScan:
      return by(full_grid_scan(rows.matrix()), algorithm);
    case ZiplineAlgorithm::kZipline:
      return by(zipline(rows.matrix()), algorithm);
    case ZiplineAlgorithm::kZiplineOpt:
      return by(zipline_opt(rows.matrix()), algorithm);
    case ZiplineAlgorithm::kZiplineOptBs:
      return by(zipline_opt_bs(rows.matrix()), algorithm);
    case ZiplineAlgorithm::kZiplineGaps:
      return by(*zipline_gaps(rows, SIZE_MAX), algorithm);
    case ZiplineAlgorithm::kAuto:  // the fastest on most inputs, by measurement (tests/bench)
      if (const auto barrier = zipline_gaps(rows, rows.size() / kFewShare)) {
        return by(*barrier, ZiplineAlgorithm::kZiplineGaps);
      }
      break;
    case ZiplineAlgorithm::kZiplineLinked:
      break;
  }
  return by(zipline_linked(rows.workers(), TimeOrder(rows)), ZiplineAlgorithm::kZiplineLinked);
}

template <class Rows>
std::optional<ZiplinePlan> plan(const Rows& rows, const ZiplineOptions& options,
                                std::string& error) {
  if (options.objective == ZiplineObjective::kRate) {
    if (!check_rate(options, reach_of(rows), rows.workers(), error)) return std::nullopt;
    if (const std::optional<Barrier> best = best_rate(rows, options)) {
      const bool any = options.algorithm == ZiplineAlgorithm::kAuto;
      return complete(rows, *best, any ? ZiplineAlgorithm::kZiplineGaps : options.algorithm,
                      ZiplineObjective::kRate);
    }
  }
  return plan_max(rows, options.algorithm);
}

}  // namespace

void EndTimes::add_row(std::span<const Micros> ends) {
  times_.insert(times_.end(), ends.begin(), ends.end());
  begins_.push_back(times_.size());
}

void EndTimes::reserve(std::size_t workers, std::size_t ends) {
  times_.reserve(ends);
  begins_.reserve(workers + 1);
}

std::optional<EndTimes> make_ends(std::span<const Progression> workers, std::uint32_t r,
                                  std::string& error) {
  error.clear();
  if (!check(workers, r, error)) return std::nullopt;
  return ProgressionRows(workers, r).matrix();
}

std::optional<ZiplinePlan> plan_zipline(const EndTimes& ends, const ZiplineOptions& options,
                                        std::string& error) {
  error.clear();
  if (!check(ends, error)) return std::nullopt;
  return plan(MatrixRows(ends), options, error);
}

std::optional<ZiplinePlan> plan_zipline(std::span<const Progression> workers, std::uint32_t r,
                                        const ZiplineOptions& options, std::string& error) {
  error.clear();
  if (!check(workers, r, error)) return std::nullopt;
  return plan(ProgressionRows(workers, r), options, error);
}

}  // namespace syncd::planners
