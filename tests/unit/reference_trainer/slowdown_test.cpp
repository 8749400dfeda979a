// --slowdown: every form means the same in a run with a clock and in virtual time, and so does
// every refusal. What the forms mean is tested with their parser (unit/sim/slowdown_test.cpp).
#include "reference_trainer/run/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "reference_trainer/options.h"
#include "reference_trainer/params/store_devices.h"
#include "reference_trainer/run/run.h"
#include "reference_trainer/run/store_loop.h"
#include "tests/unit/reference_trainer/loop_support.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kIterationUs = 10'000;
constexpr std::int64_t kIterations = 60;

// Grants one iteration after the other.
class Granting : public Coordinator {
 public:
  void join() override {}
  std::optional<Step> begin(std::int64_t) override { return Step{.iteration = next_}; }
  std::string waiting_for() const override { return ""; }
  bool should_resync() const override { return false; }
  void restarted(std::int64_t) override {}
  bool push(std::int64_t iteration, const PushReport&) override {
    next_ = iteration + 1;
    return false;
  }
  void leave() override {}

 private:
  std::int64_t next_ = 0;
};

class SlowdownForms : public ::testing::TestWithParam<const char*> {
 protected:
  // Computing times by worker, in microseconds, of a run with a clock that moves when it is asked
  // to sleep.
  std::vector<std::int64_t> with_clock() const {
    BoardConfig config{};
    config.workload = workload;
    config.budget = Budget::kEach;
    config.iterations = kIterations;
    config.iteration_us = kIterationUs;
    set_field(config.slowdown, GetParam(), "slowdown");
    const RunBoard board = RunBoard::create(config);
    SharedParameters store =
        SharedParameters::of_store(store_device(Backend::kCpu), {.parameters = 1}, workload.workers,
                                   std::vector<float>{0}, false);
    std::vector<std::int64_t> times;
    for (int worker = 0; worker < workload.workers; ++worker) {
      testing::CountingStepper stepper;
      testing::FakeClock clock;
      Granting coordinator;
      HostParameterExchange exchange(worker, store, stepper);
      StoreLoop(worker, board, exchange, stepper, coordinator, clock).run();
      times.push_back(board.slot(worker).computing_us.load());
    }
    return times;
  }

  std::vector<std::int64_t> in_virtual_time() const {
    const SharedArrays data = testing::small_data(WorkloadKind::kSvm);
    RunSettings settings;
    settings.workload = workload;
    settings.policy = "asp";
    settings.budget = Budget::kEach;
    settings.iterations = kIterations;
    settings.slowdown = GetParam();
    const RunResult result = run_virtually(settings, {.iteration_time = "constant:10"},
                                           *make_workload(workload, data), data, {});
    EXPECT_EQ(result.failure, "");
    std::vector<std::int64_t> times;
    for (const WorkerResult& worker : result.workers) {
      times.push_back(worker.computing_us);
    }
    return times;
  }

  WorkloadConfig workload = testing::small_config(WorkloadKind::kSvm);  // of 3 workers
};

TEST_P(SlowdownForms, MeanTheSameWithAClockAndInVirtualTime) {
  const sim::SlowFactors slow = slow_factors(GetParam(), workload);
  std::vector<std::int64_t> expected;
  for (Rank worker = 0; worker < 3; ++worker) {
    double sum = 0;
    for (Iteration k = 0; k < kIterations; ++k) sum += slow(worker, k);
    expected.push_back(std::llround(sum * kIterationUs));
  }
  EXPECT_EQ(with_clock(), expected);
  EXPECT_EQ(in_virtual_time(), expected);
  const bool all_even = std::accumulate(expected.begin(), expected.end(), std::int64_t{0}) ==
                        3 * kIterations * kIterationUs;
  EXPECT_EQ(all_even, std::string(GetParam()) == "none") << "the check would pass on nothing";
}

INSTANTIATE_TEST_SUITE_P(Texts, SlowdownForms,
                         ::testing::Values("none", "random:6x@0.05", "random:6x@1/8",
                                           "random:6x@3/8", "random:6x@1/n", "random:6x@2/n",
                                           "random:0.5x@1", "fixed:2=4x", "fixed:2=4x,0=1.5x",
                                           "fixed:1=0.5x", "fixed:1=2000x"));

std::string refusal(const char* text, bool virtual_time) {
  std::vector<const char*> words{"reference_trainer", "--workload", "mf", "--workers", "3",
                                 "--generate",        "--slowdown", text};
  if (virtual_time) words.push_back("--virtual-time");
  const ParsedCommand command = parse_command(static_cast<int>(words.size()), words.data());
  EXPECT_EQ(command.exit_status.value_or(0), 2) << text;
  return command.text;
}

TEST(Slowdown, IsRefusedInTheSameWordsWithAClockAndInVirtualTime) {
  ::unsetenv("SYNCD_ADDR");
  for (const char* text : {"sometimes", "random", "random:6x", "random:6@0.1", "random:0x@0.1",
                           "random:6x@1.5", "random:6x@9/8", "random:6x@1/0", "random:6x@4/n",
                           "fixed:", "fixed:3=4x", "fixed:1", "fixed:1=4x,"}) {
    const std::string with_clock = refusal(text, false);
    EXPECT_THAT(with_clock, HasSubstr("--slowdown")) << text;
    EXPECT_EQ(with_clock, refusal(text, true)) << text;
    // As a worker reports it, and as a run in virtual time does that checked nothing before.
    const auto config = testing::small_config(WorkloadKind::kMf);
    EXPECT_EQ(testing::error_of<SlowdownError>([&] { slow_factors(text, config); }) + "\n",
              with_clock);
  }
}

}  // namespace
}  // namespace syncd::trainer
