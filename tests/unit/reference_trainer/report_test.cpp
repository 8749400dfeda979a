// Tables, CSV and JSON of made-up runs.
#include "reference_trainer/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reference_trainer/data/data_file.h"
#include "reference_trainer/run/process.h"
#include "tests/unit/reference_trainer/report_support.h"

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using testing::context;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

RunResult good_run() {
  RunResult run;
  run.policy = "ssp:3";
  run.job = "mf-1";
  run.curve = {{0, 0, 1.05},    {1, 20, 0.79},    {1.5, 30, 0.81}, {2.25, 50, 0.79},
               {2.5, 55, 0.78}, {2.75, 60, 0.77}, {3, 65, 0.76},   {4, 80, 0.7}};
  run.workers.resize(2);
  run.workers[0] = {{.iterations = 60,
                     .waiting_us = 3'000'000,
                     .computing_us = 1'000'000,
                     .wasted_us = 500'000,
                     .staleness_sum = 90,
                     .staleness_max = 3,
                     .grants = 60,
                     .restarts = 2},
                    true,
                    "finished"};
  run.workers[1] = {{.iterations = 20,
                     .computing_us = 4'000'000,
                     .grants = 20,
                     .restarts = 1,
                     .late = 5,
                     .skipped = 7},
                    true,
                    "finished"};
  run.seconds = 4;
  run.iterations = 80;
  return run;
}

TEST(Report, DerivesItsFiguresFromTheWorkers) {
  const RunResult run = good_run();
  EXPECT_EQ(run.final_loss(), 0.7);
  EXPECT_EQ(run.iterations_per_s(), 20);
  EXPECT_EQ(run.waiting_share(), 3.0 / 8);
  EXPECT_EQ(run.wasted_share(), 0.5 / 8);
  EXPECT_EQ(run.staleness_mean(), 90.0 / 80);
  EXPECT_EQ(run.staleness_max(), 3);
  EXPECT_EQ(run.restarts(), 3);
  EXPECT_EQ(run.late(), 5);
  EXPECT_EQ(run.skipped(), 7);
  EXPECT_EQ(run.lost_workers(), 0);
  // Five points in a row; at 1 s there is one alone.
  ASSERT_NE(reached_loss(run, 0.8), nullptr);
  EXPECT_EQ(reached_loss(run, 0.8)->time_s, 2.25);
  EXPECT_EQ(reached_loss(run, 0.785), nullptr);
  EXPECT_TRUE(is_at_loss(run.curve, 0.79));
  EXPECT_FALSE(is_at_loss(run.curve, 0.789));
  EXPECT_FALSE(is_at_loss({run.curve.begin(), run.curve.begin() + 4}, 2)) << "too few points";
  EXPECT_EQ(RunResult().iterations_per_s(), 0) << "no division by nothing";
}

TEST(Report, AlignsItsColumns) {
  EXPECT_EQ(
      format_table({"policy", "n", "loss"}, {{"bsp", "5", "0.5"}, {"elastic_bsp:15", "1234", "-"}}),
      "policy             n  loss\n"
      "bsp                5   0.5\n"
      "elastic_bsp:15  1234     -\n");
}

TEST(Report, ShowsARunInOneRow) {
  const std::string text = render_report(context(), {good_run()});
  EXPECT_EQ(
      text,
      "mf, 2 workers, seed 1, 20 ms per iteration, slowdown fixed:1=4x\n"
      "u.data: 100 ratings\n"
      "loss: held-out RMSE; target 0.8000 (given)\n"
      "\n"
      "policy  s to target  iterations  iterations/s  final loss  waiting  mean staleness  max"
      "  restarts  wasted  skipped\n"
      "ssp:3           2.2          80          20.0      0.7000    37.5%            1.12    3"
      "         3    6.2%        7\n");
}

TEST(Report, TheFirstLineNamesWhatIsNotAsUsual) {
  ReportContext unusual = context();
  unusual.hop_order = HopOrder::kSerial;
  unusual.more_settings = {"decay 0.5@100", "hosts 1,1"};
  EXPECT_EQ(describe_setting(unusual),
            "mf, 2 workers, seed 1, 20 ms per iteration, Hop in serial order, decay 0.5@100, hosts "
            "1,1, slowdown fixed:1=4x");
}

