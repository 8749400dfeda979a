// The HTML page of made-up runs: what is in it, and that nothing of what others wrote gets out of
// the element that holds it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "reference_trainer/report/report.h"
#include "tests/unit/reference_trainer/report_support.h"

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using testing::context;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using ::testing::Not;

ReportDetails details() {
  return {.date = "2026-11-21 12:00:00 UTC",
          .command = "reference_trainer --compare 'a b'",
          .configuration = {{"workers", "2"}},
          .machine = {{"processor", "Example <CPU> & co"}},
          .versions = {{"reference_trainer", "0.1.0"}}};
}

RunResult run_of(const std::string& policy) {
  RunResult run;
  run.policy = policy;
  run.curve = {{0, 0, 1.05}, {1.5, 30, 0.81}, {4, 80, 0.7}};
  run.workers.resize(2);
  for (WorkerResult& worker : run.workers) {
    worker = {{.iterations = 40,
               .waiting_us = 1'000'000,
               .computing_us = 2'000'000,
               .pushing_us = 1'000'000,
               .wasted_us = 500'000,
               .staleness_sum = 60,
               .staleness_max = 3,
               .grants = 40,
               .restarts = 5,
               .skipped = 2},
              true,
              "finished"};
  }
  run.staleness = {{0, 0, 40}, {3, 3, 40}};
  run.timeline = {.start_us = 2'000'000,
                  .end_us = 2'100'000,
                  .is_superstep = false,
                  .workers = {{{2'000'000, 2'050'000, 20, SpanKind::kComputing, 0}}, {}},
                  .barriers_us = {}};
  run.seconds = 4;
  run.iterations = 80;
  return run;
}

RunResult failed_run() {
  RunResult run;
  run.policy = "dssp:3-15";
  run.failure = "joining <job>: no & never";
  run.curve = {{0, 0, 1.05}};
  run.workers.resize(2);
  return run;
}

// The results in the page, as its script reads them.
Json data_of(const std::string& html) {
  constexpr std::string_view kBegin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t begin = html.find(kBegin);
  EXPECT_NE(begin, html.npos);
  const std::size_t from = begin + kBegin.size();
  return Json::parse(html.substr(from, html.find("</script>", from) - from));
}

TEST(HtmlReport, HoldsEverything) {
  const Json data = data_of(render_html(context(), details(), {run_of("ssp:3"), run_of("asp")}));
  EXPECT_EQ(data["title"], "mf under 2 policies");
  EXPECT_EQ(data["setting"], "mf, 2 workers, seed 1, 20 ms per iteration, slowdown fixed:1=4x");
  EXPECT_EQ(data["data"], "u.data: 100 ratings");
  EXPECT_EQ(data["date"], "2026-11-21 12:00:00 UTC");
  EXPECT_EQ(data["command"], "reference_trainer --compare 'a b'");
  EXPECT_EQ(data["target"], 0.8);
  EXPECT_EQ(data["facts"]["Machine"][0], (Json{"processor", "Example <CPU> & co"}));
  EXPECT_EQ(data["summary"]["rows"][1][0], "asp");
  const Json& run = data["runs"][0];
  EXPECT_EQ(run["policy"], "ssp:3");
  EXPECT_EQ(run["waiting_share"], 0.25);
  EXPECT_EQ(run["wasted_share"], 0.125);
  EXPECT_EQ(run["restarts"], 10);
  EXPECT_EQ(run["curve"]["time_s"], (Json{0.0, 1.5, 4.0}));
  EXPECT_EQ(run["curve"]["loss"], (Json{1.05, 0.81, 0.7}));
  EXPECT_EQ(run["workers"][1], (Json{1.5, 1.0, 0.5, 1.0, 4.0}));
  EXPECT_EQ(run["staleness"], (Json{{0, 0, 40}, {3, 3, 40}}));
  EXPECT_EQ(run["timeline"]["what"], "about 5 iterations");
  EXPECT_EQ(run["timeline"]["workers"][0][0]["what"], "computing");
  EXPECT_EQ(run["timeline"]["workers"][0][0]["end_s"], 2.05);
}

TEST(HtmlReport, NeedsNothingElse) {
  const std::string html = render_html(context(), details(), {run_of("ssp:3")});
  EXPECT_THAT(html, AllOf(ContainsRegex("Chart.js v[3-9]"), HasSubstr("default-src 'none'")));
  for (const char* part : {"src=", "<link", "@import", "url(h", "@CHART@", "@DATA@"}) {
    EXPECT_THAT(html, Not(HasSubstr(part)));
  }
}

