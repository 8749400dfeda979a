// A run whose parameters are on a device that fails: it ends with the reason, and the trainer goes
// on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reference_trainer/params/device_queues.h"
#include "reference_trainer/params/device_store.h"
#include "reference_trainer/run/run.h"
#include "support.h"

namespace syncd::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::small_config;
using testing::small_data;

enum class Failure { kCreate, kRead, kClose };

[[noreturn]] void fail(const char* call) {
  throw std::runtime_error(std::string("CUDA: an illegal memory access in ") + call);
}

class FailingStore : public DeviceStore {
 public:
  FailingStore(const DeviceShape& shape, Failure failure) : shape_(shape), failure_(failure) {}

  const DeviceShape& shape() const override { return shape_; }
  DeviceHandle handle() const override { return {}; }
  std::unique_ptr<DeviceStorePort> port(int, const DeviceView&) override { fail("port"); }
  bool read_all(std::span<float> out) override {
    if (failure_ == Failure::kRead) fail("read_all");
    std::fill(out.begin(), out.end(), 0.0F);
    return true;
  }
  std::size_t close_shards(int) override {
    if (failure_ == Failure::kClose) fail("close_shards");
    return 0;
  }

 private:
  DeviceShape shape_;
  Failure failure_;
};

class FailingDevice : public StoreDevice {
 public:
  explicit FailingDevice(Failure failure) : failure_(failure) {}

  std::unique_ptr<DeviceStore> create(const DeviceShape& shape, std::span<const float>) override {
    if (failure_ == Failure::kCreate) fail("create");
    return std::make_unique<FailingStore>(shape, failure_);
  }
  std::unique_ptr<DeviceStore> open(const DeviceShape&, const DeviceHandle&, int) override {
    fail("open");
  }
  std::unique_ptr<DeviceQueues> create_queues(const DeviceShape&, std::span<const float>) override {
    fail("create_queues");
  }
  std::unique_ptr<DeviceQueues> open_queues(const DeviceShape&, const std::vector<DeviceHandle>&,
                                            int) override {
    fail("open_queues");
  }
  std::unique_ptr<DeviceStandIn> stand_in(std::size_t, int) override { fail("stand_in"); }

 private:
  Failure failure_;
};

// Its workers cannot work on such a device either: each ends before it has connected to anything.
RunResult run_on(StoreDevice& device, const char* policy) {
  const SharedArrays data = small_data(WorkloadKind::kSvm);
  RunSettings settings;
  settings.workload = small_config(WorkloadKind::kSvm);
  settings.workers_as = WorkersAs::kThreads;
  settings.store_in = StoreIn::kDevice;
  settings.device = &device;
  settings.policy = policy;
  settings.job = "job";
  settings.iterations = 1;
  const auto workload = make_workload(settings.workload, data);
  return run_training(settings, *workload, data, nullptr,
                      {.notify = [](const std::string&) {}, .progress = {}});
}

TEST(FailingDevice, WithoutRoomForTheParametersFailsTheRun) {
  FailingDevice device(Failure::kCreate);
  for (const auto& [policy, call] :
       {std::pair{"asp", "create"}, {"hop:complete", "create_queues"}}) {
    const RunResult result = run_on(device, policy);
    EXPECT_EQ(result.failure, std::string("no place for the parameters: CUDA: an illegal memory "
                                          "access in ") +
                                  call);
    EXPECT_EQ(result.policy, policy);
    EXPECT_THAT(result.workers, SizeIs(3));
    EXPECT_EQ(result.lost_workers(), 3);
  }
}

TEST(FailingDevice, ThatCannotBeReadFailsTheRunBeforeAnyWorkerStarts) {
  FailingDevice device(Failure::kRead);
  const RunResult result = run_on(device, "asp");
  EXPECT_EQ(result.failure,
            "the parameters cannot be reached: CUDA: an illegal memory access in read_all");
  EXPECT_THAT(result.curve, IsEmpty());
  EXPECT_EQ(result.workers[0].end, "");
}

TEST(FailingDevice, ThatFailsWhenAWorkerHasEndedKeepsWhatIsKnown) {
  FailingDevice device(Failure::kClose);
  const RunResult result = run_on(device, "asp");
  EXPECT_THAT(result.failure, HasSubstr("close_shards"));
  EXPECT_THAT(result.curve, SizeIs(1));
  EXPECT_THAT(result.workers[0].end, HasSubstr("failed: "));
}

}  // namespace
}  // namespace syncd::trainer
