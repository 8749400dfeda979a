// The store and the queues in a GPU's memory: the cases that hold on the CPU
// (device_store_test.cpp), and two processes that share it by CUDA IPC. Skipped where there is no
// GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "reference_trainer/params/store_devices.h"
#include "reference_trainer/run/clock.h"
#include "reference_trainer/run/process.h"
#include "tests/unit/reference_trainer/device_queues_cases.h"
#include "tests/unit/reference_trainer/device_store_cases.h"

namespace syncd::trainer {
namespace {

using testing::kAddTheGradient;
using testing::StandInWorker;

// Rounding of a fused multiplication and addition, over a dozen steps.
constexpr float kTolerance = 1e-5F;
constexpr const char* kStoreVariable = "SYNCD_TEST_DEVICE_STORE_FD";
constexpr int kPushes = 200;
constexpr std::int64_t kDeadlineMs = 60'000;

class DeviceStoreGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      device = &store_device(Backend::kCuda);
      device->stand_in(1, 0);
    } catch (const std::runtime_error& problem) {
      GTEST_SKIP() << "NOT TESTED: " << problem.what();
    }
  }

  StoreDevice* device = nullptr;
};

TEST_F(DeviceStoreGpu, PullsWhatItWasMadeOf) {
  testing::pulls_what_it_was_made_of(*device);
}

TEST_F(DeviceStoreGpu, AddsUpWhatItsWorkersStep) {
  testing::adds_up_what_its_workers_step(*device, kTolerance);
}

TEST_F(DeviceStoreGpu, LeavesOutShardsThatDidNotChange) {
  testing::leaves_out_shards_that_did_not_change(*device);
}

TEST_F(DeviceStoreGpu, LosesAndTearsNothingInSmallShards) {
  testing::loses_and_tears_nothing(*device, 1'000, 300, 4, 300);
}

TEST_F(DeviceStoreGpu, LosesAndTearsNothingInLargeOnes) {
  testing::loses_and_tears_nothing(*device, 1U << 20, 8'192, 4, 150);
}

TEST_F(DeviceStoreGpu, QueuesReduceToTheWeightedMean) {
  testing::reduces_to_the_weighted_mean(*device);
}

TEST_F(DeviceStoreGpu, QueuesLeaveOutWhatIsNotThere) {
  testing::leaves_out_what_is_not_there(*device);
}

TEST_F(DeviceStoreGpu, QueuesKeepAStepAndApplyItLater) {
  testing::keeps_a_step_and_applies_it_later(*device);
}

TEST_F(DeviceStoreGpu, QueuesHandOutNoMixture) {
  testing::hands_out_no_mixture(*device, 1U << 20, 8'192, 300);
}

// ---- Two processes

class DeviceStoreIpc : public DeviceStoreGpu {
 protected:
  void SetUp() override {
    DeviceStoreGpu::SetUp();
    if (IsSkipped()) return;
    const auto problem =
        sharing_problem(*device, Backend::kCuda, SYNCD_TEST_BIN_DIR "/reference_trainer");
    if (problem) GTEST_SKIP() << "NOT TESTED: CUDA IPC is refused here: " << *problem;
    store.emplace(SharedParameters::of_store(*device, {.parameters = kParameters}, 2,
                                             std::vector<float>(kParameters), true));
  }

  // This program again, as worker 1, which adds 2 to everything `pushes` times.
  ChildProcess start_other(const char* test) {
    ::setenv(kStoreVariable, std::to_string(store->fd()).c_str(), 1);
    SpawnOptions spawn;
    spawn.program = own_program().string();
    spawn.arguments = {"--gtest_also_run_disabled_tests",
                       std::string("--gtest_filter=DeviceStoreOther.DISABLED_") + test};
    spawn.inherited_fds = {store->fd()};
    spawn.death_signal = SIGKILL;
    return ChildProcess::start(spawn);
  }

  void add_one(StandInWorker& worker) {
    do {
      worker.port->pull();
      worker.port->push(kAddTheGradient);
    } while (worker.port->wait());
  }

  static constexpr std::size_t kParameters = 300'000;
  std::optional<SharedParameters> store;
};

TEST_F(DeviceStoreIpc, LosesNothingBetweenProcesses) {
  StandInWorker worker(*device, store->store(), 0);
  worker.gradient(std::vector<float>(kParameters, 1));
  ChildProcess other = start_other("AddsAndEnds");
  for (int i = 0; i < kPushes; ++i) add_one(worker);
  ASSERT_EQ(other.wait(kDeadlineMs), 0);
  EXPECT_EQ(testing::read_all(store->store()), std::vector<float>(kParameters, 3.0F * kPushes));
  EXPECT_EQ(store->close_shards(1), 0U);
}

TEST_F(DeviceStoreIpc, AProcessThatIsKilledWhileItWritesHoldsNobodyUp) {
  StandInWorker worker(*device, store->store(), 0);
  worker.gradient(std::vector<float>(kParameters, 1));
  ChildProcess other = start_other("AddsForEver");
  SystemClock clock;
  const std::int64_t deadline_us = clock.now_us() + kDeadlineMs * 1'000;
  while (store->updates() < kPushes && !other.poll() && clock.now_us() < deadline_us) {
    clock.sleep_us(100);
  }
  ASSERT_GE(store->updates(), kPushes);
  other.signal(SIGKILL);
  ASSERT_TRUE(other.wait(kDeadlineMs));
  const std::size_t closed = store->close_shards(1);
  EXPECT_EQ(store->half_written(), closed > 0 ? 1U : 0U);
  const std::vector<float> before = testing::read_all(store->store());
  EXPECT_GE(before.front(), 2.0F * kPushes);
  add_one(worker);
  std::vector<float> expected = before;
  for (float& value : expected) value += 1;
  EXPECT_EQ(testing::read_all(store->store()), expected);
}

// What the other process does; started by the two above.
class DeviceStoreOther : public ::testing::Test {
 protected:
  void add(int pushes) {
    const char* fd = std::getenv(kStoreVariable);
    ASSERT_NE(fd, nullptr) << "this is for the tests of DeviceStoreIpc";
    StoreDevice& device = store_device(Backend::kCuda);
    SharedParameters store = SharedParameters::attach(device, std::atoi(fd), 1);
    StandInWorker worker(device, store.store(), 1);
    worker.gradient(std::vector<float>(store.store().shape().parameters, 2));
    for (int done = 0; pushes < 0 || done < pushes;) {
      worker.port->pull();
      worker.port->push(kAddTheGradient);
      if (worker.port->wait()) continue;
      store.count_updates(1);
      ++done;
    }
  }
};

TEST_F(DeviceStoreOther, DISABLED_AddsAndEnds) {
  add(kPushes);
}

TEST_F(DeviceStoreOther, DISABLED_AddsForEver) {
  add(-1);
}

}  // namespace
}  // namespace syncd::trainer