TEST(HtmlReport, WhatIsLongIsThinnedOut) {
  RunResult run = run_of("bsp");
  run.curve.assign(100'001, {1, 1, 1});
  run.curve.back().loss = 7;
  run.timeline.workers.resize(1000);
  const Json shown = Json::parse(report_data(context(), details(), {run}))["runs"][0];
  EXPECT_LE(shown["curve"]["loss"].size(), kReportPointsMax + 1);
  EXPECT_EQ(shown["curve"]["loss"].back(), 7);
  EXPECT_EQ(shown["timeline"]["workers"].size(), kReportRowsMax);
  EXPECT_EQ(shown["timeline"]["of"], 1000);
  EXPECT_EQ(shown["timeline"]["ranks"][1], "41");
}

TEST(HtmlReport, TakesRunsThatFailedOrHardlyBegan) {
  RunResult diverged = run_of("asp");
  for (CurvePoint& point : diverged.curve) point.loss = std::nan("");
  RunResult one_point = run_of("bsp");
  one_point.curve.resize(1);
  RunResult bare;
  for (const std::vector<RunResult>& results : {std::vector<RunResult>{failed_run(), run_of("bsp")},
                                                {failed_run()},
                                                {diverged},
                                                {one_point},
                                                {bare},
                                                {}}) {
    EXPECT_EQ(data_of(render_html(context(), details(), results))["runs"].size(), results.size());
  }
  const Json data = data_of(render_html(context(), details(), {failed_run(), diverged}));
  EXPECT_EQ(data["problems"][0], "dssp:3-15: the run failed: joining <job>: no & never");
  EXPECT_EQ(data["runs"][1]["curve"]["loss"][0], nullptr);
}

TEST(HtmlReport, NothingFromElsewhereEndsTheResults) {
  const std::string evil = "</script><!--<script>alert(\"x\")</script>&'\xff\x01";
  ReportContext strange = context();
  strange.workload = strange.loss_name = strange.data = strange.slowdown = strange.target_source =
      evil;
  RunResult run = run_of(evil);
  run.workers[1].finished = false;
  run.workers[1].end = evil;
  const ReportDetails strange_details{.date = evil,
                                      .command = evil,
                                      .configuration = {{evil, evil}},
                                      .machine = {{evil, evil}},
                                      .versions = {{evil, evil}}};
  const std::string html = render_html(strange, strange_details, {run, run});
  const std::string page = render_html(context(), details(), {});
  const auto count = [](const std::string& text, std::string_view part) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; ++at) ++found;
    return found;
  };
  for (const char* part : {"<script", "</script", "<!--"}) {
    EXPECT_EQ(count(html, part), count(page, part)) << part;
  }
  EXPECT_THAT(html, Not(HasSubstr("\xff")));
  EXPECT_EQ(data_of(html)["runs"][0]["policy"].get<std::string>().substr(0, 9), "</script>");
}

TEST(ReportDetails, QuotesArgumentsForAShell) {
  EXPECT_EQ(shell_quoted("--slowdown"), "--slowdown");
  EXPECT_EQ(shell_quoted("hop:ring,max_ig=5"), "hop:ring,max_ig=5");
  EXPECT_EQ(shell_quoted("a b"), "'a b'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("$HOME"), "'$HOME'");
}

TEST(ReportDetails, ReadsTheMachine) {
  EXPECT_EQ(processor_name("processor\t: 0\nmodel name\t: AMD EPYC 7B13\nflags\t: a\n"),
            "AMD EPYC 7B13");
  EXPECT_EQ(processor_name("processor\t: 0\nBogoMIPS\t: 50\n"), "unknown");
  EXPECT_EQ(memory_size("MemTotal:       16384000 kB\nMemFree: 1 kB\n"), "15.6 GiB");
  EXPECT_EQ(memory_size(""), "unknown");
  Options options;
  options.policies = {"bsp", "asp"};
  options.iterations = 150;
  options.workload.workers = 4;
  const ReportDetails found = describe_runs(options, {"reference_trainer", "--data", "a b"});
  EXPECT_EQ(found.command, "reference_trainer --data 'a b'");
  EXPECT_EQ(found.date.size(), std::string("2026-11-21 12:00:00 UTC").size());
  bool says_when_it_ends = false;
  for (const Fact& fact : found.configuration) {
    says_when_it_ends |= fact.value == "600 iterations of all workers together";
  }
  EXPECT_TRUE(says_when_it_ends);
  for (const Fact& fact : found.machine) EXPECT_FALSE(fact.value.empty()) << fact.name;
  const auto value_of = [&options](const char* name) {
    for (const Fact& fact : describe_runs(options, {}).configuration) {
      if (fact.name == name) return fact.value;
    }
    return std::string("none");
  };
  const auto momentum = [&] { return value_of("momentum"); };
  EXPECT_EQ(momentum(), "none");
  options.workload.momentum = 0.9;
  options.workload.kind = WorkloadKind::kCnn;
  EXPECT_EQ(momentum(), "0.9");
  options.workload.workers = 4;
  EXPECT_EQ(value_of("workers"), "4");
  EXPECT_EQ(value_of("computed by"), "none");
  options.workers_as = WorkersAs::kThreads;
  EXPECT_EQ(value_of("workers"), "4, threads of one process");
  options.workload.backend = Backend::kCuda;
  EXPECT_EQ(value_of("computed by"), "CUDA, parameters in host memory");
  options.store_in = StoreIn::kDevice;
  EXPECT_EQ(value_of("computed by"), "CUDA, parameters in the GPU's memory");
}

}  // namespace
}  // namespace syncd::trainer