TEST(Report, ColumnsStandWhereTheySaySomething) {
  RunResult plain;
  plain.policy = "bsp";
  plain.curve = {{0, 0, 1}, {4, 80, 0.5}};
  plain.workers.resize(2);
  for (WorkerResult& worker : plain.workers) worker.finished = true;
  plain.seconds = 4;
  plain.iterations = 80;
  RunResult peers = plain;
  peers.policy = "hop:ring,max_ig=2";
  const auto line_with = [](const std::string& text, const std::string& word) {
    const std::size_t start = text.rfind('\n', text.find(word)) + 1;
    return text.substr(start, text.find('\n', start) - start);
  };
  EXPECT_THAT(line_with(render_report(context(), {plain}), "iterations/s"), EndsWith("  max"));
  std::string text = render_report(context(), {plain, peers});
  EXPECT_THAT(line_with(text, "iterations/s"), EndsWith("  max  missing"));
  EXPECT_THAT(text,
              AllOf(HasSubstr("    0        -\nhop:ring,max_ig=2"), EndsWith("    0        0\n")));
  peers.workers[1].reduced = 97;
  peers.workers[1].missing_updates = 2;
  peers.workers[1].torn_updates = 1;
  EXPECT_THAT(
      render_report(context(), {plain, peers}),
      HasSubstr("hop:ring,max_ig=2: 3 of 100 updates were left out of a reduce (2 not there, "
                "1 half-written)\n"));
  RunResult speculative = plain;
  speculative.policy = "specsync+asp";
  EXPECT_THAT(line_with(render_report(context(), {speculative}), "iterations/s"),
              EndsWith("  max  restarts  wasted"));
}

TEST(Report, TheAccuracyStandsWhereTheModelKnowsClasses) {
  RunResult run = good_run();
  EXPECT_THAT(render_report(context(), {run}), Not(HasSubstr("accuracy")));
  EXPECT_THAT(render_json(context(), {run}), HasSubstr("\"final_accuracy\": null"));
  run.accuracy = 0.875;
  EXPECT_THAT(render_report(context(), {run}), AllOf(HasSubstr("  max  accuracy  restarts"),
                                                     HasSubstr("    3     87.5%         3")));
  EXPECT_THAT(render_json(context(), {run}), HasSubstr("\"final_accuracy\": 0.875"));
}

TEST(Report, SaysWhatWentWrong) {
  RunResult lost = good_run();
  lost.workers[1].finished = false;
  lost.workers[1].end = "killed by SIGKILL";
  lost.half_written = 1;
  EXPECT_EQ(lost.lost_workers(), 1);
  RunResult failed;
  failed.policy = "dssp:3-15";
  failed.workers.resize(2);
  failed.failure = "joining job x: SYNCD_E_UNSUPPORTED: not yet";
  const std::string text = render_report(context(), {lost, failed});
  EXPECT_THAT(text, HasSubstr("ssp:3: worker 1 was lost after 20 iterations (killed by SIGKILL); "
                              "the others went on\n"));
  EXPECT_THAT(text,
              HasSubstr("ssp:3: 1 half-written update of lost workers stayed in the parameters\n"));
  EXPECT_THAT(text, HasSubstr("dssp:3-15: the run failed: joining job x: SYNCD_E_UNSUPPORTED"));
  EXPECT_THAT(text, Not(HasSubstr("dssp:3-15: worker")));
}

TEST(Report, DivergedTrainingIsCalledThat) {
  RunResult run = good_run();
  run.curve.back().loss = std::nan("");
  EXPECT_THAT(render_report(context(), {run}),
              AllOf(HasSubstr("  diverged  "), HasSubstr("ssp:3: training diverged; a smaller "
                                                         "--learning-rate or --batch helps")));
  EXPECT_THAT(render_json(context(), {run}), HasSubstr("\"final_loss\": null"));
}

TEST(Report, ANeverReachedTargetIsADash) {
  ReportContext far = context();
  far.target_loss = 0.1;
  EXPECT_THAT(render_report(far, {good_run()}), HasSubstr("ssp:3             -"));
}

TEST(Report, WritesCsvFilesPerRunUnderNamesOfTheirOwn) {
  const TemporaryDirectory place;
  RunResult run = good_run();
  run.workers[1].end = "exit status 3: said \"no\", twice";
  const auto files = write_csv_files(place.path(), context(), {run, run});
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.filename().string());
  EXPECT_THAT(names,
              ElementsAre("mf-ssp-3-loss.csv", "mf-ssp-3-workers.csv", "mf-ssp-3-staleness.csv",
                          "mf-ssp-3-spans.csv", "mf-ssp-3-2-loss.csv", "mf-ssp-3-2-workers.csv",
                          "mf-ssp-3-2-staleness.csv", "mf-ssp-3-2-spans.csv"));
  EXPECT_EQ(read_data_file(files[0], ""),
            "time_s,iterations,loss\n"
            "0.000,0,1.050000\n"
            "1.000,20,0.790000\n"
            "1.500,30,0.810000\n"
            "2.250,50,0.790000\n"
            "2.500,55,0.780000\n"
            "2.750,60,0.770000\n"
            "3.000,65,0.760000\n"
            "4.000,80,0.700000\n");
  const std::string workers = read_data_file(files[1], "");
  EXPECT_THAT(workers, HasSubstr("\n0,60,1.000,3.000,0.000,0.500,0.7500,0.1250,1.500,3,0,2,0,0,0,0,"
                                 "0,0,\"finished\"\n"));
  EXPECT_THAT(workers, HasSubstr(",\"exit status 3: said \"\"no\"\", twice\"\n"));
}

