// The HTML page of made-up runs: what is in it, that it is well formed, and that nothing of what
// others wrote gets into it as markup.
#include "reference_trainer/report_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "reference_trainer/data_file.h"
#include "reference_trainer/process.h"
#include "reference_trainer/report_details.h"
#include "tests/unit/reference_trainer/report_support.h"
#include "tests/unit/reference_trainer/well_formed.h"

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using testing::context;
using ::testing::HasSubstr;
using testing::markup_problem;
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
    worker = {.finished = true,
              .end = "finished",
              .iterations = 40,
              .computing_s = 2,
              .waiting_s = 1,
              .wasted_s = 0.5,
              .active_s = 4,
              .grants = 40,
              .staleness_sum = 60,
              .staleness_max = 3,
              .restarts = 5,
              .skipped = 2};
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

TEST(HtmlReport, HoldsEverything) {
  const std::string html = render_html(context(), details(), {run_of("ssp:3"), run_of("asp")});
  EXPECT_EQ(markup_problem(html), "");
  for (const char* part :
       {"<title>mf under 2 policies</title>", "mf, 2 workers, seed 1, 20 ms per iteration",
        "u.data: 100 ratings", "2026-11-21 12:00:00 UTC", "Loss against time",
        "Loss against iterations", "target 0.8<", "ssp:<wbr/>3", "Where the workers' time went",
        "25.0% of the time waiting, 12.5% computing for nothing",
        "mean 1.50 (dashed line), at most 3", "about 5 iterations, from 2.00 s on",
        "worker 0, iteration 20: computing for 50.00 ms", "<td>1.00 s</td>", "<td>100.0 ms</td>",
        "reference_trainer --compare &#39;a b&#39;", "Example &lt;CPU&gt; &amp; co"}) {
    EXPECT_THAT(html, HasSubstr(part));
  }
  EXPECT_THAT(html, Not(HasSubstr("Accuracy"))) << "mf has none";
}

TEST(HtmlReport, NeedsNothingElse) {
  const std::string html = render_html(context(), details(), {run_of("ssp:3")});
  for (const char* part : {"http:", "https:", "src=", "<link", "<script", "@import", "url(h"}) {
    EXPECT_THAT(html, Not(HasSubstr(part)));
  }
}

TEST(HtmlReport, ShowsAccuracyWhereThereIsOne) {
  RunResult run = run_of("bsp");
  run.curve[2].accuracy = 0.75;
  const std::string html = render_html(context(), details(), {run, run_of("asp")});
  EXPECT_EQ(markup_problem(html), "");
  EXPECT_THAT(html, AllOf(HasSubstr("Accuracy against time"), HasSubstr("href=\"#accuracy\"")));
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
    const std::string html = render_html(context(), details(), results);
    EXPECT_EQ(markup_problem(html), "");
    EXPECT_THAT(html, Not(HasSubstr("nan")));
  }
  const std::string html = render_html(context(), details(), {failed_run(), diverged});
  EXPECT_THAT(html,
              AllOf(HasSubstr("dssp:3-15: the run failed: joining &lt;job&gt;: no &amp; never"),
                    HasSubstr("No iteration was made."), HasSubstr("diverged")));
}

TEST(HtmlReport, NothingFromElsewhereBecomesMarkup) {
  const std::string evil = "<script>alert(\"x\")</script>&'\xff\x01";
  ReportContext strange = context();
  strange.workload = strange.loss_name = strange.data = strange.slowdown = strange.target_source =
      evil;
  RunResult run = run_of(evil);
  run.workers[1].finished = false;
  run.workers[1].end = evil;
  ReportDetails details{.date = evil,
                        .command = evil,
                        .configuration = {{evil, evil}},
                        .machine = {{evil, evil}},
                        .versions = {{evil, evil}}};
  const std::string html = render_html(strange, details, {run, run});
  EXPECT_EQ(markup_problem(html), "");
  EXPECT_THAT(html, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("\xff")), Not(HasSubstr("\x01")),
                          HasSubstr("&lt;script&gt;")));
}

// A parser that knows nothing of this one agrees; skipped where there is none.
TEST(HtmlReport, AnXmlParserReadsIt) {
  const TemporaryDirectory place;
  const auto page = place.path() / "report.html";
  write_data_file(page, render_html(context(), details(), {run_of("ssp:3"), failed_run()}));
  SpawnOptions spawn;
  spawn.program = "/bin/sh";
  spawn.arguments = {"-c",
                     "if command -v xmllint >/dev/null; then exec xmllint --noout \"$0\"; fi; "
                     "if command -v python3 >/dev/null; then exec python3 -c 'import sys, "
                     "xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' \"$0\"; fi; exit 77",
                     page.string()};
  ChildProcess child = ChildProcess::start(spawn);
  const auto status = child.wait(60'000);
  ASSERT_TRUE(status.has_value());
  if (describe_exit(*status) == "exit status 77") GTEST_SKIP() << "no XML parser is installed";
  EXPECT_EQ(describe_exit(*status), "exit status 0");
}

TEST(MarkupJudge, FindsMistakes) {
  EXPECT_EQ(markup_problem("<a b=\"c\"><d/>e &amp; f</a>"), "");
  for (const char* broken : {"<a>", "</a>", "<a></b>", "<a b=c></a>", "<a b=\"c></a>", "a & b",
                             "a > b", "< a>", "<a b=\"<\"/>"}) {
    EXPECT_NE(markup_problem(broken), "") << broken;
  }
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
