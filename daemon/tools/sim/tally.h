// What is counted of a simulation while it runs, and the result that comes of it. One thread at a
// time. O(1) each; nothing is allocated.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "daemon/core/engine/record.h"
#include "daemon/tools/sim/sim_worker.h"
#include "daemon/tools/sim/simulation.h"

namespace syncd::sim {

class Tally {
 public:
  explicit Tally(const Options& options);

  // What is counted without a rule of its own.
  Result& result() { return result_; }

  // ---- what the daemon says
  void records(std::span<const Record> records) {
    for (const Record& record : records) {
      if (record.kind == RecordKind::kBarrier) barrier(record);
      if (record.kind == RecordKind::kPolicyNote) note(record);
    }
  }
  void granted(const wire::Granted& granted) {
    if ((granted.flags & wire::kStepStop) != 0) return;
    staleness_.add(granted.staleness);
    result_.staleness_max = std::max(result_.staleness_max, granted.staleness);
  }
  void refused(Micros now, const wire::Error& error);

  // ---- freshness. A worker sees at its pull what the others have pushed by then.
  void pulled(SimWorker& worker) { worker.others_at_pull = pushes_ - worker.own_pushes; }
  void pulled_again(SimWorker& worker) {
    restart_updates_.add(others_since_pull(worker));
    pulled(worker);
  }
  void pushed(SimWorker& worker) {
    missed_.add(others_since_pull(worker));
    ++pushes_;
    ++worker.own_pushes;
  }

  // ---- what workers do with their time
  void present(Micros us) { presence_us_ += static_cast<double>(us); }
  void waited(Micros us) {
    waiting_us_ += static_cast<double>(us);
    result_.longest_wait_us = std::max(result_.longest_wait_us, us);
  }
  void transferred(Micros us) { transferring_us_ += static_cast<double>(us); }
  void wasted(Micros us) { wasted_us_ += static_cast<double>(us); }
  void skipped(Iteration iterations) { skipped_ += static_cast<std::uint64_t>(iterations); }
  // The collected updates. Those that the worker does not have count as missing.
  // Of an unsafe baseline they say themselves what the worker has.
  void reduced(Rank rank, const SimWorker& worker, const std::vector<wire::PeerUpdate>& updates,
               bool unsafe);

  // Of the whole run, once: everybody's time has been counted to the end.
  Result finish(std::span<const SimWorker> workers, const Engine& engine);

 private:
  struct Mean {
    void add(std::int64_t value) {
      sum += static_cast<double>(value);
      ++count;
    }
    std::optional<double> in(double unit) const {
      return count == 0 ? std::nullopt : std::optional(sum / static_cast<double>(count) / unit);
    }
    double sum = 0;
    std::uint64_t count = 0;
  };

  std::int64_t others_since_pull(const SimWorker& worker) const {
    return static_cast<std::int64_t>(pushes_ - worker.own_pushes - worker.others_at_pull);
  }
  void barrier(const Record& record);
  void note(const Record& record);

  Result result_;
  double presence_us_ = 0;
  double waiting_us_ = 0;
  double transferring_us_ = 0;
  double wasted_us_ = 0;
  std::uint64_t skipped_ = 0;
  std::uint64_t pushes_ = 0;
  Mean staleness_;
  Mean missed_;
  Mean restart_updates_;
  Mean predicted_us_;
  Mean actual_us_;
};

}  // namespace syncd::sim
