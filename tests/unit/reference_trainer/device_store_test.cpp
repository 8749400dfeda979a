// The store in a device's memory, with the CPU in the device's place: the steps are those that the
// GPU runs.
#include "reference_trainer/params/device_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <barrier>

#include "reference_trainer/model/device_steppers.h"
#include "reference_trainer/params/store_devices.h"
#include "reference_trainer/run/store_loop.h"
#include "reference_trainer/run/worker.h"
#include "tests/unit/reference_trainer/device_store_cases.h"
#include "tests/unit/reference_trainer/gradient_reference.h"
#include "tests/unit/reference_trainer/host_device.h"
#include "tests/unit/reference_trainer/host_machine.h"
#include "tests/unit/reference_trainer/loop_support.h"

namespace syncd::trainer {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::HostMachine;
using testing::kAddTheGradient;
using testing::StandInWorker;

// With one thread per group, and with three.
class DeviceStoreTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  HostMachine::Settings settings{.team = GetParam()};
  MachineDevice<HostMachine> device{HostMachine(settings)};
};

INSTANTIATE_TEST_SUITE_P(Groups, DeviceStoreTest, ::testing::Values(1, 3));

TEST_P(DeviceStoreTest, PullsWhatItWasMadeOf) {
  testing::pulls_what_it_was_made_of(device);
}

TEST_P(DeviceStoreTest, AddsUpWhatItsWorkersStep) {
  testing::adds_up_what_its_workers_step(device, 0);
}

TEST_P(DeviceStoreTest, LeavesOutShardsThatDidNotChange) {
  testing::leaves_out_shards_that_did_not_change(device);
}

TEST_P(DeviceStoreTest, LosesAndTearsNothing) {
  testing::loses_and_tears_nothing(device, 1'000, 300, 3, GetParam() == 1 ? 3'000 : 40);
}

// Whoever dies in the middle of a shard, and the others meanwhile and afterwards.
class DeviceStoreDeath : public ::testing::Test {
 protected:
  void SetUp() override {
    dying.gradient(std::vector<float>(kShape.parameters, 5));
    other.gradient(std::vector<float>(kShape.parameters, 1));
    early.gradient(std::vector<float>(kShape.parameters, 1));
    early.port->pull();
    ASSERT_EQ(early.port->wait(), std::nullopt);
    settings.dies_at = 1;
    EXPECT_THROW(dying.port->push(kAddTheGradient), testing::Died);
    settings.dies_at = ~std::size_t{0};
  }

  static constexpr DeviceShape kShape{.parameters = 30, .piece_floats = 10, .workers = 3};
  // Of the shard in which it died, every second value.
  static std::vector<float> left_by_it() {
    std::vector<float> values(kShape.parameters);
    std::fill_n(values.begin(), 10, 5.0F);
    for (std::size_t i = 10; i < 20; i += 2) values[i] = 5;
    return values;
  }

  HostMachine::Settings settings;
  MachineDevice<HostMachine> device{HostMachine(settings)};
  std::unique_ptr<DeviceStore> store = device.create(kShape, std::vector<float>(kShape.parameters));
  StandInWorker dying{device, *store, 0};
  StandInWorker other{device, *store, 1};
  StandInWorker early{device, *store, 2};  // has pulled before
};

TEST_F(DeviceStoreDeath, TheShardCannotBeReadUntilItIsClosed) {
  std::vector<float> values(kShape.parameters);
  EXPECT_FALSE(store->read_all(values));
  other.port->pull();
  EXPECT_EQ(other.port->wait(), 1U);
  EXPECT_EQ(store->close_shards(0), 1U);
  EXPECT_EQ(store->close_shards(0), 0U);
  EXPECT_EQ(testing::read_all(*store), left_by_it());
  other.port->pull();
  EXPECT_EQ(other.port->wait(), std::nullopt);
  EXPECT_EQ(other.replica(), left_by_it());
}

TEST_F(DeviceStoreDeath, NothingIsPushedThatWasComputedWithATornShard) {
  other.port->pull();
  other.port->push(kAddTheGradient);
  EXPECT_EQ(other.port->wait(), 1U);
  EXPECT_EQ(store->close_shards(0), 1U);
  EXPECT_EQ(testing::read_all(*store), left_by_it());
}

