// The daemon without its edges, over a store that commits when the test says so: time in which the
// store stands still is held against no worker.
#include "daemon/edge/server/core.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "tests/unit/server/fake_store.h"

namespace syncd::server {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr Micros kMs = 1'000;
constexpr Micros kSecond = 1'000'000;

class CoreWithAStore : public ::testing::Test, protected Core::Host {
 protected:
  CoreWithAStore() {
    store_.start([this](const store::CommitReport& report) { core_.report(report); });
  }

  static EngineOptions options() {
    EngineOptions options;
    options.defaults.expected_workers = 2;
    options.defaults.evict_after_us = 10 * kSecond;
    options.defaults.warn_after_us = 0;
    options.defaults.worker_grace_us = 5 * kSecond;
    return options;
  }

  // Two workers in iteration 0 under asp, each on a connection of the number of its rank and 1.
  void two_in_an_iteration() {
    for (const Rank rank : {0U, 1U}) {
      wire::Join join;
      join.job = "job";
      join.name = "w" + std::to_string(rank);
      join.policy = "asp";
      ask(rank, join);
      commit();
      workers_.push_back(std::get<wire::Joined>(answers_.back()).worker);
    }
    for (const Rank rank : {0U, 1U}) ask(rank, wire::Begin{workers_[rank], 0});
    commit();
    ASSERT_TRUE(std::holds_alternative<wire::Granted>(answers_.back()));
  }
  void ask(Rank rank, wire::Body body) {
    core_.on_request({{rank + 1, ++request_}, std::move(body)});
    core_.end_turn();
  }
  void push(Rank rank, Iteration iteration) {
    ask(rank, wire::Push{workers_[rank], iteration, {}, 1, 1});
  }
  void commit() {
    store_.commit_all();
    core_.end_turn();
  }
  // Time passes, and timers fire when they are due.
  void pass(Micros span) {
    const Micros end = now_ + span;
    while (core_.next_deadline() <= end) {
      now_ = std::max(now_, core_.next_deadline());
      core_.fire_timers();
      core_.end_turn();
    }
    now_ = end;
  }

  void expect_both_lost_in(Micros span) {
    pass(span - 1);
    EXPECT_THAT(lost_, IsEmpty());
    pass(1);
    EXPECT_EQ(lost_.size(), 4U);
  }
  // One worker pushes every 0.1 s, and every commit takes `commit_us` and all that was there when
  // it began, until somebody is lost: how long that took.
  Micros lost_beside_a_busy_one(Micros commit_us) {
    const Micros began = now_;
    Micros done_at = now_ + commit_us;
    Ticket writing = 0;
    for (Iteration k = 0; lost_.empty() && now_ < began + 3600 * kSecond; ++k) {
      push(0, k);
      if (k == 0) writing = store_.submitted.back().first;
      ask(0, wire::Begin{workers_[0], k + 1});
      pass(100 * kMs);
      if (now_ < done_at) continue;
      store_.report({std::exchange(writing, store_.submitted.back().first), "", 1, 1, 0});
      core_.end_turn();
      done_at = now_ + commit_us;
    }
    return now_ - began;
  }

  // Core::Host
  Micros now() const override { return now_ += clock_runs_us_; }
  void send(ConnectionId, RequestId id, wire::Body&& body) override {
    if (id != 0) answers_.push_back(std::move(body));
  }
  void start_plan(Plan&&) override {}
  void log(LogLine&& line) override {
    if (line.event.starts_with("store_")) store_said_.push_back(line);
    disconnected_ += line.event == "worker_disconnected" ? 1 : 0;
    if (line.event != "worker_lost") return;
    for (const auto& [key, value] : line.fields) {
      if (key == "worker" || key == "reason") lost_.push_back(value);
    }
  }

