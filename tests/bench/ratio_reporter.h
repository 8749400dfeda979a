// Google Benchmark's table, and below it ratios of figures of the same run. One thread.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace syncd::bench {

// Whether a benchmark has said that something is wrong: a flag, from version 1.8 on one of several
// kinds of being skipped.
template <class Run>
bool has_failed(const Run& run) {
  if constexpr (requires { run.error_occurred; }) {
    return run.error_occurred;
  } else {
    return run.skipped != decltype(run.skipped){};
  }
}

// Prints as usual and keeps every figure.
class RatioReporter : public benchmark::ConsoleReporter {
 public:
  enum class Time { kCpu, kReal };
  // Which time the ratios are of: processor time, or the clock's where a thread waits for others.
  explicit RatioReporter(Time time = Time::kCpu) : ConsoleReporter(OO_None), time_(time) {}

  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      failed_ = failed_ || has_failed(run);
      // Of several repetitions the median is reported last and stays.
      const bool is_median = run.aggregate_name == "median";
      if (run.run_type == Run::RT_Iteration || is_median) {
        const double time =
            time_ == Time::kCpu ? run.GetAdjustedCPUTime() : run.GetAdjustedRealTime();
        ns_[run.run_name.str()] = time * 1e9 / benchmark::GetTimeUnitMultiplier(run.time_unit);
      }
    }
  }

  void print_ratio(const std::string& name, const std::string& floor) const {
    const auto a = ns_.find(name);
    const auto b = ns_.find(floor);
    if (a == ns_.end() || b == ns_.end()) return;  // not among those that were asked for
    std::printf("%-28s / %-24s %8.1f ns / %8.1f ns = %6.2fx\n", name.c_str(), floor.c_str(),
                a->second, b->second, a->second / b->second);
  }

  bool failed() const { return failed_; }

 private:
  Time time_;
  std::map<std::string, double> ns_;
  bool failed_ = false;
};

}  // namespace syncd::bench
