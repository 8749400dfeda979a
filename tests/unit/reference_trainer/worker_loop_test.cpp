// The worker's loop against a scripted coordinator and a clock that only moves when it is asked to
// sleep; and several loops at once, in threads, against an in-process SSP.
#include "reference_trainer/run/store_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "reference_trainer/model/random.h"
#include "reference_trainer/params/store_devices.h"
#include "reference_trainer/run/checkpoint.h"
#include "reference_trainer/run/process.h"
#include "tests/unit/reference_trainer/loop_support.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using testing::CountingStepper;
using ::testing::ElementsAre;
using testing::FakeClock;

// Answers begins from a list of actions (each returns a step, nothing, or throws), pushes likewise;
// when a list is used up, steps follow each other and pushes count.
class ScriptedCoordinator : public Coordinator {
 public:
  std::deque<std::function<std::optional<Step>()>> begins;
  std::deque<std::function<bool()>> pushes;
  std::function<bool()> resync = [] { return false; };
  std::function<void()> on_restarted;
  std::vector<std::int64_t> restarts;
  std::vector<std::int64_t> pushed;
  std::vector<PushReport> reports;
  std::deque<std::function<void()>> joins;
  std::deque<std::function<void()>> leaves;
  int left = 0;
  int joined = 0;
  std::int64_t next = 0;
  // Checkpoints.
  std::vector<std::pair<LeaveKind, std::string>> leaves_as;
  std::vector<std::pair<std::string, bool>> requests;  // reason, leaving
  std::vector<std::pair<std::uint64_t, std::string>> saved;
  std::uint64_t wanted = 0;      // told with a step or a leave
  bool leave_wants_one = false;  // the next leave is answered that `wanted` is to be saved
  std::function<void()> on_request;

  void join() override {
    take(joins);
    ++joined;
  }

  std::optional<Step> begin(std::int64_t) override {
    if (begins.empty()) return Step{.iteration = next};
    const auto action = begins.front();
    begins.pop_front();
    const auto step = action();
    if (step) next = step->iteration;
    return step;
  }
  std::string waiting_for() const override { return "waiting for worker 7"; }
  bool should_resync() const override { return resync(); }
  void restarted(std::int64_t iteration) override {
    if (on_restarted) on_restarted();
    restarts.push_back(iteration);
  }
  bool push(std::int64_t iteration, const PushReport& report) override {
    bool late = false;
    if (!pushes.empty()) {
      const auto action = pushes.front();
      pushes.pop_front();
      late = action();
    }
    pushed.push_back(iteration);
    reports.push_back(report);
    next = iteration + 1;
    return late;
  }
  void leave() override {
    take(leaves);
    ++left;
  }
  bool leave_as(LeaveKind kind, const std::string& reason) override {
    if (std::exchange(leave_wants_one, false)) return false;
    leaves_as.emplace_back(kind, reason);
    leave();
    return true;
  }
  std::uint64_t request_checkpoint(const std::string& reason, bool leaving) override {
    requests.emplace_back(reason, leaving);
    if (on_request) on_request();
    return wanted + 1;
  }
  std::uint64_t wanted_checkpoint() const override { return wanted; }
  void checkpointed(std::uint64_t number, const std::string& location) override {
    saved.emplace_back(number, location);
  }

 private:
  static void take(std::deque<std::function<void()>>& actions) {
    if (actions.empty()) return;
    const auto action = actions.front();
    actions.pop_front();
    action();
  }
};

class WorkerLoopTest : public ::testing::Test {
 protected:
  static BoardConfig config() {
    BoardConfig config{};
    config.workload.workers = 2;
    config.budget = Budget::kEach;
    config.iterations = 3;
    config.iteration_us = 10'000;
    set_field(config.slowdown, "fixed:1=4x", "slowdown");
    return config;
  }

  void run(int worker = 0) {
    HostParameterExchange exchange(worker, store, stepper);
    StoreLoop(worker, board, exchange, stepper, coordinator, clock).run();
  }

  // What another worker does meanwhile.
  void others_add(float delta) {
    Update update;
    update.indices = {0};
    update.deltas = {delta};
    float replica = 0;
    store.store().port(kOther, {.parameters = 1, .replica = &replica})->add(update, 1);
    store.count_updates(1);
  }
  float value() {
    float value = 0;
    EXPECT_TRUE(store.store().read_all({&value, 1}));
    return value;
  }

  static constexpr int kOther = 7;

  RunBoard board = RunBoard::create(config());
  SharedParameters store = SharedParameters::of_store(
      store_device(Backend::kCpu), {.parameters = 1}, kOther + 1, std::vector<float>{0}, false);
  CountingStepper stepper;
  ScriptedCoordinator coordinator;
  FakeClock clock;
};