// A run of which everything is known.
RunResult recorded_run() {
  RunResult run = good_run();
  run.curve.back().accuracy = 0.5;
  run.staleness = {{0, 0, 20}, {3, 3, 60}, {128, 135, 1}};
  run.timeline = {.start_us = 2'000'000,
                  .end_us = 2'100'000,
                  .is_superstep = false,
                  .workers = {{{1'999'000, 2'000'500, 20, SpanKind::kWaiting, kSpanBarrier}},
                              {{2'000'000, 2'050'000, 9, SpanKind::kPushing, kSpanLate}}},
                  .barriers_us = {}};
  return run;
}

TEST(Report, CsvHoldsAccuracyStalenessAndSpans) {
  EXPECT_THAT(curve_csv(recorded_run()), AllOf(HasSubstr("time_s,iterations,loss,accuracy\n"),
                                               HasSubstr("\n2.250,50,0.790000,\n"),
                                               HasSubstr("\n4.000,80,0.700000,0.500000\n")));
  RunResult of_peers = recorded_run();
  of_peers.curve[0].loss_of_one = 1.25;
  for (CurvePoint& point : of_peers.curve) point.transfers = point.iterations * 2;
  EXPECT_THAT(curve_csv(of_peers),
              AllOf(HasSubstr("time_s,iterations,loss,accuracy,loss_of_one_worker,transfers\n"),
                    HasSubstr("\n0.000,0,1.050000,,1.250000,0\n"),
                    HasSubstr("\n4.000,80,0.700000,0.500000,,160\n")));
  EXPECT_THAT(render_json_lines(context(), {of_peers}),
              HasSubstr("\"loss\":1.05,\"loss_of_one_worker\":1.25,\"transfers\":0}\n"));
  EXPECT_THAT(render_json(context(), {of_peers}), HasSubstr("\"transfers_to_target\": 100"));
  EXPECT_EQ(staleness_csv(recorded_run()),
            "staleness_low,staleness_high,grants\n0,0,20\n3,3,60\n128,135,1\n");
  EXPECT_EQ(spans_csv(recorded_run()),
            "worker,what,iteration,start_s,end_s,barrier,late,skip\n"
            "0,waiting,20,1.999000,2.000500,1,0,0\n"
            "1,pushing,9,2.000000,2.050000,0,1,0\n");
}

TEST(Report, JsonLinesHoldTheSeries) {
  const std::string text = render_json_lines(context(), {good_run(), recorded_run()});
  EXPECT_THAT(
      text,
      AllOf(HasSubstr(
                "{\"type\":\"loss\",\"run\":0,\"time_s\":1.5,\"iterations\":30,\"loss\":0.81}\n"),
            HasSubstr("\"loss\":0.7,\"accuracy\":0.5}\n"),
            HasSubstr("{\"type\":\"staleness\",\"run\":1,\"staleness_low\":128,"
                      "\"staleness_high\":135,\"grants\":1}\n"),
            HasSubstr(
                "{\"type\":\"span\",\"run\":1,\"worker\":1,\"what\":\"pushing\",\"iteration\":9,"),
            HasSubstr("{\"type\":\"worker\",\"run\":0,\"worker\":0,\"end\":\"finished\","),
            HasSubstr("{\"type\":\"run\",\"run\":0,\"policy\":\"ssp:3\",")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), (1 + 8 + 2) * 2 + 3 + 2);
}

TEST(Report, JsonHoldsTheSameAndNullWhereNothingIsKnown) {
  ReportContext none = context();
  none.target_loss.reset();
  const std::string text = render_json(none, {good_run()});
  EXPECT_THAT(text,
              AllOf(HasSubstr("\"target_loss\": null"), HasSubstr("\"time_to_target_s\": null"),
                    HasSubstr("\"waiting_share\": 0.375"), HasSubstr("\"failure\": null"),
                    HasSubstr("\"policy\": \"ssp:3\"")));
  ReportContext told = context();
  told.configuration = {{"learning rate", "0.5"}, {"a transfer", "50 MB"}};
  EXPECT_THAT(render_json(told, {good_run()}), AllOf(HasSubstr("\"time_to_target_s\": 2.25"),
                                                     HasSubstr("\"learning rate\": \"0.5\""),
                                                     HasSubstr("\"a transfer\": \"50 MB\"")));
}

}  // namespace
}  // namespace syncd::trainer