TEST_F(DeviceStoreDeath, OthersWriteOnInTheShardAndTheirsIsNotClosed) {
  early.port->pull();  // nothing was completed in the shard since, so what it has is whole
  early.port->push(kAddTheGradient);
  EXPECT_EQ(early.port->wait(), std::nullopt);
  EXPECT_EQ(store->close_shards(2), 0U);
  EXPECT_EQ(store->close_shards(1), 0U);
  std::vector<float> values(kShape.parameters);
  EXPECT_FALSE(store->read_all(values));
  early.port->pull();
  EXPECT_EQ(early.port->wait(), 1U);
  EXPECT_EQ(store->close_shards(0), 1U);
  std::vector<float> expected = left_by_it();
  for (float& value : expected) value += 1;
  EXPECT_EQ(testing::read_all(*store), expected);
}

TEST(DeviceStore, TakesNoOtherWorkerNorStepper) {
  HostMachine::Settings settings;
  MachineDevice<HostMachine> device{HostMachine(settings)};
  const auto store =
      device.create({.parameters = 4, .piece_floats = 4, .workers = 2}, std::vector<float>(4));
  EXPECT_THROW(StandInWorker(device, *store, 2), std::invalid_argument);
  const auto other = device.stand_in(5, 0);
  EXPECT_THROW(store->port(0, other->view()), std::invalid_argument);
}

