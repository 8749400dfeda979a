// Shared by the tests of the worker's loops: a clock that only moves when it is asked to sleep, and
// a model of one parameter. Used by one thread each.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "reference_trainer/model/workload.h"
#include "reference_trainer/run/clock.h"
#include "reference_trainer/run/coordinator.h"

namespace syncd::trainer::testing {

class FakeClock : public Clock {
 public:
  std::int64_t now_us() override { return now_us_; }
  void sleep_us(std::int64_t us) override {
    now_us_ += us;
    if (on_sleep) on_sleep();
  }
  std::function<void()> on_sleep;

 private:
  std::int64_t now_us_ = 1'000'000;
};

// One parameter; every minibatch adds 1 to it, in two parts, and notes what the replica held.
class CountingStepper : public Stepper {
 public:
  std::vector<float> seen;      // the replica at each start
  std::vector<int> parts_done;  // parts computed, per start
  std::vector<std::int64_t> iterations;

  std::span<float> replica() override { return {&replica_, 1}; }
  void start(BatchKey key) override {
    seen.push_back(replica_);
    iterations.push_back(key.iteration);
    parts_done.push_back(0);
  }
  int micro_batches() const override { return 2; }
  void compute(int part) override {
    EXPECT_EQ(part, parts_done.back());
    ++parts_done.back();
  }
  const Update& finish() override {
    update_.indices = {0};
    update_.deltas = {1};
    update_.loss = 0.25;
    update_.samples = 8;
    return update_;
  }

 private:
  float replica_ = -1;
  Update update_;
};

// Hop's standard rule on a complete graph: collect(k) waits for all updates of k. Whoever has left
// is not waited for.
class CompleteGraph {
 public:
  explicit CompleteGraph(std::size_t workers) : pushed_(workers, -1) {}

  void push(std::size_t worker, std::int64_t iteration) {
    const std::lock_guard lock(mutex_);
    pushed_[worker] = iteration;
    changed_.notify_all();
  }
  std::optional<std::vector<PeerUpdate>> collect(std::size_t worker, std::int64_t iteration,
                                                 std::int64_t timeout_ms) {
    std::unique_lock lock(mutex_);
    const auto all_there = [&] {
      return std::all_of(pushed_.begin(), pushed_.end(), [&](auto k) { return k >= iteration; });
    };
    if (!changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), all_there)) {
      return std::nullopt;
    }
    std::vector<PeerUpdate> updates{{static_cast<int>(worker), iteration, 0}};
    for (std::size_t other = 0; other < pushed_.size(); ++other) {
      if (other != worker && pushed_[other] != kLeft) {
        updates.push_back({static_cast<int>(other), iteration, 0});
      }
    }
    for (PeerUpdate& update : updates) update.weight = 1.0 / static_cast<double>(updates.size());
    return updates;
  }
  static constexpr std::int64_t kLeft = std::int64_t{1} << 40;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::int64_t> pushed_;
};

class GraphMember : public PeerCoordinator {
 public:
  GraphMember(CompleteGraph& graph, std::size_t workers, std::size_t worker)
      : graph_(graph), workers_(workers), worker_(worker) {}
  void join() override {}
  std::optional<Step> begin(std::int64_t) override { return Step{.iteration = next_++}; }
  std::string waiting_for() const override { return ""; }
  bool should_resync() const override { return false; }
  void restarted(std::int64_t) override {}
  std::optional<std::vector<int>> targets(std::int64_t, std::int64_t) override {
    std::vector<int> all;
    for (std::size_t i = 0; i < workers_; ++i) {
      if (i != worker_) all.push_back(static_cast<int>(i));
    }
    return all;
  }
  bool push(std::int64_t iteration, const PushReport&) override {
    graph_.push(worker_, iteration);
    return false;
  }
  std::optional<std::vector<PeerUpdate>> collect(std::int64_t iteration,
                                                 std::int64_t timeout_ms) override {
    return graph_.collect(worker_, iteration, timeout_ms);
  }
  void consumed(std::int64_t) override {}
  void leave() override { graph_.push(worker_, CompleteGraph::kLeft); }

 private:
  CompleteGraph& graph_;
  std::size_t workers_;
  std::size_t worker_;
  std::int64_t next_ = 0;
};

}  // namespace syncd::trainer::testing
