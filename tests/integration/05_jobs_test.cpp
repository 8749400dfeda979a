// Whole jobs of real worker processes, and what their history says afterwards.
#include <gmock/gmock.h>

#include <numeric>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/history.h"
#include "support/raw_client.h"
#include "support/workers.h"

namespace syncd::test {
namespace {

std::vector<std::int64_t> first_iterations(std::int64_t count) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

class WholeJob : public ::testing::TestWithParam<std::string> {};

TEST_P(WholeJob, SixteenProcessesFinishAndEachPushIsInTheHistoryOnce) {
  TempDir directory;
  Daemon daemon(directory);
  WorkerGroup workers(directory, {.address = daemon.address(),
                                  .policy = GetParam(),
                                  .iterations = 25,
                                  // One is slower than the others, so that the policy has to act.
                                  .special = {{3, {{"iteration_ms", "8"}}}}});
  workers.expect_all_finish();
  const History history = export_history(directory, daemon, "job");
  expect_exactly_once(history, workers);
  for (int rank = 0; rank < workers.size(); ++rank) {
    EXPECT_EQ(workers.acknowledged(rank), first_iterations(25));
    EXPECT_EQ(history.pushes(rank), first_iterations(25)) << "worker " << rank;
  }
  EXPECT_EQ(history.of_kind("worker_joined").size(), 16U);
  EXPECT_EQ(history.of_kind("worker_left").size(), 16U);
  EXPECT_TRUE(history.of_kind("worker_lost").empty());
  EXPECT_EQ(history.of_kind("job_started").size(), 1U);
  EXPECT_EQ(history.of_kind("job_stopped").size(), 1U);
  // The store says the same when the daemon is down.
  EXPECT_EQ(daemon.stop(), exited(0));
  EXPECT_EQ(export_store(directory, daemon, "job").rows, history.rows);
}

INSTANTIATE_TEST_SUITE_P(Policies, WholeJob, ::testing::Values("bsp", "ssp:3", "asp"),
                         [](const auto& made) { return made.param.substr(0, 3); });

// A job that is stuck and one that breaks off do not hold up a third one.
TEST(SeveralJobs, DoNotDisturbOneAnother) {
  TempDir directory;
  Daemon daemon(directory);
  const std::string release = directory.file("release");
  WorkerGroup stuck(directory, {.address = daemon.address(),
                                .job = "stuck",
                                .policy = "bsp",
                                .workers = 3,
                                .iterations = 4,
                                .special = {{0, {{"hold_at", "2"}, {"hold_file", release}}}}});
  stuck.wait_for_line(0, "holding 2");
  WorkerGroup broken(directory, {.address = daemon.address(),
                                 .job = "broken",
                                 .policy = "bsp",
                                 .workers = 2,
                                 .iterations = 1'000'000});
  broken.wait_for_line(1, "pushed 3");
  broken.process(0).kill();
  WorkerGroup good(directory, {.address = daemon.address(),
                               .job = "good",
                               .policy = "ssp:3",
                               .workers = 4,
                               .iterations = 50});
  good.expect_all_finish();
  EXPECT_FALSE(stuck.has_line(1, "pushed 3")) << "it waits for the one that is held";
  write_file(release, "");
  stuck.expect_all_finish();

  const RunResult stopped = syncctl(directory, daemon, {"job", "stop", "broken"});
  EXPECT_EQ(stopped.ending, exited(0)) << stopped.err;
  broken.expect_all_finish({0});
  EXPECT_TRUE(broken.has_line(1, "stopped"));

  for (const WorkerGroup* group : {&stuck, &good}) {
    const History history = export_history(directory, daemon, group->options().job);
    expect_exactly_once(history, *group);
    EXPECT_EQ(history.of_kind("push").size(),
              static_cast<std::size_t>(group->size() * group->options().iterations));
  }
  expect_exactly_once(export_history(directory, daemon, "broken"), broken);
}

TEST(OneConnection, ServesManyWorkers) {
  constexpr int kWorkers = 300;
  constexpr int kIterations = 5;
  TempDir directory;
  Daemon daemon(directory, {.tcp = "127.0.0.1:0"});
  RawClient client = greeted(daemon.tcp_address());
  std::vector<RawWorker> workers;
  for (int rank = 0; rank < kWorkers; ++rank) {
    workers.emplace_back(client, join_of("many", rank, kWorkers, "bsp"));
  }
  for (std::int64_t iteration = 0; iteration < kIterations; ++iteration) {
    std::vector<std::uint64_t> begins, pushes;
    for (const RawWorker& worker : workers) {
      begins.push_back(client.send(wire::Begin{worker.ref(), iteration}));
    }
    for (const std::uint64_t id : begins) {
      ASSERT_EQ(RawClient::as<wire::Granted>(client.answer(id)).iteration, iteration);
    }
    for (const RawWorker& worker : workers) {
      pushes.push_back(client.send(worker.push_body(iteration)));
    }
    for (const std::uint64_t id : pushes) {
      ASSERT_EQ(RawClient::as<wire::Pushed>(client.answer(id)).iteration, iteration);
    }
  }
  const History history = export_history(directory, daemon, "many");
  for (int rank = 0; rank < kWorkers; ++rank) {
    EXPECT_EQ(history.pushes(rank), first_iterations(kIterations)) << "worker " << rank;
  }
}

// A freed worker's name is free for the next join of the same client, at once and every time.
TEST(Jobs, AWorkerThatWasFreedCanBeJoinedAgainAtOnce) {
  TempDir directory;
  Daemon daemon(directory, {.store = "memory"});
  ApiClient client(daemon.address());
  for (std::int64_t round = 0; round < 50; ++round) {
    ApiWorker worker;
    const Answer joined = client.try_join({.name = "worker", .host = "host"}, worker);
    ASSERT_TRUE(joined.ok()) << "round " << round << ": " << joined.text();
    const Answer iterated = worker.iterate(1);
    ASSERT_TRUE(iterated.ok()) << "round " << round << ": " << iterated.text();
  }
}

}  // namespace
}  // namespace syncd::test
