// The simulated network and processes: exact results where they can be worked out by hand.
#include "daemon/tools/sim/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "tests/unit/sim/checker.h"

namespace syncd::sim {
namespace {

using test::run_checked;
using testing::HasSubstr;

constexpr Micros kSecond = 1'000'000;

Options options(const std::string& policy, std::uint32_t workers = 4, Micros duration_s = 100) {
  Options options;
  options.policy = policy;
  options.workers = workers;
  options.duration_us = duration_s * kSecond;
  return options;
}

TEST(Simulation, ConstantTimesUnderBspAreExact) {
  const Result result = run_checked(options("bsp"));
  EXPECT_EQ(result.iterations, 400U);
  EXPECT_EQ(result.iterations_of, (std::vector<std::uint64_t>{100, 100, 100, 100}));
  EXPECT_DOUBLE_EQ(result.iterations_per_s_per_worker, 1);
  EXPECT_DOUBLE_EQ(result.waiting_share, 0);
  EXPECT_EQ(result.barriers, 100U);
  EXPECT_EQ(result.staleness_max, 0);
  EXPECT_DOUBLE_EQ(result.missed_updates_mean, 1.5);  // 0, 1, 2 and 3 push in this order
  EXPECT_DOUBLE_EQ(result.virtual_s, 100);
}

TEST(Simulation, OneSlowWorkerSetsThePaceOfBspAndNotOfAsp) {
  Options slow = options("bsp");
  slow.slowdown.fixed = {{3, 4.0}};
  const Result bsp = run_checked(slow);
  EXPECT_EQ(bsp.iterations, 4 * 25U);
  EXPECT_DOUBLE_EQ(bsp.waiting_share, 3 * 75 / 400.0);
  slow.policy = "asp";
  const Result asp = run_checked(slow);
  EXPECT_EQ(asp.iterations_of, (std::vector<std::uint64_t>{100, 100, 100, 25}));
  EXPECT_DOUBLE_EQ(asp.waiting_share, 0);
  slow.policy = "ssp:3";
  const Result ssp = run_checked(slow);
  EXPECT_EQ(ssp.iterations_of, (std::vector<std::uint64_t>{28, 28, 28, 25}));
  EXPECT_EQ(ssp.staleness_max, 3);
}

TEST(Simulation, MessagesTakeTheirTime) {
  // Joining takes two ways, an iteration two for begin and two for push.
  Options far = options("asp", 1, 10);
  far.delay_us = 100'000;
  const Result result = run_checked(far);
  EXPECT_EQ(result.iterations, 7U);  // (10 - 0.2) / 1.4; the push counts once it is there
  EXPECT_NEAR(result.waiting_share, 0.2 * 7 / 10, 1e-9);
}

TEST(Simulation, TheServersLinkIsSharedByAllWhoPullAndPush) {
  Options linked = options("asp", 1, 30);
  linked.transfer_us = 250'000;
  Result result = run_checked(linked);
  // It pulls once, since nobody else changes anything; then 1 s and 0.25 s each.
  EXPECT_EQ(result.iterations, 23U);
  EXPECT_NEAR(result.transferring_share, 0.25 * 24 / 30, 1e-9);
  EXPECT_EQ(result.transfers, 25U);  // the last one has just begun
  // Four at once take 1 s to pull and 1 s to push.
  linked = options("bsp", 4, 30);
  linked.transfer_us = 250'000;
  result = run_checked(linked);
  EXPECT_EQ(result.iterations_of, (std::vector<std::uint64_t>{10, 10, 10, 10}));
  EXPECT_NEAR(result.transferring_share, 2.0 / 3, 1e-9);
  EXPECT_DOUBLE_EQ(result.waiting_share, 0);
  // One who comes later slows the others down from then on: 0.1 s alone, 0.3 s by two.
  linked = options("asp", 2);
  linked.transfer_us = 250'000;
  linked.slowdown.fixed = {{1, 1.1}};
  const auto pushed_by = [&](Micros us) {
    linked.duration_us = us;
    return Simulation(linked).run().iterations_of;
  };
  // Both pull until 0.5 s; worker 0 pushes from 1.5 s to 1.9 s, worker 1 from 1.6 s to 2.0 s.
  EXPECT_EQ(pushed_by(1'899'999), (std::vector<std::uint64_t>{0, 0}));
  EXPECT_EQ(pushed_by(1'900'000), (std::vector<std::uint64_t>{1, 0}));
}

TEST(Simulation, AWorkerThatFailsHasNoPartInTheLinkAnyMore) {
  Options failing = options("asp", 2);
  failing.transfer_us = kSecond;
  failing.events = {{250'000, TimedEvent::Kind::kFail, 1, {}}};
  // Half the link for 0.25 s, then all of it for 0.875 s; computing, and 1 s to push.
  failing.duration_us = 3'124'000;
  EXPECT_EQ(Simulation(failing).run().iterations, 0U);
  failing.duration_us = 3'125'000;
  EXPECT_EQ(Simulation(failing).run().iterations, 1U);
}

TEST(Simulation, WithoutAServerEachWorkersLinkSendsToOneNeighbourAfterAnother) {
  for (const char* policy : {"hop:ring", "hop:ring,max_ig=3", "notify_ack:ring"}) {
    for (const bool serial : {false, true}) {
      Options linked = options(policy, 4, 30);
      linked.transfer_us = 250'000;
      linked.serial = serial;
      const Result result = run_checked(linked);
      EXPECT_EQ(result.iterations_of, (std::vector<std::uint64_t>{20, 20, 20, 20})) << policy;
      EXPECT_NEAR(result.transferring_share, 0.5 / 1.5, 0.01);
      EXPECT_EQ(result.missing_updates + result.overwritten_updates, 0U);
    }
  }
}

// Where the parameters are still on their way, nothing was computed in vain.
TEST(Simulation, AResyncDuringAPullPullsAgain) {
  Options pulling = options("specsync:fixed,300,0.2+asp", 6);
  pulling.transfer_us = 200'000;
  std::string error;
  pulling.iteration_time = *parse_iteration_time("uniform_each:500-1500", error);
  const Result result = run_checked(pulling);
  EXPECT_GT(result.restarts, 10U);
  EXPECT_EQ(result.resyncs, result.restarts);
  EXPECT_LT(result.wasted_share, 0.3 * 0.3 * static_cast<double>(result.restarts) / 600);
  EXPECT_GT(result.transfers, result.iterations + result.restarts);
}

TEST(Simulation, SameOptionsGiveTheSameRunByteForByte) {
  Options random = options("ssp:2", 8);
  std::string error;
  random.iteration_time = *parse_iteration_time("lognormal:300,0.5", error);
  random.slowdown = *parse_slowdown("random:6x@1/n", error);
  random.delay_us = 1500;
  random.events = {{20 * kSecond, TimedEvent::Kind::kFail, 2, {}},
                   {50 * kSecond, TimedEvent::Kind::kJoin, 2, {}},
                   {60 * kSecond, TimedEvent::Kind::kSwitch, 0, "bsp:3"}};
  const auto run = [&](std::uint64_t seed) {
    test::Checker checker(random.policy);
    Options observed = random;
    observed.seed = seed;
    observed.observer = &checker;
    const Result result = Simulation(observed).run();
    EXPECT_THAT(checker.breaches(result), testing::IsEmpty());
    return std::pair(checker.digest(), result.iterations_of);
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1).first, run(2).first);
}

TEST(Simulation, AnObserverChangesNothing) {
  Options random = options("bsp:2,backup=1", 5);
  std::string error;
  random.iteration_time = *parse_iteration_time("uniform_each:100-500", error);
  const Result bare = Simulation(random).run();
  const Result seen = run_checked(random);
  EXPECT_EQ(bare.iterations_of, seen.iterations_of);
  EXPECT_EQ(bare.engine_events, seen.engine_events);
  EXPECT_EQ(bare.waiting_share, seen.waiting_share);
}

TEST(Simulation, LateAndSkippedIterationsAreReportedApart) {
  Options slow = options("bsp,backup=1", 4);
  slow.slowdown.fixed = {{3, 4.0}};
  const Result result = run_checked(slow);
  EXPECT_EQ(result.iterations_of[0], 100U);
  EXPECT_GT(result.late_pushes, 20U);
  EXPECT_NEAR(result.wasted_share, 0.25 * static_cast<double>(result.late_pushes) * 4 / 100, 1e-9);
  EXPECT_GT(result.skipped_per_s_per_worker, 0.1);
}

TEST(Simulation, AFailedWorkerHoldsTheOthersForItsGraceOnly) {
  Options failing = options("bsp", 4);
  failing.worker_grace_us = 5 * kSecond;
  failing.events = {{10 * kSecond + 500'000, TimedEvent::Kind::kFail, 1, {}}};
  const Result result = run_checked(failing);
  EXPECT_EQ(result.iterations_of[1], 10U);
  // 11 by 11 s, then on from 15.5 s.
  EXPECT_EQ(result.iterations_of[0], 11U + 84U);
  EXPECT_EQ(result.longest_wait_us, 4'500'000);
  EXPECT_NEAR(result.iterations_per_s_per_worker, (95 * 3 + 10) / 310.5, 1e-9);
}

TEST(Simulation, ALeavingWorkerHoldsNobody) {
  Options leaving = options("bsp", 4);
  leaving.events = {{10 * kSecond + 500'000, TimedEvent::Kind::kLeave, 1, {}}};
  EXPECT_EQ(run_checked(leaving).iterations_of, (std::vector<std::uint64_t>{100, 10, 100, 100}));
}

TEST(Simulation, WorkersComeBackAndNewOnesEnter) {
  Options changing = options("asp", 2);
  changing.worker_grace_us = kSecond;
  changing.events = {{10 * kSecond, TimedEvent::Kind::kFail, 1, {}},
                     {20 * kSecond, TimedEvent::Kind::kJoin, 1, {}},
                     {30 * kSecond, TimedEvent::Kind::kJoin, 2, {}}};
  const Result result = run_checked(changing);
  EXPECT_EQ(result.iterations_of[0], 100U);
  EXPECT_EQ(result.iterations_of[1], 9U + 80U);  // the tenth was cut off
  EXPECT_EQ(result.iterations_of[2], 70U);
}

TEST(Simulation, ANewWorkerGetsNeighboursAndLosesThem) {
  Options joining = options("hop:complete,max_ig=2", 4);
  joining.slowdown.fixed = {{4, 5.0}};
  joining.worker_grace_us = kSecond;
  joining.events = {{20 * kSecond, TimedEvent::Kind::kJoin, 4, {}},
                    {60 * kSecond, TimedEvent::Kind::kFail, 4, {}}};
  const Result result = run_checked(joining);
  // 20 s at full pace, 40 s at a fifth of it, and the rest at full pace again.
  for (Rank rank = 0; rank < 4; ++rank) {
    EXPECT_NEAR(static_cast<double>(result.iterations_of[rank]), 20 + 8 + 39, 3);
  }
  EXPECT_NEAR(static_cast<double>(result.iterations_of[4]), 8, 1);
}

TEST(Simulation, ASwitchChangesThePolicyOnTheWay) {
  Options switching = options("asp", 2);
  switching.slowdown.fixed = {{1, 10.0}};
  switching.events = {{50 * kSecond, TimedEvent::Kind::kSwitch, 0, "bsp"}};
  const Result result = run_checked(switching);
  EXPECT_GE(result.iterations_of[0], 54U);
  EXPECT_LE(result.iterations_of[0], 56U);
}

TEST(Simulation, NotifyAckComputesSoManyBatchesBeforeEveryExchange) {
  Options every = options("notify_ack:ring,every=4");
  Result result = run_checked(every);
  EXPECT_EQ(result.batches_per_iteration, 4);
  EXPECT_EQ(result.iterations_of, (std::vector<std::uint64_t>{25, 25, 25, 25}));
  // A time is drawn for each batch: the run of one worker, who waits for nobody, is their sum.
  every.workers = 1;
  std::string error;
  every.iteration_time = *parse_iteration_time("uniform_each:500-1500", error);
  const Durations durations(every.iteration_time, {}, every.seed, 1);
  std::uint64_t whole = 0;
  Micros sum = 0;
  for (Iteration batch = 0; sum <= every.duration_us; ++batch) {
    if (batch > 0 && batch % 4 == 0) ++whole;
    sum += durations(0, batch);
  }
  EXPECT_GT(whole, 20U);
  EXPECT_EQ(run_checked(every).iterations, whole);
  // More than fit into the run are no work to add up.
  every.policy = "notify_ack:complete,every=1000000000";
  every.workers = 3;
  result = Simulation(every).run();
  EXPECT_EQ(result.iterations, 0U);
  EXPECT_FALSE(result.stalled);
}

// Worker 0 sends to 1, then to 2, and so on: 100 ms each, while it goes on.
TEST(Simulation, UnsafeBaselinesTearAndMissUpdates) {
  Options posts = options("barrier:complete", 3, 10);
  posts.transfer_us = 100'000;
  Result result = Simulation(posts).run();
  // All reduce when all have posted: of first neighbours a half, of second ones nothing.
  EXPECT_EQ(result.reduces, 30U);
  EXPECT_EQ(result.reduces_of, (std::vector<std::uint64_t>{30}));
  EXPECT_EQ(result.torn_updates, 30U);
  EXPECT_EQ(result.missing_updates, 30U);
  // They wait for worker 0, whose own update comes too late.
  posts.slowdown.fixed = {{0, 1.25}};
  result = Simulation(posts).run();
  EXPECT_EQ(result.reduces_of, (std::vector<std::uint64_t>{0, 16, 8}));
  EXPECT_EQ(result.whole_updates, 32U);
  EXPECT_EQ(result.torn_updates, 8U);
  EXPECT_EQ(result.missing_updates, 8U);
  EXPECT_EQ(result.transferring_share, 0);
  // Without a link nothing is on its way.
  posts.transfer_us = 0;
  result = Simulation(posts).run();
  EXPECT_EQ(result.whole_updates, 48U);
  EXPECT_EQ(result.torn_updates + result.missing_updates, 0U);
  // Nobody waits for worker 0: once each of the others finds nothing new of it.
  posts.policy = "async:complete";
  result = Simulation(posts).run();
  EXPECT_EQ(result.iterations_of, (std::vector<std::uint64_t>{8, 10, 10}));
  EXPECT_EQ(result.waiting_share, 0);
  EXPECT_EQ(result.torn_updates, 0U);
  EXPECT_EQ(result.missing_updates, 2U);
  // A link that is slower than the workers holds them up: it carries one update at a time.
  posts.slowdown.fixed.clear();
  posts.transfer_us = kSecond;
  result = Simulation(posts).run();
  EXPECT_EQ(result.iterations_of, (std::vector<std::uint64_t>{6, 6, 6}));
  EXPECT_GT(result.transferring_share, 0.3);
}

// Who sends to whom.
class Edges final : public Observer {
 public:
  void after_event(Simulation&, const Event*, const Effects&) override {}
  void after_data(Simulation&, Rank from, Rank to, Iteration) override { seen.insert({from, to}); }
  std::set<std::pair<Rank, Rank>> seen;
};

TEST(Simulation, WorkersAreSpreadOverHostsInBlocks) {
  const auto edges = [](const char* hosts, std::uint32_t workers) {
    Options spread = options("hop:clustered", workers, 5);
    std::string error;
    if (*hosts != '\0') spread.host_sizes = *parse_hosts(hosts, workers, error);
    Edges found;
    spread.observer = &found;
    EXPECT_THAT(Simulation(spread).run().refused, testing::IsEmpty());
    return found.seen;
  };
  const auto both_ways = [](std::set<std::pair<Rank, Rank>> some) {
    for (const auto& [a, b] : std::set(some)) some.insert({b, a});
    return some;
  };
  // Complete within a host, and a ring of the hosts' lowest ranks.
  EXPECT_EQ(edges("2", 6), both_ways({{0, 1}, {0, 2}, {1, 2}, {3, 4}, {3, 5}, {4, 5}, {0, 3}}));
  EXPECT_EQ(edges("3", 5), both_ways({{0, 1}, {2, 3}, {0, 2}, {2, 4}, {4, 0}}));
  EXPECT_EQ(edges("1", 4), both_ways({{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}));
  EXPECT_EQ(edges("", 4), both_ways({{0, 1}, {1, 2}, {2, 3}, {3, 0}}));
  EXPECT_EQ(edges("4", 4), edges("", 4));
  EXPECT_EQ(edges("1,3", 4), both_ways({{1, 2}, {1, 3}, {2, 3}, {0, 1}}));
}

TEST(Simulation, AWorkerThatJoinsLaterIsOnAHostThatIsThere) {
  Options joining = options("hop:clustered", 4, 40);
  joining.host_sizes = {2, 2};
  joining.events = {{20 * kSecond, TimedEvent::Kind::kJoin, 4, {}}};
  Edges edges;
  joining.observer = &edges;
  EXPECT_THAT(Simulation(joining).run().refused, testing::IsEmpty());
  EXPECT_TRUE(edges.seen.contains({4, 1}));
  EXPECT_FALSE(edges.seen.contains({4, 2}));
  EXPECT_FALSE(edges.seen.contains({4, 3}));
}

TEST(Simulation, BarriersAreCountedWhateverThePolicyIsCalled) {
  EXPECT_EQ(run_checked(options("bsp:3")).barriers, 33U);
  EXPECT_EQ(run_checked(options("bsp:2,backup=1")).barriers, 50U);
  EXPECT_EQ(run_checked(options("ssp:0")).barriers, 0U);
  // An iteration takes 1.25 s in all; each barrier counts when the last worker comes to it.
  EXPECT_EQ(run_checked(options("naive_wait:250+bsp")).barriers, 80U);
  EXPECT_EQ(run_checked(options("naive_wait:250+bsp:2")).barriers, 40U);
  EXPECT_EQ(run_checked(options("naive_wait:50+bsp")).barriers, 95U);
}

TEST(Simulation, BarriersOfEveryPolicyAreCountedAcrossSwitches) {
  const auto barriers_until = [](Micros seconds) {
    Options switching = options("ssp:3", 4, seconds);
    switching.events = {
        {20 * kSecond + 500'000, TimedEvent::Kind::kSwitch, 0, "bsp"},
        {50 * kSecond + 500'000, TimedEvent::Kind::kSwitch, 0, "elastic_bsp:5"},
        {80 * kSecond + 500'000, TimedEvent::Kind::kSwitch, 0, "naive_wait:0+bsp:2"}};
    return run_checked(switching).barriers;
  };
  EXPECT_EQ(barriers_until(20), 0U);
  EXPECT_EQ(barriers_until(50), 30U);   // one a second
  EXPECT_EQ(barriers_until(80), 40U);   // two iterations to look at, and one planned
  EXPECT_EQ(barriers_until(100), 50U);  // one every other second
}

TEST(Simulation, AStallSaysWhoWaitsForWhom) {
  // Before the job has started nobody is given up, and one of the four never gets ready.
  Options stalled = options("bsp", 4);
  stalled.events = {{0, TimedEvent::Kind::kLeave, 1, {}}};
  const Result result = Simulation(stalled).run();
  EXPECT_TRUE(result.stalled);
  ASSERT_EQ(result.waits.size(), 3U);
  EXPECT_EQ(result.waits[0].rank, 0U);
  EXPECT_THAT(result.waits[0].text, HasSubstr("worker 0 waits in begin(0): start: "));
  EXPECT_EQ(result.iterations, 0U);
}

TEST(Simulation, AJobWhoseWorkersHaveLeftIsOverAndNotStalled) {
  Options over = options("bsp", 2);
  over.events = {{10 * kSecond, TimedEvent::Kind::kLeave, 0, {}},
                 {10 * kSecond, TimedEvent::Kind::kLeave, 1, {}}};
  const Result result = run_checked(over);
  EXPECT_FALSE(result.stalled);
  EXPECT_NEAR(result.iterations_per_s_per_worker, 0.9, 0.11);
}

TEST(Simulation, NaiveWaitDelaysEveryGrant) {
  const Result result = run_checked(options("naive_wait:250+asp", 3));
  EXPECT_EQ(result.iterations_of[0], 80U);
  EXPECT_NEAR(result.waiting_share, 0.2, 1e-9);
}

// Worker 1 pushes within every iteration of worker 0, or the other way round: once in most
// iterations somebody is told to start over, half a second after its pull.
TEST(Simulation, RestartsAfterAResyncTakeTheWholeIterationAgain) {
  Options speculating = options("specsync:fixed,500,0.4+asp", 2);
  speculating.slowdown.fixed = {{1, 1.3}};
  const Result result = run_checked(speculating);
  EXPECT_GT(result.restarts, 20U);
  EXPECT_EQ(result.resyncs, result.restarts);
  EXPECT_NEAR(result.wasted_share, static_cast<double>(result.restarts) * 0.5 / 200, 1e-9);
  EXPECT_DOUBLE_EQ(result.waiting_share, 0);
  // What was thrown away is what the two lack.
  const double computed = static_cast<double>(result.iterations_of[0]) +
                          1.3 * static_cast<double>(result.iterations_of[1]);
  EXPECT_NEAR(computed + 0.5 * static_cast<double>(result.restarts), 200, 2.4);
  // The worker that starts over does so because of the other's one push.
  EXPECT_EQ(result.updates_per_restart_mean, 1);
  EXPECT_TRUE(result.speculates);
  // The timers see less than all, and save some of the others' pushes.
  speculating.policy = "asp";
  EXPECT_LT(result.missed_updates_mean, run_checked(speculating).missed_updates_mean);
}

TEST(Simulation, SpeculationIsKnownAlsoIfItComesByASwitch) {
  Options later = options("asp", 3);
  Result result = run_checked(later);
  EXPECT_FALSE(result.speculates);
  EXPECT_FALSE(result.updates_per_restart_mean);
  later.slowdown.fixed = {{1, 1.3}, {2, 1.7}};
  later.events = {{50 * kSecond, TimedEvent::Kind::kSwitch, 0, "specsync:fixed,500,0.5+asp"}};
  result = run_checked(later);
  EXPECT_TRUE(result.speculates);
  EXPECT_GT(result.restarts, 0U);
  EXPECT_EQ(result.updates_per_restart_mean, 2) << "more than half of the three, and all others";
}

TEST(Simulation, AResyncThatComesTooLateIsNotFollowed) {
  // Worker 0 computes until 1100 ms after its grant left: its push and the advice cross.
  Options late = options("specsync:fixed,1100,0.4+asp", 2);
  late.delay_us = 100'000;
  late.slowdown.fixed = {{1, 1.3}};
  const Result result = run_checked(late);
  EXPECT_GT(result.resyncs, 10U);
  EXPECT_LT(result.restarts, result.resyncs);
}

TEST(Simulation, OptionsThatMakeNoSenseAreNamed) {
  const auto error_of = [](auto change) {
    Options bad;
    change(bad);
    const std::string error = check_options(bad);
    std::string said;
    EXPECT_FALSE(simulate(bad, said));
    EXPECT_EQ(said, error);
    return error;
  };
  EXPECT_EQ(check_options(Options{}), "");
  EXPECT_THAT(error_of([](Options& o) { o.workers = 0; }), HasSubstr("number of workers is 0"));
  EXPECT_EQ(error_of([](Options& o) {
              o.host_sizes = {9, 8};
            }),
            "the hosts have 9 + 8 workers in all, and the job has 16");
  EXPECT_THAT(error_of([](Options& o) { o.transfer_us = -1; }), HasSubstr("a transfer is"));
  EXPECT_THAT(error_of([](Options& o) { o.policy = "ssp:x"; }), HasSubstr("'ssp:x'"));
  EXPECT_THAT(error_of([](Options& o) { o.policy = "bsp,backup=16"; }), HasSubstr("backup"));
  EXPECT_THAT(error_of([](Options& o) { o.duration_us = 0; }), HasSubstr("duration"));
  EXPECT_THAT(error_of([](Options& o) { o.delay_us = -1; }), HasSubstr("delay"));
  EXPECT_THAT(error_of([](Options& o) { o.serial = true; }), HasSubstr("order"));
  EXPECT_THAT(error_of([](Options& o) {
                o.slowdown.fixed = {{16, 2.0}};
              }),
              HasSubstr("there is no worker 16; allowed: 0 to 15"));
  const auto with = [&](std::vector<TimedEvent> events) {
    return error_of([&](Options& o) { o.events = events; });
  };
  EXPECT_THAT(with({{kSecond, TimedEvent::Kind::kFail, 16, {}}}), HasSubstr("16 is not there"));
  EXPECT_THAT(with({{kSecond, TimedEvent::Kind::kJoin, 3, {}}}), HasSubstr("is there already"));
  EXPECT_THAT(with({{kSecond, TimedEvent::Kind::kJoin, 18, {}}}), HasSubstr("before worker 16"));
  EXPECT_THAT(with({{kSecond, TimedEvent::Kind::kSwitch, 0, "nothing"}}), HasSubstr("'nothing'"));
  EXPECT_THAT(with({{-kSecond, TimedEvent::Kind::kFail, 1, {}}}), HasSubstr("time of an event"));
}

TEST(Simulation, ARefusedSwitchIsReported) {
  Options refused = options("asp", 2, 10);
  refused.events = {{kSecond, TimedEvent::Kind::kSwitch, 0, "hop:complete"}};
  const Result result = Simulation(refused).run();
  ASSERT_EQ(result.refused.size(), 1U);
  EXPECT_THAT(result.refused[0], HasSubstr("cannot go from policy 'asp'"));
}

}  // namespace
}  // namespace syncd::sim
