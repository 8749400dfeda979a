// See zipline.h. This file checks the input, chooses the algorithm and completes its answer.
#include "daemon/core/planners/zipline.h"

#include <array>
#include <utility>

#include "daemon/core/planners/zipline_parts.h"

namespace syncd::planners {
namespace {

constexpr std::array<std::pair<std::string_view, ZiplineAlgorithm>, 8> kAlgorithms{{
    {"auto", ZiplineAlgorithm::kAuto},
    {"grid_scan", ZiplineAlgorithm::kGridScan},
    {"full_grid_scan", ZiplineAlgorithm::kFullGridScan},
    {"zipline", ZiplineAlgorithm::kZipline},
    {"zipline_opt", ZiplineAlgorithm::kZiplineOpt},
    {"zipline_opt_bs", ZiplineAlgorithm::kZiplineOptBs},
    {"zipline_linked", ZiplineAlgorithm::kZiplineLinked},
    {"zipline_gaps", ZiplineAlgorithm::kZiplineGaps},
}};

std::string beyond_time_max(std::size_t worker, Micros time) {
  return "worker " + std::to_string(worker) + ": end time " + std::to_string(time) +
         " us is out of range, allowed is -2^60 to 2^60";
}

bool check_size(std::size_t workers, std::uint64_t ends, std::string& error) {
  if (workers == 0) error = "there are no workers: at least one is needed";
  if (ends > kEndsMax) {
    error =
        std::to_string(ends) + " end times are too many, allowed are " + std::to_string(kEndsMax);
  }
  return error.empty();
}

bool check_row(std::size_t worker, std::span<const Micros> row, std::string& error) {
  if (row.empty()) {
    error = "worker " + std::to_string(worker) + " has no end times: at least one is needed";
    return false;
  }
  bool ascending = true;  // without a branch: this pass over all ends should cost little
  for (std::size_t j = 1; j < row.size(); ++j) ascending &= row[j - 1] <= row[j];
  if (ascending && row.front() >= -kTimeMax && row.back() <= kTimeMax) return true;
  for (std::size_t j = 1; j < row.size(); ++j) {
    if (row[j - 1] <= row[j]) continue;
    error = "worker " + std::to_string(worker) + ": end time " + std::to_string(row[j]) +
            " us follows " + std::to_string(row[j - 1]) + " us: they must be in ascending order";
    return false;
  }
  error = beyond_time_max(worker, row.front() < -kTimeMax ? row.front() : row.back());
  return false;
}

bool check(const EndTimes& ends, std::string& error) {
  if (!check_size(ends.workers(), ends.size(), error)) return false;
  for (std::size_t p = 0; p < ends.workers(); ++p) {
    if (!check_row(p, ends.row(p), error)) return false;
  }
  return true;
}

bool check(std::span<const Progression> workers, std::uint32_t r, std::string& error) {
  if (r == 0) {
    error = "R is 0, allowed is 1 or more";
    return false;
  }
  // n * R fits 64 bits: R has 32, and that many workers would not fit the memory.
  if (!check_size(workers.size(), std::uint64_t{workers.size()} * r, error)) return false;
  for (std::size_t p = 0; p < workers.size(); ++p) {
    const auto [first, interval] = workers[p];
    if (interval < 0) {
      error = "worker " + std::to_string(p) + ": interval " + std::to_string(interval) +
              " us is negative, allowed is 0 or more";
      return false;
    }
    if (first < -kTimeMax || first > kTimeMax) {
      error = beyond_time_max(p, first);
      return false;
    }
    if (r > 1 && interval > (kTimeMax - first) / (r - 1)) {
      error = "worker " + std::to_string(p) + ": " + std::to_string(r) + " intervals of " +
              std::to_string(interval) + " us reach beyond 2^60 us";
      return false;
    }
  }
  return true;
}

// A worker's iterations since the last barrier: more than this is no count of anything.
constexpr std::int64_t kDoneMax = std::int64_t{1} << 60;

bool check_rate(const ZiplineOptions& options, const Reach& reach, std::size_t workers,
                std::string& error) {
  if (options.beta && *options.beta < 0) {
    error = "beta is " + std::to_string(*options.beta) + ", allowed is 0 or more";
  } else if (!options.done.empty() && options.done.size() != workers) {
    error = "done has " + std::to_string(options.done.size()) + " entries for " +
            std::to_string(workers) + " workers: one each is needed, or none";
  } else if (options.previous_barrier < -kTimeMax || options.previous_barrier > kTimeMax) {
    error = "previous_barrier " + std::to_string(options.previous_barrier) +
            " us is out of range, allowed is -2^60 to 2^60";
  } else if (reach.latest_last - reach.earliest_first > INT64_MAX / static_cast<Micros>(workers)) {
    error = "the end times of " + std::to_string(workers) +
            " workers are too far apart: the sum of their waits does not fit 64 bits";
  }
  for (const std::int64_t done : options.done) {
    if (done >= 0 && done <= kDoneMax) continue;
    error = "done is " + std::to_string(done) + ", allowed is 0 to 2^60";
  }
  return error.empty();
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

Barrier run(const EndTimes& ends, ZiplineAlgorithm algorithm) {
  switch (algorithm) {
    case ZiplineAlgorithm::kFullGridScan:
      return full_grid_scan(ends);
    case ZiplineAlgorithm::kZipline:
      return zipline(ends);
    case ZiplineAlgorithm::kZiplineOpt:
      return zipline_opt(ends);
    case ZiplineAlgorithm::kZiplineOptBs:
      return zipline_opt_bs(ends);
    case ZiplineAlgorithm::kZiplineLinked:
      return zipline_linked(ends.workers(), TimeOrder(MatrixRows(ends)));
    case ZiplineAlgorithm::kAuto:
    case ZiplineAlgorithm::kGridScan:  // not here: its picks are not the latest ends
    case ZiplineAlgorithm::kZiplineGaps:
      break;
  }
  return zipline_gaps(MatrixRows(ends));
}

// The exact algorithm that is the fastest on most inputs, by measurement (tests/bench).
template <class Rows>
ZiplinePlan plan_fastest(const Rows& rows) {
  if (const auto barrier = zipline_gaps_if_few(rows)) {
    return complete(rows, *barrier, ZiplineAlgorithm::kZiplineGaps, ZiplineObjective::kMax);
  }
  return complete(rows, zipline_linked(rows.workers(), TimeOrder(rows)),
                  ZiplineAlgorithm::kZiplineLinked, ZiplineObjective::kMax);
}

ZiplineAlgorithm chosen(ZiplineAlgorithm algorithm) {
  return algorithm == ZiplineAlgorithm::kAuto ? ZiplineAlgorithm::kZiplineGaps : algorithm;
}

ZiplinePlan plan_checked(const EndTimes& ends, ZiplineAlgorithm algorithm) {
  if (algorithm == ZiplineAlgorithm::kGridScan) return grid_scan(ends);
  return complete(MatrixRows(ends), run(ends, algorithm), algorithm, ZiplineObjective::kMax);
}

// Nothing, without an error, if no end qualifies.
template <class Rows>
std::optional<ZiplinePlan> plan_rate(const Rows& rows, const ZiplineOptions& options,
                                     std::string& error) {
  if (!check_rate(options, reach_of(rows), rows.workers(), error)) return std::nullopt;
  const std::optional<Barrier> best = best_rate(rows, options);
  if (!best) return std::nullopt;
  return complete(rows, *best, chosen(options.algorithm), ZiplineObjective::kRate);
}

}  // namespace

std::string_view to_string(ZiplineAlgorithm algorithm) {
  for (const auto& [name, value] : kAlgorithms) {
    if (value == algorithm) return name;
  }
  return "?";
}

std::optional<ZiplineAlgorithm> parse_zipline_algorithm(std::string_view name) {
  for (const auto& [known, value] : kAlgorithms) {
    if (known == name) return value;
  }
  return std::nullopt;
}

std::string_view to_string(ZiplineObjective objective) {
  return objective == ZiplineObjective::kRate ? "rate" : "max";
}

std::optional<ZiplineObjective> parse_zipline_objective(std::string_view name) {
  if (name == "max") return ZiplineObjective::kMax;
  if (name == "rate") return ZiplineObjective::kRate;
  return std::nullopt;
}

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
  EndTimes ends;
  ends.reserve(workers.size(), workers.size() * r);
  std::vector<Micros> row(r);
  for (const Progression& worker : workers) {
    Micros end = worker.first;
    for (std::uint32_t j = 0; j < r; ++j) {
      row[j] = end;
      if (j + 1 < r) end += worker.interval;
    }
    ends.add_row(row);
  }
  return ends;
}

std::optional<ZiplinePlan> plan_zipline(const EndTimes& ends, const ZiplineOptions& options,
                                        std::string& error) {
  error.clear();
  if (!check(ends, error)) return std::nullopt;
  if (options.objective == ZiplineObjective::kRate) {
    std::optional<ZiplinePlan> plan = plan_rate(MatrixRows(ends), options, error);
    if (plan || !error.empty()) return plan;
  }
  if (options.algorithm == ZiplineAlgorithm::kAuto) return plan_fastest(MatrixRows(ends));
  return plan_checked(ends, options.algorithm);
}

std::optional<ZiplinePlan> plan_zipline(std::span<const Progression> workers, std::uint32_t r,
                                        const ZiplineOptions& options, std::string& error) {
  error.clear();
  if (!check(workers, r, error)) return std::nullopt;
  const ProgressionRows rows(workers, r);
  if (options.objective == ZiplineObjective::kRate) {
    std::optional<ZiplinePlan> plan = plan_rate(rows, options, error);
    if (plan || !error.empty()) return plan;
  }
  const ZiplineAlgorithm algorithm = options.algorithm;
  if (algorithm == ZiplineAlgorithm::kAuto) return plan_fastest(rows);
  const auto direct = [&](Barrier barrier) {
    return complete(rows, barrier, algorithm, ZiplineObjective::kMax);
  };
  if (algorithm == ZiplineAlgorithm::kZiplineGaps) return direct(zipline_gaps(rows));
  if (algorithm == ZiplineAlgorithm::kZiplineLinked) {
    return direct(zipline_linked(rows.workers(), TimeOrder(rows)));
  }
  std::optional<EndTimes> ends = make_ends(workers, r, error);
  if (!ends) return std::nullopt;
  return plan_checked(*ends, algorithm);
}

}  // namespace syncd::planners