TEST(DeviceShape, CutsIntoAboutAThousandShardsOfWholeBlocks) {
  EXPECT_EQ(device_store_shape({.parameters = 1}, 1).pieces(), 1U);
  EXPECT_EQ(device_store_shape({.parameters = 295'146}, 4).piece_floats, 512U);
  EXPECT_EQ(device_store_shape({.parameters = 4U << 20}, 4).pieces(), 1'024U);
  EXPECT_EQ(device_store_shape({.parameters = 64U << 20}, 4).piece_floats, 8'192U);
  EXPECT_EQ(device_store_shape({.parameters = 9'000, .block = 9}, 4).piece_floats % 9, 0U);
  EXPECT_EQ(device_store_shape({.parameters = 9'000, .block = 9'000}, 4).pieces(), 1U);
}

// A stepper on the device whose minibatches add 1 to every parameter.
class AddingStepper : public Stepper {
 public:
  AddingStepper(StoreDevice& device, std::size_t parameters)
      : stand_in_(device.stand_in(parameters, 0)), view_(stand_in_->view()) {
    view_.rule = kAddTheGradient;
    view_.velocity = nullptr;
    stand_in_->write(const_cast<float*>(view_.gradient), std::vector<float>(parameters, 1));
  }
  DeviceView view() override { return view_; }
  double loss() override { return 0.5; }
  std::uint64_t samples() const override { return 8; }
  std::uint32_t* resync_flag() override { return &flag_; }
  std::span<float> replica() override { return {}; }
  void start(BatchKey) override {}
  int micro_batches() const override { return 1; }
  void compute(int) override {}
  const Update& finish() override { return update_; }

 private:
  std::unique_ptr<DeviceStandIn> stand_in_;
  DeviceView view_;
  std::uint32_t flag_ = 0;
  Update update_;
};

class DeviceExchangeTest : public ::testing::Test {
 protected:
  SharedParameters create(bool shares) {
    return SharedParameters::of_store(device, {.parameters = 1'500}, 2, std::vector<float>(1'500),
                                      shares);
  }

  HostMachine::Settings settings;
  MachineDevice<HostMachine> device{HostMachine(settings)};
  AddingStepper stepper{device, 1'500};
};

TEST_F(DeviceExchangeTest, PushesCountsAndTakesBack) {
  SharedParameters store = create(true);
  SharedParameters attached = SharedParameters::attach(device, ::dup(store.fd()), 1);
  DeviceParameterExchange exchange(1, attached, stepper);
  exchange.pull();
  const auto report = exchange.push();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->loss, 0.5);
  EXPECT_EQ(report->samples, 8U);
  EXPECT_EQ(report->bytes, 6'000U);
  EXPECT_EQ(store.updates(), 1);
  EXPECT_THAT(testing::read_all(store.store()), Each(1));
  exchange.take_back();
  EXPECT_EQ(store.updates(), 0);
  EXPECT_THAT(testing::read_all(store.store()), Each(0));
}

TEST_F(DeviceExchangeTest, AsksForAnotherPullWhileAShardIsOpen) {
  SharedParameters store = create(false);
  DeviceParameterExchange exchange(0, store, stepper);
  {
    StandInWorker dying(device, store.store(), 1);
    settings.dies_at = 2;
    EXPECT_THROW(dying.port->push(kAddTheGradient), testing::Died);
    settings.dies_at = ~std::size_t{0};
  }
  exchange.pull();
  EXPECT_EQ(exchange.push(), std::nullopt);
  EXPECT_EQ(store.updates(), 0);
  EXPECT_EQ(store.close_shards(1), 1U);
  EXPECT_EQ(store.close_shards(1), 0U);
  EXPECT_EQ(store.half_written(), 1U);
  exchange.pull();
  EXPECT_TRUE(exchange.push());
  EXPECT_EQ(store.updates(), 1);
}

TEST_F(DeviceExchangeTest, WhereSharingIsRefusedOneProcessCanStillUseIt) {
  settings.shares = false;
  EXPECT_THROW(create(true), SharingRefused);
  SharedParameters store = create(false);
  EXPECT_THROW(SharedParameters::attach(device, ::dup(store.fd()), 1), SharingRefused);
  DeviceParameterExchange exchange(0, store, stepper);
  exchange.pull();
  EXPECT_TRUE(exchange.push());
}

TEST_F(DeviceExchangeTest, AStoreThatAWorkersDeviceCannotAddToIsNotMade) {
  settings.reaches = false;
  EXPECT_THROW(create(false), std::runtime_error);
}

TEST_F(DeviceExchangeTest, AttachesToNothingElse) {
  const SharedMemory memory = SharedMemory::create(64, "a test");
  EXPECT_THROW(SharedParameters::attach(device, ::dup(memory.fd()), 1), SharedMemoryError);
}

// Grants one iteration after the other, with a barrier to all at once.
class EasyCoordinator : public Coordinator {
 public:
  explicit EasyCoordinator(std::barrier<>* barrier = nullptr) : barrier_(barrier) {}
  void join() override {}
  std::optional<Step> begin(std::int64_t) override {
    if (barrier_ != nullptr) barrier_->arrive_and_wait();
    return Step{.iteration = next_++, .pull = true};
  }
  std::string waiting_for() const override { return ""; }
  bool should_resync() const override { return false; }
  void restarted(std::int64_t) override {}
  bool push(std::int64_t, const PushReport& report) override {
    reports.push_back(report);
    return false;
  }
  void leave() override {}

  std::vector<PushReport> reports;

 private:
  std::barrier<>* barrier_;
  std::int64_t next_ = 0;
};

RunBoard board_for(const WorkloadConfig& workload, std::int64_t iterations) {
  BoardConfig config{};
  config.workload = workload;
  config.budget = Budget::kEach;
  config.iterations = iterations;
  set_field(config.slowdown, "none", "slowdown");
  return RunBoard::create(config);
}

// The steppers of a device with its store, and those of the CPU with the store in host memory.
class DeviceLoops : public ::testing::TestWithParam<WorkloadKind> {
 protected:
  static constexpr std::int64_t kIterations = 12;

  testing::GradientCase with{GetParam()};
  HostMachine::Settings settings;
  MachineDevice<HostMachine> device{HostMachine(settings)};
  std::vector<float> initial = [this] {
    std::vector<float> parameters(with.workload->layout().parameters);
    with.workload->initialize(parameters);
    return parameters;
  }();
};

INSTANTIATE_TEST_SUITE_P(Workloads, DeviceLoops,
                         ::testing::Values(WorkloadKind::kSvm, WorkloadKind::kMf,
                                           WorkloadKind::kCnn),
                         [](const auto& kind) { return std::string(workload_name(kind.param)); });

TEST_P(DeviceLoops, OneWorkerTrainsAsWithAStoreInHostMemory) {
  const RunBoard board = board_for(with.config, kIterations);
  testing::FakeClock clock;
  EasyCoordinator host_coordinator;
  SharedParameters host_store = SharedParameters::of_store(
      store_device(Backend::kCpu), with.workload->layout(), with.config.workers, initial, false);
  const auto host_stepper = with.workload->make_stepper();
  HostParameterExchange host_exchange(0, host_store, *host_stepper);
  StoreLoop(0, board, host_exchange, *host_stepper, host_coordinator, clock).run();

  EasyCoordinator coordinator;
  SharedParameters store = SharedParameters::of_store(device, with.workload->layout(),
                                                      with.config.workers, initial, true);
  const auto stepper = make_device_stepper(testing::HostDevice(), with.request);
  DeviceParameterExchange exchange(0, store, *stepper);
  const RunBoard device_board = board_for(with.config, kIterations);
  StoreLoop(0, device_board, exchange, *stepper, coordinator, clock).run();

  std::vector<float> expected(initial.size());
  expected = testing::read_all(host_store.store());
  EXPECT_NE(expected, initial);
  testing::expect_near(testing::read_all(store.store()), expected, 1e-4F);
  EXPECT_EQ(store.updates(), kIterations);
  ASSERT_EQ(coordinator.reports.size(), host_coordinator.reports.size());
  for (std::size_t i = 0; i < coordinator.reports.size(); ++i) {
    EXPECT_NEAR(coordinator.reports[i].loss, host_coordinator.reports[i].loss, 1e-4);
    EXPECT_EQ(coordinator.reports[i].samples, host_coordinator.reports[i].samples);
  }
}

TEST_P(DeviceLoops, SeveralWorkersLearnTogether) {
  SharedParameters store = SharedParameters::of_store(device, with.workload->layout(),
                                                      with.config.workers, initial, true);
  const RunBoard board = board_for(with.config, 10 * kIterations);
  std::barrier barrier(with.config.workers);
  std::vector<std::jthread> threads;
  for (int worker = 0; worker < with.config.workers; ++worker) {
    threads.emplace_back([&, worker] {
      StepperRequest request = with.request;
      request.worker = worker;
      const auto stepper = make_device_stepper(testing::HostDevice(), request);
      DeviceParameterExchange exchange(worker, store, *stepper);
      EasyCoordinator coordinator(&barrier);
      SystemClock clock;
      StoreLoop(worker, board, exchange, *stepper, coordinator, clock).run();
    });
  }
  threads.clear();
  EXPECT_EQ(store.updates(), 10 * kIterations * with.config.workers);
  EXPECT_LT(with.workload->evaluate(testing::read_all(store.store())),
            with.workload->evaluate(initial));
}

// An exchange whose first pulls do not come through.
class HaltingExchange : public ParameterExchange {
 public:
  int failures = 2;
  int pulls = 0;
  int pushes = 0;

  void pull() override { ++pulls; }
  std::optional<PushReport> push() override {
    if (failures-- > 0) return std::nullopt;
    ++pushes;
    return PushReport{.loss = 1, .samples = 8, .bytes = 4};
  }
  void take_back() override {}
};

TEST(StoreLoopOnADevice, ComputesAgainWhatItHadPulledInPart) {
  WorkloadConfig config;
  config.workers = 1;
  const RunBoard board = board_for(config, 3);
  HaltingExchange exchange;
  testing::CountingStepper stepper;
  EasyCoordinator coordinator;
  testing::FakeClock clock;
  StoreLoop(0, board, exchange, stepper, coordinator, clock).run();
  EXPECT_EQ(exchange.pushes, 3);
  EXPECT_EQ(exchange.pulls, 5);
  EXPECT_THAT(stepper.iterations, ::testing::ElementsAre(0, 0, 0, 1, 2));
  EXPECT_EQ(coordinator.reports.size(), 3U);
  EXPECT_EQ(board.slot(0).iterations.load(), 3);
}

// What the process says that tries to share, and how it ends, decide.
TEST_F(DeviceExchangeTest, WhetherProcessesCanShareIsTried) {
  EXPECT_EQ(sharing_problem(device, Backend::kCpu, "/bin/true"), std::nullopt);
  EXPECT_THAT(sharing_problem(device, Backend::kCpu, "/bin/false").value_or(""),
              HasSubstr("exit status 1"));
  const char* const trial[] = {"program", "--internal-sharing-trial", "x", "0"};
  EXPECT_TRUE(is_sharing_trial(4, trial));
  EXPECT_EQ(sharing_trial_main(4, trial), 2);
  settings.shares = false;
  EXPECT_EQ(sharing_problem(device, Backend::kCpu, "/bin/true"), "this machine shares nothing");
}

TEST(WorkerThread, ThatFailsSaysWhyAndTheProcessGoesOn) {
  BoardConfig config{};
  config.workload.workers = 2;
  config.data_fd = -1;
  const RunBoard board = RunBoard::create(config);
  const auto worker = start_worker_thread(1, board, nullptr);
  std::optional<RunningWorker::End> end;
  while (!end) end = worker->poll();
  EXPECT_FALSE(end->finished);
  EXPECT_THAT(end->text, ::testing::StartsWith("failed: "));
  EXPECT_EQ(board.slot(1).state.load(), WorkerState::kFailed);
  worker->end();
  EXPECT_FALSE(threads_left_behind());
}

}  // namespace
}  // namespace syncd::trainer