  mutable Micros now_ = kSecond;
  Micros clock_runs_us_ = 0;  // each time that it is read
  FakeStore store_;
  Core core_{options(), store_, *this};
  RequestId request_ = 0;
  std::vector<wire::WorkerRef> workers_;
  std::vector<wire::Body> answers_;
  std::vector<std::string> lost_;  // rank and reason in turn
  std::vector<LogLine> store_said_;
  std::size_t disconnected_ = 0;
};

// One connection may speak for any number of workers: what its end and then their loss take is done
// in slices, and who asks for something meanwhile is answered in between.
TEST_F(CoreWithAStore, ManyWorkersOfOneConnectionGoInSlices) {
  constexpr std::size_t kSlice = limits::kWorkersAtOnce;
  constexpr std::size_t kWorkers = 2 * kSlice + 10;
  for (std::size_t i = 0; i < kWorkers; ++i) {
    wire::Join join;
    join.job = "job";
    join.name = "w" + std::to_string(i);
    ask(0, join);
  }
  commit();
  core_.on_closed(1);
  EXPECT_EQ(disconnected_, kSlice);
  EXPECT_EQ(core_.next_deadline(), 0) << "at once";
  answers_.clear();
  ask(5, wire::JobsRequest{});
  EXPECT_EQ(answers_.size(), 1U);
  EXPECT_EQ(disconnected_, kSlice);
  core_.on_closed(6);  // of one that has no workers
  for (const std::size_t gone : {2 * kSlice, kWorkers, kWorkers}) {
    core_.fire_timers();
    EXPECT_EQ(disconnected_, gone);
    core_.end_turn();
  }
  EXPECT_GT(core_.next_deadline(), now_);

  now_ += 5 * kSecond;  // worker_grace
  clock_runs_us_ = limits::kTimersPieceUs / 10;
  for (std::size_t turns = 1; turns <= 2; ++turns) {
    core_.fire_timers();
    ask(5, wire::JobsRequest{});  // timers of this turn have had their part
    EXPECT_EQ(lost_.size(), 2 * 10 * turns);
  }
  clock_runs_us_ = 0;
  pass(0);
  EXPECT_EQ(lost_.size(), 2 * kWorkers);
}

// ---- releases in slices

constexpr std::size_t kSlice = 4;

// A core that answers four at a time, and a job of `workers` under bsp: rank r on the connection
// r % connections + 1. All but the last one have pushed, and wait in begin for its push.
class CoreInSlices : public ::testing::Test, protected Core::Host {
 protected:
  CoreInSlices() {
    store_.start([this](const store::CommitReport& report) { core_.report(report); });
  }

  void start_job(Rank workers, Rank connections) {
    connections_ = connections;
    wire::Join join;
    join.job = "job";
    join.policy = "bsp";
    join.world_size = workers;
    for (Rank rank = 0; rank < workers; ++rank) {
      join.name = "w" + std::to_string(rank);
      join.rank = static_cast<std::int32_t>(rank);
      ask(rank % connections + 1, join);
      workers_.push_back(std::get<wire::Joined>(sent_.back().body).worker);
    }
    for (Rank rank = 0; rank < workers; ++rank) begin(rank, 0);
    run();
    EXPECT_EQ(count<wire::Granted>(), workers);
    for (Rank rank = 0; rank + 1 < workers; ++rank) push(rank, 0);
    for (Rank rank = 0; rank + 1 < workers; ++rank) begin(rank, 1);
    run();
    sent_.clear();
  }
  RequestId ask(ConnectionId connection, wire::Body body) {
    core_.on_request({{connection, ++request_}, std::move(body)});
    core_.end_turn();
    store_.commit_all();
    core_.end_turn();
    return request_;
  }
  RequestId begin(Rank rank, Iteration k) {
    return ask(rank % connections_ + 1, wire::Begin{workers_[rank], k});
  }
  void push(Rank rank, Iteration k) {
    ask(rank % connections_ + 1, wire::Push{workers_[rank], k, {}, 1, 1});
  }
  // One turn, as a loop's timer makes it.
  void turn() {
    core_.fire_timers();
    core_.end_turn();
    store_.commit_all();
    core_.end_turn();
  }
  void run() {
    while (core_.next_deadline() == 0) turn();
  }
  template <class M>
  std::size_t count() const {
    return static_cast<std::size_t>(std::count_if(sent_.begin(), sent_.end(), [](const auto& one) {
      return std::holds_alternative<M>(one.body);
    }));
  }