TEST_F(WorkerLoopTest, RunsItsBudgetAndLeaves) {
  run();
  EXPECT_THAT(coordinator.pushed, ElementsAre(0, 1, 2));
  EXPECT_EQ(coordinator.left, 1);
  EXPECT_EQ(value(), 3);
  EXPECT_EQ(board.slot(0).iterations.load(), 3);
  EXPECT_EQ(coordinator.reports[0].loss, 0.25);
  EXPECT_EQ(coordinator.reports[0].samples, 8U);
  EXPECT_EQ(coordinator.reports[0].bytes, 8U);
}

TEST_F(WorkerLoopTest, OneThatFailsLeavesAsFailedWithTheReason) {
  coordinator.pushes.push_back([]() -> bool { throw std::runtime_error("no memory"); });
  EXPECT_EQ(testing::error_of<std::runtime_error>([&] { run(); }), "no memory");
  EXPECT_THAT(coordinator.leaves_as,
              ElementsAre(std::pair(LeaveKind::kFailed, std::string("no memory"))));
}

// With checkpoints in a directory of its own.
class CheckpointingLoopTest : public WorkerLoopTest {
 protected:
  CheckpointingLoopTest() { start_board(0); }

  void start_board(std::int64_t every) {
    BoardConfig with = config();
    set_field(with.checkpoints, place.path().string(), "directory");
    with.checkpoint_every = every;
    with.start = 7;
    board = RunBoard::create(with);
  }
  void flag(std::int64_t iteration, std::uint64_t number) {
    coordinator.begins.push_back([=, this] {
      coordinator.wanted = number;
      return Step{.iteration = iteration, .checkpoint = number};
    });
  }
  Shard saved(CheckpointId id) const { return read_shard(find_shard(place.path(), id, 0)).shard; }

  TemporaryDirectory place;
};

TEST_F(CheckpointingLoopTest, SavesWhereAStepSaysSoAndSaysWhere) {
  coordinator.begins.push_back([] { return Step{.iteration = 0}; });
  coordinator.begins.push_back([this] {
    others_add(10);
    coordinator.wanted = 4;
    return Step{.iteration = 1, .checkpoint = 4};  // no PULL: it is renewed all the same
  });
  run();
  const Shard shard = saved({7, 4});
  EXPECT_EQ(shard.iteration, 1);
  EXPECT_EQ(shard.iterations, 1);
  EXPECT_THAT(shard.parameters, ElementsAre(11)) << "before the update of iteration 1";
  EXPECT_THAT(
      coordinator.saved,
      ElementsAre(std::pair(std::uint64_t{4}, find_shard(place.path(), {7, 4}, 0).string())));
  EXPECT_THAT(coordinator.pushed, ElementsAre(0, 1, 2));
  EXPECT_THAT(coordinator.leaves_as, ElementsAre(std::pair(LeaveKind::kLeft, std::string())));
}

TEST_F(CheckpointingLoopTest, WorkerZeroAsksEveryNIterations) {
  start_board(2);
  run(0);
  EXPECT_THAT(coordinator.requests,
              ElementsAre(std::pair(std::string("every 2 iterations"), false)));
  coordinator.requests.clear();
  coordinator.next = 0;
  run(1);
  EXPECT_THAT(coordinator.requests, ::testing::IsEmpty());
}

TEST_F(CheckpointingLoopTest, NobodyAsksWhileAWorkerIsMissing) {
  start_board(2);
  board.slot(1).state.store(WorkerState::kFailed);
  run(0);
  EXPECT_THAT(coordinator.requests, ::testing::IsEmpty());
}

TEST_F(CheckpointingLoopTest, ALeaveThatWantsACheckpointSavesAndLeavesAgain) {
  coordinator.wanted = 2;
  coordinator.leave_wants_one = true;
  run();
  EXPECT_EQ(saved({7, 2}).iteration, 3);
  EXPECT_THAT(saved({7, 2}).parameters, ElementsAre(3));
  EXPECT_EQ(coordinator.saved.size(), 1U);
  EXPECT_EQ(coordinator.left, 1);
}

TEST_F(CheckpointingLoopTest, OneThatIsPreemptedSavesFirstAndLeavesAsPreempted) {
  coordinator.begins.push_back([this] {
    board.request_preemption();
    return Step{.iteration = 0};
  });
  coordinator.begins.push_back([] { return Step{.iteration = 1}; });
  flag(2, 1);
  run();
  EXPECT_THAT(coordinator.requests, ElementsAre(std::pair(std::string("SIGTERM"), true)));
  EXPECT_THAT(coordinator.pushed, ElementsAre(0, 1)) << "it goes on until it has saved";
  EXPECT_EQ(saved({7, 1}).iteration, 2);
  EXPECT_THAT(saved({7, 1}).parameters, ElementsAre(2));
  EXPECT_THAT(coordinator.leaves_as,
              ElementsAre(std::pair(LeaveKind::kPreempted, std::string("SIGTERM"))));
}

