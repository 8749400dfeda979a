// syncctl simulate: what its options mean, what it prints, and how it complains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "daemon/core/policies/registry.h"
#include "daemon/tools/ctl/commands.h"
#include "daemon/tools/ctl/simulate.h"
#include "daemon/tools/ctl/table.h"

namespace syncd::ctl {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

SimulateQuery query(const std::string& policy) {
  SimulateQuery query;
  query.workers = 4;
  query.duration_s = 20;
  query.policy = policy;
  return query;
}

auto answer_of(const SimulateQuery& query) {
  std::string error;
  auto answer = answer_simulate(query, error);
  if (!answer) throw std::runtime_error(error);
  return answer;
}

std::string error_of(const SimulateQuery& query) {
  std::string error;
  EXPECT_FALSE(answer_simulate(query, error));
  return error;
}

TEST(SplitPolicyList, SplitsWhereAPolicyBegins) {
  EXPECT_THAT(split_policy_list("asp"), ElementsAre("asp"));
  EXPECT_THAT(split_policy_list("bsp:5,backup=2,asp,ssp:3"),
              ElementsAre("bsp:5,backup=2", "asp", "ssp:3"));
  EXPECT_THAT(split_policy_list("hop:ring_based,max_ig=5,backup=1,notify_ack:root_expander,"
                                "naive_wait:5+bsp:2,backup=1,bsp"),
              ElementsAre("hop:ring_based,max_ig=5,backup=1", "notify_ack:root_expander",
                          "naive_wait:5+bsp:2,backup=1", "bsp"));
  EXPECT_THAT(split_policy_list("nothing,asp"), ElementsAre("nothing", "asp"));
  EXPECT_THAT(split_policy_list(""), ElementsAre(""));
}

TEST(Simulate, JsonHasTheseKeysInThisOrder) {
  SimulateQuery two = query("");
  two.compare = "bsp,asp";
  const auto answer = answer_of(two);
  nlohmann::ordered_json json = simulate_json(*answer);
  ASSERT_EQ(json["policies"].size(), 2U);
  EXPECT_EQ(json["policies"][1]["policy"], "asp");
  json["policies"].erase(1);
  EXPECT_EQ(json.dump(),
            R"({"workers":4,"seed":1,"virtual_s":20.0,"policies":[)"
            R"({"policy":"bsp","iterations_per_s_per_worker":1.0,"waiting_share":0.0,)"
            R"("transferring_share":0.0,"transfers":164,)"
            R"("staleness_mean":0.0,"staleness_max":0,"barriers":20,"resyncs":0,"restarts":0,)"
            R"("wasted_share":0.0,"skipped_per_s_per_worker":0.0,"predicted_wait_ms_mean":null,)"
            R"("actual_wait_ms_mean":null}]})");
}

TEST(Simulate, TheTableNamesEveryPolicy) {
  SimulateQuery two = query("");
  two.compare = "bsp,ssp:3";
  std::ostringstream out;
  std::ostringstream err;
  EXPECT_EQ(run_simulate(two, out, err), kExitOk);
  EXPECT_THAT(out.str(), HasSubstr("4 workers, 20.0 s of virtual time, seed 1"));
  EXPECT_THAT(out.str(), HasSubstr("\nbsp     1.0000"));
  EXPECT_THAT(out.str(), HasSubstr("\nssp:3   1.0000"));
  EXPECT_EQ(err.str(), "");
}

TEST(Simulate, WhatAnIterationIsIsSaidWhereItIsNotOneBatch) {
  SimulateQuery every = query("");
  every.compare = "notify_ack:ring,every=5,notify_ack:ring";
  const auto answer = answer_of(every);
  const nlohmann::ordered_json json = simulate_json(*answer);
  EXPECT_EQ(json["policies"][0]["batches_per_iteration"], 5);
  EXPECT_EQ(json["policies"][0]["iterations_per_s_per_worker"], 0.2);
  EXPECT_FALSE(json["policies"][1].contains("batches_per_iteration"));
  EXPECT_THAT(simulate_table(*answer),
              HasSubstr("\nnotify_ack:ring,every=5: an iteration is 5 batches.\n"));
  EXPECT_THAT(simulate_help(), HasSubstr("every=N an\niteration is N batches"));
}

TEST(Simulate, HostsDecideWhatIsClustered) {
  SimulateQuery clustered = query("hop:clustered");
  clustered.workers = 16;
  clustered.slowdown = "random:6x@1/n";
  const auto rate = [&](const char* hosts) {
    clustered.hosts = hosts;
    return answer_of(clustered)->results.front().iterations_per_s_per_worker;
  };
  EXPECT_EQ(rate(""), rate("16"));
  EXPECT_LT(rate("1"), rate("16"));  // complete: everybody waits for everybody
  EXPECT_NE(rate("8,4,4"), rate("3"));
}

TEST(Simulate, ALinkTakesTheTimeThatItsSpeedAndTheParametersSay) {
  SimulateQuery linked = query("bsp");
  linked.duration_s = 60;
  linked.link_mbps = 100;
  linked.parameters_mb = 3.125;  // 0.25 s, so 1 s for four workers at once
  const auto answer = answer_of(linked);
  const nlohmann::ordered_json json = simulate_json(*answer)["policies"][0];
  EXPECT_EQ(json["iterations_per_s_per_worker"], 0.333333333);
  EXPECT_EQ(json["transferring_share"], 0.666666667);
  EXPECT_EQ(json["transfers"], 2 * 4 * 20 + 4) << "four have just begun";
  EXPECT_THAT(simulate_table(*answer),
              AllOf(HasSubstr("LINK"), HasSubstr("\nLINK: share of its time")));
  EXPECT_THAT(simulate_table(*answer_of(query("bsp"))), Not(HasSubstr("LINK")));
}

TEST(Simulate, WhatSpeculationGainsIsShownWhereItTakesPart) {
  SimulateQuery fresh = query("");
  fresh.compare = "asp,specsync:fixed,500,0.2+asp";
  fresh.iteration_time = "uniform_each:500-1500";
  auto answer = answer_of(fresh);
  const nlohmann::ordered_json json = simulate_json(*answer);
  const auto& asp = json["policies"][0];
  const auto& specsync = json["policies"][1];
  EXPECT_LT(specsync["missed_updates_mean"], asp["missed_updates_mean"]);
  EXPECT_TRUE(asp["updates_per_restart_mean"].is_null());
  EXPECT_GE(specsync["updates_per_restart_mean"], 1);
  EXPECT_FALSE(asp.contains("gain"));
  EXPECT_THAT(simulate_table(*answer), HasSubstr("MISSED  FRESH\n"));
  EXPECT_THAT(simulate_help(), HasSubstr("updates_per_restart_mean"));
  fresh.compare = "asp,ssp:3";
  answer = answer_of(fresh);
  EXPECT_FALSE(simulate_json(*answer)["policies"][0].contains("missed_updates_mean"));
  EXPECT_THAT(simulate_table(*answer), testing::Not(HasSubstr("MISSED")));
}

TEST(Simulate, ThatRestartsWereGivenUpIsSaidWithTheTime) {
  SimulateQuery long_run = query("");
  long_run.workers = 16;
  long_run.duration_s = 200;
  long_run.iteration_time = "uniform:500-1500";
  long_run.compare = "asp,specsync+asp,specsync:auto_off=off+asp";
  auto answer = answer_of(long_run);
  const nlohmann::ordered_json json = simulate_json(*answer);
  EXPECT_FALSE(json["policies"][0].contains("speculation_off_s"));
  ASSERT_TRUE(json["policies"][1]["speculation_off_s"].is_number());
  EXPECT_TRUE(json["policies"][2]["speculation_off_s"].is_null());
  const auto off_s = json["policies"][1]["speculation_off_s"].get<double>();
  EXPECT_GT(off_s, 4 * 1.4) << "after some epochs of the slowest worker at least";
  EXPECT_LT(off_s, 200);
  const std::string table = simulate_table(*answer);
  EXPECT_THAT(table, testing::ContainsRegex("\nspecsync\\+asp: no restarts after [0-9.]+ s\\.\n"));
  EXPECT_THAT(table, HasSubstr("auto_off=off keeps them"));
  EXPECT_THAT(table, testing::Not(HasSubstr("auto_off=off+asp: no restarts")));
  EXPECT_THAT(simulate_help(), HasSubstr("speculation_off_s"));
  // Until then it is another run than without it, and from then on it restarts no more.
  const std::uint64_t restarts = answer->results[1].restarts;
  EXPECT_GT(restarts, 0U);
  long_run.compare = "specsync+asp";
  long_run.duration_s = off_s + 2;  // who was advised just before may be in an iteration
  answer = answer_of(long_run);
  EXPECT_EQ(answer->results[0].restarts, restarts);
  EXPECT_EQ(answer->results[0].speculation_off_s, off_s);
  long_run.duration_s = off_s - 1;
  answer = answer_of(long_run);
  EXPECT_FALSE(answer->results[0].speculation_off_s);
  EXPECT_THAT(simulate_table(*answer), testing::Not(HasSubstr("no restarts")));
}

// syncctl simulate --workers 40 --iteration-time uniform:1000-1500 --compare bsp,asp,...
TEST(Simulate, AComparisonOfEveryKindOfPolicyIsReadable) {
  SimulateQuery all;
  all.workers = 40;
  all.iteration_time = "uniform:1000-1500";
  all.duration_s = 100;
  all.compare =
      "bsp,asp,ssp:3,dssp:3-15,elastic_bsp:15,elastic_bsp:150,specsync+asp,"
      "hop:ring_based,max_ig=5,backup=1,notify_ack:root_expander";
  const auto answer = answer_of(all);
  EXPECT_EQ(answer->results.size(), 9U);
  for (const std::size_t columns : {std::size_t{80}, std::size_t{120}}) {
    all.columns = columns;
    std::ostringstream out;
    std::ostringstream err;
    EXPECT_EQ(run_simulate(all, out, err), kExitOk);
    EXPECT_EQ(err.str(), "");
    std::istringstream lines(out.str());
    std::string line;
    std::size_t widest = 0;
    std::size_t titles = 0;
    while (std::getline(lines, line)) {
      widest = std::max(widest, line.size());
      titles += line.starts_with("POLICY ") ? 1 : 0;
    }
    EXPECT_LE(widest, columns) << out.str();
    EXPECT_EQ(titles, columns == 80 ? 2U : 1U) << out.str();
    for (const char* row :
         {"\nbsp ", "\nasp ", "\nssp:3 ", "\ndssp:3-15 ", "\nelastic_bsp:15 ", "\nelastic_bsp:150 ",
          "\nspecsync+asp ", "\nhop:ring_based,", "\nnotify_ack:"}) {
      EXPECT_THAT(out.str(), HasSubstr(row));
    }
    for (const char* title : {"IT/S", "WAITING", "STALE", "MAX", "WASTED", "BARRIERS", "FORESEEN",
                              "WAITED", "RESYNCS", "RESTARTS", "MISSED", "FRESH"}) {
      EXPECT_THAT(out.str(), HasSubstr(title));
    }
  }
}

TEST(Simulate, EventsHappen) {
  SimulateQuery changing = query("bsp");
  changing.fails = {"3@2.5"};
  changing.joins = {"3@10", "4@12"};
  changing.leaves = {"0@15"};
  changing.changes = {"ssp:3@5", "bsp:2,backup=1@6"};
  changing.worker_grace_s = 1;
  const auto answer = answer_of(changing);
  const sim::Result& result = answer->results.front();
  EXPECT_THAT(result.refused, testing::IsEmpty());
  EXPECT_EQ(result.iterations_of.size(), 5U);
  EXPECT_GT(result.iterations_of[4], 0U);
}

TEST(Simulate, AStallIsToldAndFails) {
  SimulateQuery stalling = query("bsp");
  stalling.leaves = {"1@0"};
  std::ostringstream out;
  std::ostringstream err;
  EXPECT_EQ(run_simulate(stalling, out, err), kExitRefused);
  EXPECT_THAT(err.str(), HasSubstr("bsp stalled at 0.000 s"));
  EXPECT_THAT(err.str(), HasSubstr("worker 0 waits in begin(0)"));
  stalling.json = true;
  EXPECT_EQ(run_simulate(stalling, out, err), kExitRefused);
  EXPECT_THAT(out.str(), HasSubstr("\"stalled_at_s\": 0"));
}

TEST(Simulate, ASweepRunsEveryPairAndTheBaseAlone) {
  SimulateQuery sweep = query("asp");
  sweep.workers = 8;
  sweep.duration_s = 100;
  sweep.iteration_time = "uniform_each:500-1500";
  sweep.sweep = "abort_time=10,200,abort_rate=0.1,0.2,0.9";
  const auto answer = answer_of(sweep);
  ASSERT_EQ(answer->results.size(), 7U);
  EXPECT_EQ(answer->results[0].policy, "asp");
  EXPECT_EQ(answer->results[1].policy, "specsync:fixed,10,0.1+asp");
  EXPECT_EQ(answer->results[6].policy, "specsync:fixed,200,0.9+asp");
  EXPECT_EQ(answer->gains[0], 0);
  EXPECT_GT(answer->results[4].restarts, answer->results[5].restarts);
  const auto best = std::max_element(answer->gains.begin(), answer->gains.end());
  EXPECT_EQ(answer->best, static_cast<std::size_t>(best - answer->gains.begin()));
  const nlohmann::ordered_json json = simulate_json(*answer);
  EXPECT_EQ(json["best"], answer->results[answer->best].policy);
  EXPECT_TRUE(json["policies"][3].contains("gain"));
  EXPECT_THAT(simulate_table(*answer),
              HasSubstr("\nBest: " + answer->results[answer->best].policy + "\n"));
}

TEST(Simulate, SweepsThatMakeNoSenseAreNamed) {
  const auto with = [](const std::string& sweep, const std::string& policy = "asp") {
    SimulateQuery bad = query(policy);
    bad.sweep = sweep;
    return error_of(bad);
  };
  EXPECT_THAT(with("10,20"), HasSubstr("'10' is not a number of a list"));
  EXPECT_THAT(with("abort_time=10"), HasSubstr("one of the two lists is missing"));
  EXPECT_THAT(with("abort_time=10,abort_rate=x"), HasSubstr("'x'"));
  EXPECT_THAT(with("abort_time=10,rate=1"), HasSubstr("'rate' is unknown"));
  EXPECT_THAT(with("abort_time=10,abort_rate=0.1", "bsp"), HasSubstr("bsp"));
  std::string many = "abort_time=1";
  for (int i = 2; i <= 1001; ++i) many += "," + std::to_string(i);
  EXPECT_THAT(with(many + ",abort_rate=0.1"), HasSubstr("1001 pairs"));
  SimulateQuery both = query("");
  both.compare = "asp,ssp:3";
  both.sweep = "abort_time=10,abort_rate=0.1";
  EXPECT_THAT(error_of(both), HasSubstr("--sweep needs --policy"));
}

TEST(Simulate, ReplaysWhatHistoryExportWrites) {
  Record record;
  record.kind = RecordKind::kPush;
  record.rank = 1;
  record.span_us = 500'000;
  const std::string path = testing::TempDir() + "simulate_trace.csv";
  std::ofstream(path, std::ios::binary)
      << csv_line(record_column_names()) << csv_line(record_cells(record));
  SimulateQuery traced = query("bsp");
  traced.iteration_time = "trace:" + path;
  auto answer = answer_of(traced);
  EXPECT_DOUBLE_EQ(answer->results.front().iterations_per_s_per_worker, 2);
  std::ofstream(path, std::ios::binary) << record_json(record).dump() << "\n";
  answer = answer_of(traced);
  EXPECT_DOUBLE_EQ(answer->results.front().iterations_per_s_per_worker, 2);
}

TEST(Simulate, ComplaintsNameTheOption) {
  const auto with = [](auto change) {
    SimulateQuery bad = query("bsp");
    change(bad);
    return error_of(bad);
  };
  EXPECT_THAT(error_of(query("")), HasSubstr("--policy P, or --compare"));
  EXPECT_THAT(with([](auto& q) { q.compare = "asp"; }), HasSubstr("exclude each other"));
  EXPECT_THAT(error_of(query("nothing")), HasSubstr("'nothing' is unknown: allowed are"));
  EXPECT_THAT(with([](auto& q) { q.iteration_time = "fast"; }), HasSubstr("'fast'"));
  EXPECT_THAT(with([](auto& q) { q.slowdown = "much"; }), HasSubstr("'much'"));
  EXPECT_THAT(with([](auto& q) { q.order = "reverse"; }), HasSubstr("--order is 'reverse'"));
  EXPECT_THAT(with([](auto& q) { q.workers = 0; }), HasSubstr("number of workers is 0"));
  EXPECT_THAT(with([](auto& q) { q.hosts = "0"; }),
              HasSubstr("--hosts '0': '0' is not a whole number from 1; allowed: a number of hosts "
                        "from 1 to 4, or how many of the 4 workers each host has, such as 4,2,2"));
  EXPECT_THAT(with([](auto& q) { q.hosts = "5"; }), HasSubstr("'5': more hosts than workers"));
  EXPECT_THAT(with([](auto& q) { q.hosts = "-1"; }), HasSubstr("'-1' is not a whole number"));
  EXPECT_THAT(with([](auto& q) { q.hosts = "2,"; }), HasSubstr("'' is not a whole number"));
  EXPECT_THAT(with([](auto& q) { q.hosts = "2,1"; }), HasSubstr("the hosts have 3 workers"));
  const auto with_link = [&](double mbps, double mb) {
    return with([&](auto& q) {
      q.link_mbps = mbps;
      q.parameters_mb = mb;
    });
  };
  EXPECT_EQ(with_link(0, 1), "--link-mbps is 0, allowed is more than 0, to 1e+09 Mbit/s");
  EXPECT_EQ(with_link(100, -1), "--parameters-mb is -1, allowed is more than 0, to 1e+09 MB");
  EXPECT_THAT(with_link(std::nan(""), 1), HasSubstr("--link-mbps is nan"));
  EXPECT_THAT(with_link(1e9, 1e-9), HasSubstr("a transfer takes 8e-18 s, allowed are 1 us to"));
  EXPECT_THAT(with_link(1e-6, 1e9), HasSubstr("a transfer takes"));
  EXPECT_EQ(with([](auto& q) { q.link_mbps = 100; }),
            "--link-mbps needs --parameters-mb, what a transfer carries");
  for (const double seconds : {-1.0, 0.0, 1e-7, 2592001.0, 1e300, HUGE_VAL, std::nan("")}) {
    EXPECT_THAT(with([&](auto& q) { q.duration_s = seconds; }),
                HasSubstr("allowed are seconds from 0.000001 to 2592000 (30 days)"));
  }
  EXPECT_THAT(with([](auto& q) { q.duration_s = std::nan(""); }),
              HasSubstr("--duration-s is nan, "));
  EXPECT_THAT(with([](auto& q) { q.duration_s = -1.5; }), HasSubstr("--duration-s is -1.5, "));
  EXPECT_THAT(with([](auto& q) { q.delay_ms = HUGE_VAL; }),
              HasSubstr("--delay-ms is inf, allowed are milliseconds from 0 to 2592000000 (30"));
  EXPECT_THAT(with([](auto& q) { q.delay_ms = std::nan(""); }), HasSubstr("--delay-ms is nan, "));
  EXPECT_THAT(with([](auto& q) { q.plan_delay_ms = -2; }), HasSubstr("--plan-delay-ms is -2, "));
  EXPECT_THAT(with([](auto& q) { q.worker_grace_s = 1e10; }),
              HasSubstr("--worker-grace-s is 1e+10, allowed are seconds from 0 to 2592000"));
  EXPECT_THAT(with([](auto& q) { q.fails = {"3@-4"}; }),
              HasSubstr("--fail '3@-4': the time is -4, allowed are seconds from 0 to"));
  EXPECT_THAT(with([](auto& q) { q.changes = {"asp@inf"}; }),
              HasSubstr("--switch 'asp@inf': the time is inf, allowed are seconds"));
  EXPECT_THAT(with([](auto& q) { q.fails = {"3"}; }), HasSubstr("--fail '3': expected is RANK@"));
  EXPECT_THAT(with([](auto& q) { q.joins = {"a@1"}; }), HasSubstr("--join 'a@1'"));
  EXPECT_THAT(with([](auto& q) { q.joins = {"1@x"}; }), HasSubstr("--join '1@x'"));
  EXPECT_THAT(with([](auto& q) { q.changes = {"asp"}; }), HasSubstr("--switch 'asp'"));
  EXPECT_THAT(with([](auto& q) { q.changes = {"what@5"}; }), HasSubstr("'what' is unknown"));
}

}  // namespace
}  // namespace syncd::ctl
