// Shared by the tests of the worker's loops: a clock that only moves when it is asked to sleep, and
// a model of one parameter. Used by one thread each.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "reference_trainer/clock.h"
#include "reference_trainer/workload.h"

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

}  // namespace syncd::trainer::testing