TEST_F(CheckpointingLoopTest, OneThatIsPreemptedLeavesAtOnceWhereNoneCanBeSaved) {
  coordinator.on_request = [] {
    throw CoordinatorError(CoordinatorError::Kind::kOther, "SYNCD_E_BROKEN: lost worker 1");
  };
  coordinator.begins.push_back([this] {
    board.request_preemption();
    return Step{.iteration = 0};
  });
  run();
  EXPECT_THAT(coordinator.pushed, ElementsAre(0));
  EXPECT_THAT(coordinator.leaves_as,
              ElementsAre(std::pair(LeaveKind::kPreempted, std::string("SIGTERM"))));
}

TEST_F(CheckpointingLoopTest, AWaitingWorkerIsPreemptedWithinASliceAndWaitsNoLongerThanAllowed) {
  coordinator.begins.push_back([this]() -> std::optional<Step> {
    board.request_preemption();
    return std::nullopt;
  });
  coordinator.begins.push_back([this]() -> std::optional<Step> {
    EXPECT_EQ(coordinator.requests.size(), 1U);
    clock.sleep_us(kPreemptionWaitUs);
    return std::nullopt;
  });
  run();
  EXPECT_THAT(coordinator.pushed, ::testing::IsEmpty());
  EXPECT_THAT(coordinator.leaves_as,
              ElementsAre(std::pair(LeaveKind::kPreempted, std::string("SIGTERM"))));
}

// Under bsp: every worker adds in its turn, after all have pulled.
TEST_F(CheckpointingLoopTest, UnderBspUpdatesAreAddedInTheOrderOfWorkers) {
  BoardConfig with = board.config();
  set_field(with.policy, "bsp", "policy");
  board = RunBoard::create(with);
  std::vector<float> at_turn;
  int sleeps = 0;
  // Padding is over before anything is waited for.
  clock.on_sleep = [&] {
    if (board.slot(1).pulled.load() != coordinator.next + 1) return;
    ++sleeps;
    at_turn.push_back(value());
    // Worker 0 pulls, then adds.
    if (board.slot(0).pulled.load() <= coordinator.next) {
      board.slot(0).pulled.store(coordinator.next + 1);
    } else if (board.slot(0).added.load() <= coordinator.next && stepper.parts_done.back() == 2) {
      others_add(10);
      board.slot(0).added.store(coordinator.next + 1);
    }
  };
  run(1);
  EXPECT_EQ(value(), 33);
  EXPECT_EQ(board.slot(1).added.load(), 3);
  EXPECT_GT(sleeps, 0);
  EXPECT_THAT(stepper.seen, ElementsAre(0, 1, 2)) << "its own copy, as no step said PULL";
}