  struct Sent {
    ConnectionId to;
    RequestId id;
    wire::Body body;
  };
  Micros now() const override { return kSecond; }
  void send(ConnectionId to, RequestId id, wire::Body&& body) override {
    sent_.push_back({to, id, std::move(body)});
  }
  void start_plan(Plan&&) override {}
  void log(LogLine&&) override {}

  FakeStore store_;
  Core core_{{}, store_, *this, kSlice};
  Rank connections_ = 1;
  RequestId request_ = 0;
  std::vector<wire::WorkerRef> workers_;
  std::vector<Sent> sent_;
};

TEST_F(CoreInSlices, ABarrierLetsAnotherClientsAnswerOutBetweenTwoSlices) {
  start_job(10, 5);
  push(9, 0);
  EXPECT_EQ(sent_.size(), kSlice) << "the push's own answer, and grants";
  EXPECT_EQ(core_.next_deadline(), 0) << "at once";
  EXPECT_FALSE(core_.idle());
  ask(77, wire::JobsRequest{});
  ASSERT_EQ(sent_.size(), kSlice + 1);
  EXPECT_EQ(sent_.back().to, 77U);
  turn();
  EXPECT_EQ(sent_.size(), 2 * kSlice + 1);
  turn();
  EXPECT_EQ(count<wire::Granted>(), 9U);
  EXPECT_TRUE(core_.idle());
  EXPECT_GT(core_.next_deadline(), 0);
}

TEST_F(CoreInSlices, ALaterAnswerStaysBehindThoseOfItsConnection) {
  start_job(10, 5);
  push(9, 0);
  // Ranks 0 to 2 have their grants: connection 1 waits for rank 5's, and 4 for two.
  const RequestId behind = ask(1, wire::JobsRequest{});
  const RequestId behind_too = ask(4, wire::JobsRequest{});
  EXPECT_EQ(sent_.size(), kSlice);
  run();
  EXPECT_EQ(sent_.size(), 12U);
  std::map<ConnectionId, std::vector<RequestId>> of;
  for (const Sent& one : sent_) of[one.to].push_back(one.id);
  EXPECT_EQ(of[1].back(), behind);
  EXPECT_EQ(of[4].back(), behind_too);
  for (const ConnectionId connection : {1U, 2U, 3U, 4U}) {
    EXPECT_TRUE(std::is_sorted(of[connection].begin(), of[connection].end())) << connection;
  }
}

TEST_F(CoreInSlices, AnEndedConnectionAndAShutdownInTheMiddleLoseNoOthersAnswer) {
  start_job(10, 5);
  push(9, 0);
  core_.on_closed(3);
  core_.shutdown("the test wants it");
  EXPECT_FALSE(core_.idle());
  const RequestId refused = ask(1, wire::JobsRequest{});
  EXPECT_EQ(sent_.size(), kSlice);
  run();
  EXPECT_EQ(count<wire::Granted>(), 9U) << "those to connection 3 are the host's to skip";
  EXPECT_EQ(sent_.back().id, refused);
  EXPECT_TRUE(core_.idle());
}

TEST_F(CoreInSlices, NoticesComeBehindTheAnswersOfTheirConnection) {
  start_job(10, 5);
  ask(77, wire::StopJobRequest{"job", "enough"});
  EXPECT_EQ(sent_.size(), kSlice);
  run();
  EXPECT_EQ(count<wire::Granted>(), 9U) << "who waits in begin hears of the end there";
  EXPECT_EQ(count<wire::Ok>(), 1U);
  EXPECT_GT(count<wire::StopNotice>(), 0U);
  const auto last =
      std::find_if(sent_.rbegin(), sent_.rend(), [](const Sent& one) { return one.to == 5; });
  ASSERT_NE(last, sent_.rend());
  EXPECT_TRUE(std::holds_alternative<wire::StopNotice>(last->body)) << "of rank 9, after rank 4's";
}

TEST_F(CoreInSlices, WhatIsLeftAtTheEndGoesOut) {
  start_job(10, 5);
  push(9, 0);
  core_.submit_rest();
  EXPECT_EQ(count<wire::Granted>(), 9U);
}

// ---- what a store has

TEST_F(CoreWithAStore, AJobThatCannotBeReadStopsNoOtherJobOfAClustersShard) {
  store_.stored.resize(2);
  for (JobId job : {1, 2}) {
    Record created;
    created.kind = RecordKind::kJobCreated;
    created.job = job;
    created.sequence = created.epoch = 1;
    created.name = job == 1 ? "newer" : "job";
    created.policy = job == 1 ? "of_a_later_version:3" : "asp";
    created.expected_workers = 2;
    store_.stored[job - 1].records = {created};
  }
  const auto clock = [](Micros) {};
  Core::Recovered recovered;
  std::string error;
  EXPECT_FALSE(Core(options(), store_, *this).recover(clock, recovered, error));
  EXPECT_THAT(error, AllOf(HasSubstr("job 'newer' (#1)"), HasSubstr("of_a_later_version")));

  store_.shared = true;
  std::vector<std::string> asked;
  recovered = {};
  ASSERT_TRUE(core_.recover(clock, recovered, error, nullptr, [&](const std::string& why) {
    asked.push_back(why);
  })) << error;
  EXPECT_THAT(asked, ElementsAre(HasSubstr("of_a_later_version")));
  EXPECT_EQ(recovered.unreadable, asked);
  wire::Join join;
  join.job = "newer";
  join.name = "w0";
  ask(0, join);
  ASSERT_TRUE(std::holds_alternative<wire::Error>(answers_.back()));
  EXPECT_EQ(std::get<wire::Error>(answers_.back()).status, Status::kStore);
  EXPECT_THAT(std::get<wire::Error>(answers_.back()).message, HasSubstr("of_a_later_version"));
  two_in_an_iteration();  // in job 2
}

// ---- a store that stands still

TEST_F(CoreWithAStore, WhoseAnswerWaitsForTheDiskIsNotLate) {
  two_in_an_iteration();
  push(0, 0);
  push(1, 0);
  answers_.clear();
  pass(60 * kSecond);
  EXPECT_THAT(lost_, IsEmpty());
  EXPECT_THAT(answers_, IsEmpty()) << "nothing is on the disk";
  commit();
  EXPECT_EQ(answers_.size(), 2U);
  expect_both_lost_in(9 * kSecond);  // from now on they could go on; 1 s is any disk's pace
  EXPECT_THAT(lost_, ElementsAre("0",
                                 AllOf(HasSubstr("for 10.0 s besides 59.0 s of the store's"),
                                       HasSubstr("evict_after is 10.0 s")),
                                 "1", HasSubstr("besides 59.0 s")));
}

TEST_F(CoreWithAStore, TheLogSaysThatTheDiskStandsStillAndThatItGoesOn) {
  two_in_an_iteration();
  push(0, 0);
  pass(4 * kSecond);
  push(1, 0);
  EXPECT_THAT(store_said_, IsEmpty());
  pass(60 * kSecond);
  ASSERT_EQ(store_said_.size(), 1U) << "once";
  EXPECT_EQ(store_said_[0].event, "store_stands_still");
  EXPECT_EQ(store_said_[0].level, LogLevel::kWarn);
  EXPECT_THAT(store_said_[0].fields, Contains(Pair("for", "5.0 s")));
  EXPECT_THAT(store_said_[0].fields, Contains(Pair("records", _)));
  commit();
  ASSERT_EQ(store_said_.size(), 2U);
  EXPECT_EQ(store_said_[1].event, "store_goes_on");
  EXPECT_THAT(store_said_[1].fields, Contains(Pair("after", "64.0 s")));
  push(0, 0);
  pass(6 * kSecond);
  EXPECT_EQ(store_said_.size(), 2U) << "a repeated push waits for nothing";
}

// A shorter one, in which nobody's deadline comes.
TEST_F(CoreWithAStore, AStandstillThatIsOverCountsToo) {
  two_in_an_iteration();
  push(0, 0);
  push(1, 0);
  pass(8 * kSecond);
  commit();
  expect_both_lost_in(9 * kSecond);
}

TEST_F(CoreWithAStore, ADiskThatIsFullMakesNobodyLate) {
  two_in_an_iteration();
  store_.fail("No space left on device");
  core_.end_turn();
  push(0, 0);
  EXPECT_EQ(std::get<wire::Error>(answers_.back()).status, Status::kStore);
  pass(60 * kSecond);
  EXPECT_THAT(lost_, IsEmpty());
  commit();
  expect_both_lost_in(9 * kSecond);
}

TEST_F(CoreWithAStore, NorIsAnybodyForAShorterTime) {
  two_in_an_iteration();
  store_.fail("No space left on device");
  core_.end_turn();
  pass(8 * kSecond);
  store_.report({0, "", 0, 0, 0});
  core_.end_turn();
  expect_both_lost_in(9 * kSecond);
}

TEST_F(CoreWithAStore, NorIsAPlaceGivenAwayMeanwhile) {
  two_in_an_iteration();
  push(0, 0);
  core_.on_closed(2);
  core_.end_turn();
  pass(60 * kSecond);
  EXPECT_THAT(lost_, IsEmpty());
  commit();
  pass(4 * kSecond);
  EXPECT_THAT(lost_, ElementsAre("1", AllOf(HasSubstr("disconnected for 5.0 s besides 59.0 s"),
                                            HasSubstr("worker_grace is 5.0 s"))));
}

// One that has died is given up although the disk stands still again and again.
TEST_F(CoreWithAStore, ADiskThatIsSlowNowAndThenSavesNobody) {
  two_in_an_iteration();
  const Micros silent_since = now_;
  for (Iteration k = 0; lost_.empty(); ++k) {
    ASSERT_LT(now_ - silent_since, 15 * kSecond);
    push(0, k);
    pass(2 * kSecond);  // it stands still
    commit();
    ask(0, wire::Begin{workers_[0], k + 1});
    commit();
    pass(3 * kSecond);
  }
  EXPECT_THAT(lost_, ElementsAre("1", HasSubstr("in iteration 0 for 10.0 s besides")));
}

// Answers wait for two commits then, the one that goes on and the next.
TEST_F(CoreWithAStore, ABusyDisksPaceDoesNotCount) {
  two_in_an_iteration();
  EXPECT_LE(lost_beside_a_busy_one(600 * kMs), 10 * kSecond);
  EXPECT_THAT(lost_, ElementsAre("1", "in iteration 0 for 10.0 s, evict_after is 10.0 s"));
}

TEST_F(CoreWithAStore, ADiskThatIsAlwaysSlowPutsALossOffAndDoesNotLiftIt) {
  two_in_an_iteration();
  const Micros took = lost_beside_a_busy_one(4 * kSecond);
  EXPECT_GT(took, 30 * kSecond);
  EXPECT_LE(took, 41 * kSecond);
}

// Nor what was before the silence.
TEST_F(CoreWithAStore, AStandstillBeforeAWorkersLastSignIsNoExcuse) {
  two_in_an_iteration();
  push(0, 0);
  pass(8 * kSecond);
  commit();
  for (const Rank rank : {0U, 1U}) {
    if (rank == 1) push(rank, 0);
    ask(rank, wire::Begin{workers_[rank], 1});
  }
  commit();
  expect_both_lost_in(10 * kSecond);
  EXPECT_THAT(lost_, ElementsAre("0", "in iteration 1 for 10.0 s, evict_after is 10.0 s", "1",
                                 "in iteration 1 for 10.0 s, evict_after is 10.0 s"));
}

// What every commit takes is nobody's excuse.
TEST_F(CoreWithAStore, ADisksUsualPaceDoesNotCount) {
  two_in_an_iteration();
  for (int i = 0; i < 10; ++i) {
    push(0, i);
    pass(50 * kMs);
    commit();
    ask(0, wire::Begin{workers_[0], i + 1});
    commit();
    pass(950 * kMs);
  }
  EXPECT_THAT(lost_, ElementsAre("1", "in iteration 0 for 10.0 s, evict_after is 10.0 s"));
}

}  // namespace
}  // namespace syncd::server