TEST_F(WorkerLoopTest, AnIterationIsPaddedToItsCostTimesTheSlowdown) {
  run(0);
  EXPECT_EQ(board.slot(0).computing_us.load(), 3 * 10'000);
  run(1);
  EXPECT_EQ(board.slot(1).computing_us.load(), 3 * 40'000);
}

TEST_F(WorkerLoopTest, PullsWhenToldAndOtherwiseKeepsItsOwnCopyWithItsOwnUpdates) {
  const auto step = [&](std::int64_t iteration, bool pull) {
    coordinator.begins.push_back([=, this] {
      others_add(10);
      return Step{.iteration = iteration, .pull = pull};
    });
  };
  step(0, false);  // the first step pulls in any case
  step(1, false);
  step(2, true);
  run();
  EXPECT_THAT(stepper.seen, ElementsAre(10, 11, 32));
  EXPECT_EQ(board.slot(0).pulls.load(), 2);
}

TEST_F(WorkerLoopTest, StopEndsItWithoutComputing) {
  coordinator.begins.push_back([] { return Step{.iteration = 0}; });
  coordinator.begins.push_back([] { return Step{.stop = true}; });
  run();
  EXPECT_THAT(coordinator.pushed, ElementsAre(0));
  EXPECT_EQ(stepper.seen.size(), 1U);
  EXPECT_EQ(coordinator.left, 1);
}

TEST_F(WorkerLoopTest, SkipPullsAndRunsTheIterationItWasGiven) {
  coordinator.begins.push_back([] { return Step{.iteration = 0}; });
  coordinator.begins.push_back([this] {
    others_add(10);
    return Step{.iteration = 6, .staleness = 4, .skip = true};
  });
  run();
  EXPECT_THAT(coordinator.pushed, ElementsAre(0, 6, 7));
  EXPECT_THAT(stepper.iterations, ElementsAre(0, 6, 7));
  EXPECT_EQ(stepper.seen[1], 11);
  EXPECT_EQ(board.slot(0).skipped.load(), 5);
  EXPECT_EQ(board.slot(0).staleness_max.load(), 4);
  EXPECT_EQ(board.slot(0).staleness_sum.load(), 4);
}

TEST_F(WorkerLoopTest, ALateUpdateIsTakenBackAndDoesNotCount) {
  coordinator.pushes.push_back([] { return false; });
  coordinator.pushes.push_back([this] {
    others_add(100);
    return true;
  });
  run();
  // The late iteration was not counted, so one more is made.
  EXPECT_THAT(coordinator.pushed, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(value(), 103);
  EXPECT_EQ(stepper.seen[2], 101) << "it pulls afterwards, whatever the step says";
  EXPECT_EQ(board.slot(0).late.load(), 1);
  EXPECT_EQ(board.slot(0).wasted_us.load(), 10'000);
  EXPECT_EQ(board.slot(0).iterations.load(), 3);
}

TEST_F(WorkerLoopTest, AResyncDropsTheWorkPullsAndStartsTheSameIterationOver) {
  int asked = 0;
  coordinator.resync = [&] { return coordinator.next == 1 && asked++ == 2; };
  // Between the report and the pull: what the others push after the report counts as not seen.
  coordinator.on_restarted = [&] { others_add(10); };
  run();
  EXPECT_THAT(stepper.iterations, ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(stepper.seen, ElementsAre(0, 1, 11, 12));
  EXPECT_EQ(stepper.parts_done[1], 1) << "dropped between the parts";
  EXPECT_EQ(stepper.parts_done[2], 2);
  EXPECT_EQ(value(), 13) << "what was dropped was never applied";
  EXPECT_THAT(coordinator.restarts, ElementsAre(1));
  EXPECT_EQ(board.slot(0).restarts.load(), 1);
  EXPECT_GT(board.slot(0).wasted_us.load(), 0);
  EXPECT_THAT(coordinator.pushed, ElementsAre(0, 1, 2));
}

TEST_F(WorkerLoopTest, ARestartedIterationCanBeStartedOverAgain) {
  coordinator.resync = [&] { return coordinator.restarts.size() < 3; };
  run();
  EXPECT_THAT(coordinator.restarts, ElementsAre(0, 0, 0));
  EXPECT_THAT(stepper.iterations, ElementsAre(0, 0, 0, 0, 1, 2));
  EXPECT_EQ(board.slot(0).restarts.load(), 3);
}

TEST_F(WorkerLoopTest, AResyncIsNoticedWithinThePaddingOfOnePart) {
  coordinator.resync = [&] { return coordinator.restarts.empty() && clock.now_us() >= 1'002'500; };
  run();
  // The first part is padded to 5 ms in slices of 2 ms: the flag is seen at 4 ms.
  EXPECT_EQ(board.slot(0).wasted_us.load(), 4'000);
}

// Computes by itself: of what it was told, a part is done after it was asked three times, and every
// question takes a millisecond.
class PolledStepper : public CountingStepper {
 public:
  explicit PolledStepper(FakeClock& clock) : clock_(clock) {}

  int most_in_flight = 0;
  int drops = 0;
  int interruptions = 0;  // still to come
  bool is_interruptible = true;

  void interruptible(bool value) override { is_interruptible = value; }
  void start(BatchKey key) override {
    CountingStepper::start(key);
    told_ = done_ = 0;
  }
  void compute(int part) override {
    CountingStepper::compute(part);
    ++told_;
    most_in_flight = std::max(most_in_flight, told_ - done_);
  }
  bool ready() override {
    go_on();
    return told_ - done_ < 2;
  }
  bool finished() override {
    go_on();
    return told_ == done_;
  }
  void drop() override { ++drops; }
  bool interrupted() override { return interruptions-- > 0; }

 private:
  void go_on() {
    clock_.sleep_us(1'000);
    if (++asked_ % 3 == 0 && done_ < told_) ++done_;
  }

  FakeClock& clock_;
  int told_ = 0;
  int done_ = 0;
  int asked_ = 0;
};

class PolledWorkerLoopTest : public WorkerLoopTest {
 protected:
  static BoardConfig unpaced(const char* slowdown, const char* policy) {
    BoardConfig config = WorkerLoopTest::config();
    config.iteration_us = 0;
    set_field(config.slowdown, slowdown, "slowdown");
    set_field(config.policy, policy, "policy");
    return config;
  }
  void run_on(const RunBoard& with) {
    HostParameterExchange exchange(0, store, polled);
    StoreLoop(0, with, exchange, polled, coordinator, clock).run();
  }

  PolledStepper polled{clock};
};

TEST_F(PolledWorkerLoopTest, ADeviceIsToldTheNextPartWhileItComputesOne) {
  const RunBoard fast = RunBoard::create(unpaced("none", "asp"));
  run_on(fast);
  EXPECT_EQ(polled.most_in_flight, 2);
  EXPECT_FALSE(polled.is_interruptible);
  EXPECT_EQ(polled.drops, 0);
  EXPECT_EQ(fast.slot(0).iterations.load(), 3);
  EXPECT_EQ(fast.slot(0).computing_us.load(), 3 * 6'000) << "the time of the device";
}

TEST_F(PolledWorkerLoopTest, ASlowedPartIsDoneBeforeTheNextBecauseItsTimeIsDrawnOut) {
  const RunBoard slow = RunBoard::create(unpaced("fixed:0=4x", "specsync+asp"));
  run_on(slow);
  EXPECT_EQ(polled.most_in_flight, 1);
  EXPECT_TRUE(polled.is_interruptible);
  EXPECT_EQ(slow.slot(0).computing_us.load(), 3 * 4 * 6'000);
}

TEST_F(PolledWorkerLoopTest, AResyncIsNoticedWhileTheDeviceComputes) {
  const RunBoard fast = RunBoard::create(unpaced("none", "specsync+asp"));
  const std::int64_t start_us = clock.now_us();
  coordinator.resync = [&] {
    return coordinator.restarts.empty() && clock.now_us() >= start_us + 4'000;
  };
  run_on(fast);
  EXPECT_EQ(polled.drops, 1);
  EXPECT_THAT(polled.iterations, ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(coordinator.restarts, ElementsAre(0));
  EXPECT_EQ(fast.slot(0).wasted_us.load(), 4'000);
}

TEST_F(PolledWorkerLoopTest, AnInterruptedMinibatchIsComputedAgainThoughNobodyAdvisesIt) {
  const RunBoard fast = RunBoard::create(unpaced("none", "specsync+asp"));
  polled.interruptions = 1;
  run_on(fast);
  EXPECT_THAT(polled.iterations, ElementsAre(0, 0, 1, 2));
  EXPECT_EQ(fast.slot(0).iterations.load(), 3);
  EXPECT_EQ(value(), 3) << "the worthless result was not applied";
}

TEST_F(WorkerLoopTest, TheParentsStopIsHonouredWhileItWaitsInBegin) {
  int slices = 0;
  const std::function<std::optional<Step>()> not_yet = [&]() -> std::optional<Step> {
    EXPECT_EQ(board.slot(0).waiting_for.get(), slices == 0 ? "" : "waiting for worker 7");
    if (++slices == 3) board.request_stop(StopLevel::kFinish);
    coordinator.begins.push_back(coordinator.begins.front());
    return std::nullopt;
  };
  coordinator.begins = {not_yet, not_yet};
  run();
  EXPECT_EQ(slices, 3);
  EXPECT_EQ(coordinator.left, 1);
  EXPECT_TRUE(coordinator.pushed.empty());
}

TEST_F(WorkerLoopTest, FinishLetsTheIterationEndAndAbandonDoesNot) {
  clock.on_sleep = [this] { board.request_stop(StopLevel::kFinish); };
  run();
  EXPECT_THAT(coordinator.pushed, ElementsAre(0));
  EXPECT_EQ(coordinator.left, 1);

  board = RunBoard::create(config());
  coordinator = ScriptedCoordinator();
  clock.on_sleep = [this] { board.request_stop(StopLevel::kAbandon); };
  run();
  EXPECT_TRUE(coordinator.pushed.empty());
  EXPECT_EQ(coordinator.left, 1);
}

TEST_F(WorkerLoopTest, AFencedWorkerJoinsAnewAndGoesOnWithFreshParameters) {
  coordinator.begins.push_back([] { return Step{.iteration = 0}; });
  coordinator.begins.push_back([this]() -> std::optional<Step> {
    others_add(10);
    throw CoordinatorError(CoordinatorError::Kind::kFenced, "declared lost");
  });
  coordinator.begins.push_back([] { return Step{.iteration = 5}; });
  run();
  EXPECT_EQ(coordinator.joined, 2);
  EXPECT_THAT(coordinator.pushed, ElementsAre(0, 5, 6));
  EXPECT_EQ(stepper.seen[1], 11);
  EXPECT_EQ(board.slot(0).rejoins.load(), 1);
}

TEST_F(WorkerLoopTest, AWorkerThatIsFencedAgainAndAgainGivesUp) {
  for (int i = 0; i <= kRejoinsMax; ++i) {
    coordinator.pushes.push_back(
        []() -> bool { throw CoordinatorError(CoordinatorError::Kind::kFenced, "declared lost"); });
  }
  EXPECT_EQ(testing::error_of<CoordinatorError>([&] { run(); }), "declared lost");
  EXPECT_EQ(coordinator.joined, 1 + kRejoinsMax);
  EXPECT_EQ(value(), 0) << "no push was accepted";
}

TEST_F(WorkerLoopTest, AStoppedJobEndsItInGoodOrder) {
  coordinator.pushes.push_back([] { return false; });
  coordinator.pushes.push_back([this]() -> bool {
    EXPECT_EQ(value(), 2) << "visible before the push";
    throw CoordinatorError(CoordinatorError::Kind::kStopped, "stopped");
  });
  run();
  EXPECT_EQ(coordinator.left, 1);
  EXPECT_EQ(value(), 1) << "what the daemon did not accept is taken back";
  EXPECT_EQ(store.updates(), 1);
  EXPECT_EQ(board.slot(0).iterations.load(), 1);
}

TEST_F(WorkerLoopTest, AFencedPushIsTakenBackAndTheNextIterationStartsWithoutIt) {
  coordinator.pushes.push_back([] { return false; });
  coordinator.pushes.push_back([this]() -> bool {
    others_add(10);
    throw CoordinatorError(CoordinatorError::Kind::kFenced, "declared lost");
  });
  run();
  EXPECT_THAT(stepper.seen, ElementsAre(0, 1, 11, 12));
  EXPECT_EQ(value(), 13);
  EXPECT_EQ(board.slot(0).iterations.load(), 3);
  EXPECT_EQ(store.updates(), 3 + 1) << "its own that count, and the other's";
}

TEST_F(WorkerLoopTest, ARefusedPushIsTakenBack) {
  coordinator.pushes.push_back([]() -> bool {
    throw CoordinatorError(CoordinatorError::Kind::kOther, "push: SYNCD_E_INVALID_ARGUMENT");
  });
  EXPECT_EQ(testing::error_of<CoordinatorError>([&] { run(); }), "push: SYNCD_E_INVALID_ARGUMENT");
  EXPECT_EQ(value(), 0);
}

// ---- Failures that may pass

[[noreturn]] void disk_is_full() {
  throw CoordinatorError(CoordinatorError::Kind::kRetry, "SYNCD_E_STORE: disk full");
}

TEST_F(WorkerLoopTest, EveryCallIsMadeAgainUntilItSucceeds) {
  constexpr int kFailures = 20;
  for (int i = 0; i < kFailures; ++i) {
    coordinator.joins.push_back(disk_is_full);
    coordinator.begins.push_back([]() -> std::optional<Step> { disk_is_full(); });
    coordinator.pushes.push_back([this]() -> bool {
      EXPECT_EQ(value(), 1) << "the update stays, since the push may have counted";
      disk_is_full();
    });
    coordinator.leaves.push_back([this] {
      EXPECT_EQ(board.slot(0).trouble.get(), "SYNCD_E_STORE: disk full");
      disk_is_full();
    });
  }
  run();
  EXPECT_EQ(coordinator.joined, 1);
  EXPECT_EQ(coordinator.left, 1);
  EXPECT_THAT(coordinator.pushed, ElementsAre(0, 1, 2));
  EXPECT_EQ(value(), 3) << "every update is applied once";
  EXPECT_EQ(board.slot(0).iterations.load(), 3);
  EXPECT_EQ(board.slot(0).retries.load(), 4 * kFailures);
  EXPECT_EQ(board.slot(0).waiting_for.get(), "");
}

TEST_F(WorkerLoopTest, APauseBeforeTheNextTryIsKept) {
  const std::uint64_t seed = board.config().workload.seed;
  const std::int64_t start_us = clock.now_us();
  coordinator.joins = {disk_is_full, disk_is_full, [&] {
                         EXPECT_EQ(clock.now_us() - start_us,
                                   retry_pause_us(seed, 0, 1) + retry_pause_us(seed, 0, 2));
                       }};
  run();
  EXPECT_EQ(coordinator.joined, 1);
}

TEST(RetryPause, GrowsToItsBoundAndDiffersBetweenWorkers) {
  for (const int worker : {0, 1, 7}) {
    for (int failures = 1; failures <= 100; ++failures) {
      const std::int64_t pause_us = retry_pause_us(1, worker, failures);
      const std::int64_t bound_us =
          failures > 7 ? kRetryPauseMaxUs
                       : std::min(kRetryPauseMaxUs, kRetryPauseFirstUs << (failures - 1));
      EXPECT_GE(pause_us, bound_us / 2) << failures;
      EXPECT_LE(pause_us, bound_us) << failures;
    }
  }
  EXPECT_NE(retry_pause_us(1, 0, 9), retry_pause_us(1, 1, 9));
  EXPECT_NE(retry_pause_us(1, 0, 9), retry_pause_us(1, 0, 10));
}

TEST_F(WorkerLoopTest, ATryAgainEndsWithTheRun) {
  int tries = 0;
  const std::function<bool()> never = [&]() -> bool {
    if (++tries == 4) board.request_stop(StopLevel::kFinish);
    if (tries == 8) board.request_stop(StopLevel::kAbandon);
    coordinator.pushes.push_back(coordinator.pushes.front());
    disk_is_full();
  };
  coordinator.pushes = {never, never};
  EXPECT_EQ(testing::error_of<CoordinatorError>([&] { run(); }), "SYNCD_E_STORE: disk full");
  EXPECT_EQ(tries, 8) << "a push is part of what a stop lets end, until it says to abandon that";
  EXPECT_EQ(value(), 1) << "nobody knows whether that push counted";
  EXPECT_EQ(board.slot(0).iterations.load(), 0);
}

TEST_F(WorkerLoopTest, AStoppedRunWaitsForNoGrantAndLeaves) {
  coordinator.begins.push_back([this]() -> std::optional<Step> {
    board.request_stop(StopLevel::kFinish);
    disk_is_full();
  });
  run();
  EXPECT_EQ(coordinator.left, 1);
  EXPECT_TRUE(coordinator.pushed.empty());
}

TEST_F(WorkerLoopTest, OtherErrorsArePassedOnAndTheBudgetIsGivenBack) {
  coordinator.begins.push_back([]() -> std::optional<Step> {
    throw CoordinatorError(CoordinatorError::Kind::kOther, "begin: SYNCD_E_STATE: no");
  });
  EXPECT_EQ(testing::error_of<CoordinatorError>([&] { run(); }), "begin: SYNCD_E_STATE: no");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(board.claim_iteration(0));
}

TEST_F(WorkerLoopTest, NotesWhatItDidWhenAndHowStaleItsGrantsWere) {
  coordinator.begins.push_back([] { return Step{.iteration = 0}; });
  coordinator.begins.push_back([this] {
    clock.sleep_us(7'000);
    return Step{.iteration = 1, .staleness = 2, .barrier = true};
  });
  coordinator.begins.push_back([] { return Step{.iteration = 5, .staleness = 2, .skip = true}; });
  coordinator.resync = [&] { return coordinator.next == 1 && coordinator.restarts.empty(); };
  coordinator.pushes = {[] { return false; }, [] { return false; }, [] { return true; }};
  run();
  const WorkerSlot& slot = board.slot(0);
  std::string story;
  std::int64_t computing_us = 0;
  std::int64_t waiting_us = 0;
  for (const Span& span : slot.spans.read()) {
    if (span.iteration > 5) break;
    if (span.kind != SpanKind::kExchanging) {
      story += std::to_string(span.iteration) + " " + std::string(span_kind_name(span.kind)) + " " +
               std::to_string(span.flags) + "\n";
    }
    if (span.kind == SpanKind::kWaiting) waiting_us += span.end_us - span.start_us;
    if (span.kind == SpanKind::kComputing) computing_us += span.end_us - span.start_us;
  }
  EXPECT_EQ(story,
            "0 computing 0\n0 pushing 0\n"
            "1 waiting 1\n1 wasted 0\n1 computing 0\n1 pushing 0\n"
            "5 waiting 4\n5 computing 0\n5 pushing 2\n");
  EXPECT_EQ(computing_us, 3 * 10'000);
  EXPECT_EQ(waiting_us, 7'000);
  EXPECT_EQ(slot.staleness.count(0), 2);  // iterations 0 and 6
  EXPECT_EQ(slot.staleness.count(2), 2);
}

TEST_F(WorkerLoopTest, WaitingIsCountedWithoutTheWaitForTheJobToStart) {
  for (std::int64_t iteration = 0; iteration < 3; ++iteration) {
    coordinator.begins.push_back([this, iteration] {
      clock.sleep_us(7'000);
      return Step{.iteration = iteration};
    });
  }
  run();
  EXPECT_EQ(board.slot(0).waiting_us.load(), 2 * 7'000);
  EXPECT_EQ(board.slot(0).first_grant_us.load(), 1'007'000);
}

// ---- Several loops at once
// -----------------------------------------------------------------------

// Stale synchronous parallel for worker loops in one process.
class SspHub {
 public:
  SspHub(int workers, std::int64_t bound)
      : bound_(bound), clocks_(static_cast<std::size_t>(workers)) {}

  std::optional<Step> begin(std::size_t worker, std::int64_t timeout_ms) {
    std::unique_lock lock(mutex_);
    const bool granted = changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                           [&] { return clocks_[worker] - slowest() <= bound_; });
    if (!granted) return std::nullopt;
    const std::int64_t staleness = clocks_[worker] - slowest();
    most_stale_ = std::max(most_stale_, staleness);
    return Step{.iteration = clocks_[worker], .staleness = staleness, .pull = true};
  }
  void push(std::size_t worker) {
    change([&] { ++clocks_[worker]; });
  }
  void leave(std::size_t worker) {
    change([&] { clocks_[worker] = kLeft; });
  }
  std::int64_t most_stale() const { return most_stale_; }

 private:
  static constexpr std::int64_t kLeft = std::int64_t{1} << 40;

  std::int64_t slowest() const { return *std::min_element(clocks_.begin(), clocks_.end()); }
  template <typename Change>
  void change(Change&& how) {
    const std::lock_guard lock(mutex_);
    how();
    changed_.notify_all();
  }

  std::int64_t bound_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::int64_t> clocks_;
  std::int64_t most_stale_ = 0;
};

class HubCoordinator : public Coordinator {
 public:
  HubCoordinator(SspHub& hub, std::size_t worker) : hub_(hub), worker_(worker) {}
  std::optional<Step> begin(std::int64_t timeout_ms) override {
    return hub_.begin(worker_, timeout_ms);
  }
  std::string waiting_for() const override { return "the slowest"; }
  bool should_resync() const override { return false; }
  void restarted(std::int64_t) override {}
  bool push(std::int64_t, const PushReport&) override {
    hub_.push(worker_);
    return false;
  }
  void leave() override { hub_.leave(worker_); }
  void join() override {}

 private:
  SspHub& hub_;
  std::size_t worker_;
};

TEST(WorkerLoops, TrainTogetherWithinTheBoundAndLearn) {
  constexpr int kWorkers = 4;
  BoardConfig config{};
  config.workload = {.kind = WorkloadKind::kMf,
                     .workers = kWorkers,
                     .batch = 32,
                     .learning_rate = 0.05,
                     .seed = 7};
  config.iterations = 60;
  set_field(config.slowdown, "random:3x@1/n", "slowdown");
  const SharedArrays data = testing::small_data(WorkloadKind::kMf);
  const auto workload = make_workload(config.workload, data);
  std::vector<float> parameters(workload->layout().parameters);
  workload->initialize(parameters);
  const double before = workload->evaluate(parameters);
  SharedParameters store = SharedParameters::of_store(
      store_device(Backend::kCpu), workload->layout(), kWorkers, parameters, false);
  const RunBoard board = RunBoard::create(config);
  SspHub hub(kWorkers, 2);
  std::vector<std::thread> threads;
  for (int worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&, worker] {
      const auto stepper = workload->make_stepper();
      HubCoordinator coordinator(hub, static_cast<std::size_t>(worker));
      SystemClock clock;
      HostParameterExchange exchange(worker, store, *stepper);
      StoreLoop(worker, board, exchange, *stepper, coordinator, clock).run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::int64_t iterations = 0;
  std::int64_t most_stale = 0;
  for (int worker = 0; worker < kWorkers; ++worker) {
    iterations += board.slot(worker).iterations.load();
    most_stale = std::max(most_stale, board.slot(worker).staleness_max.load());
  }
  EXPECT_EQ(iterations, kWorkers * 60);
  EXPECT_LE(most_stale, 2);
  EXPECT_EQ(most_stale, hub.most_stale());
  ASSERT_TRUE(store.store().read_all(parameters));
  EXPECT_LT(workload->evaluate(parameters), before - 0.03);
}

// Accepts, calls late, fences and fails pushes by chance; a push that failed counts from its first
// accepted try on. Nobody waits for anybody.
class MoodyCoordinator : public Coordinator {
 public:
  explicit MoodyCoordinator(std::uint64_t seed) : random_(seed, Stream::kGenerate) {}
  std::int64_t accepted = 0;
  std::int64_t refused = 0;

  void join() override {}
  std::optional<Step> begin(std::int64_t) override {
    return Step{.iteration = next_++, .pull = random_.index(2) == 0};
  }
  std::string waiting_for() const override { return ""; }
  bool should_resync() const override { return false; }
  void restarted(std::int64_t) override {}
  bool push(std::int64_t, const PushReport&) override {
    const std::uint64_t mood = random_.index(10);
    if (mood == 0) throw CoordinatorError(CoordinatorError::Kind::kRetry, "unknown");
    const bool fenced = mood == 1 && fenced_ < kRejoinsMax;
    const bool late = mood == 2 || mood == 3;
    ++(fenced || late ? refused : accepted);
    if (fenced) {
      ++fenced_;
      throw CoordinatorError(CoordinatorError::Kind::kFenced, "fenced");
    }
    return late;
  }
  void leave() override {}

 private:
  Random random_;
  int fenced_ = 0;
  std::int64_t next_ = 0;
};

TEST(WorkerLoops, TheStoreHoldsExactlyTheAcceptedUpdates) {
  constexpr int kWorkers = 4;
  BoardConfig config{};
  config.workload.workers = kWorkers;
  config.budget = Budget::kShared;
  config.iterations = 300;
  set_field(config.slowdown, "none", "slowdown");
  const RunBoard board = RunBoard::create(config);
  SharedParameters store = SharedParameters::of_store(
      store_device(Backend::kCpu), {.parameters = 1}, kWorkers, std::vector<float>{0}, false);
  std::deque<MoodyCoordinator> coordinators;
  for (std::uint64_t seed = 0; seed < kWorkers; ++seed) coordinators.emplace_back(seed);
  std::vector<std::thread> threads;
  for (int worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&, worker] {
      CountingStepper stepper;
      FakeClock clock;
      HostParameterExchange exchange(worker, store, stepper);
      StoreLoop(worker, board, exchange, stepper, coordinators[static_cast<std::size_t>(worker)],
                clock)
          .run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::int64_t accepted = 0;
  std::int64_t refused = 0;
  for (const MoodyCoordinator& coordinator : coordinators) {
    accepted += coordinator.accepted;
    refused += coordinator.refused;
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(accepted, kWorkers * 300);
  float value = 0;
  ASSERT_TRUE(store.store().read_all({&value, 1}));
  EXPECT_EQ(value, static_cast<float>(accepted)) << "each update adds 1, which floats add exactly";
  EXPECT_EQ(store.updates(), accepted);
}

}  // namespace
}  // namespace syncd::trainer
