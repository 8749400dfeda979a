// syncctl plan: the formats, both ways, and what it says of bad input.
#include "daemon/tools/ctl/plan.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "daemon/tools/ctl/commands.h"

namespace syncd::ctl {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

struct Answer {
  int code;
  std::string out;
  std::string err;
};

Answer ask(PlanKind kind, const std::string& input, const PlanOptions& options = {}) {
  std::istringstream in(input);
  std::ostringstream out;
  std::ostringstream err;
  const int code = run_plan(kind, options, in, out, err);
  return {code, out.str(), err.str()};
}

json answer(PlanKind kind, const std::string& input, const PlanOptions& options = {}) {
  const Answer got = ask(kind, input, options);
  EXPECT_EQ(got.code, kExitOk) << got.err;
  EXPECT_EQ(got.out.find('\n'), got.out.size() - 1);
  json out = json::parse(got.out, nullptr, false);
  EXPECT_TRUE(out.is_object());
  out.erase("elapsed_us");
  return out;
}

std::string error(PlanKind kind, const std::string& input, const PlanOptions& options = {}) {
  const Answer got = ask(kind, input, options);
  EXPECT_EQ(got.code, kExitUsage) << got.out;
  EXPECT_EQ(got.out, "");
  EXPECT_THAT(got.err, testing::StartsWith("syncctl: "));
  return got.err;
}

const char* const kEnds = R"({"workers":[{"id":0,"ends_ms":[10,20,30]},{"id":7,"ends_ms":[14.5,28]},
                              {"id":3,"ends_ms":[17,31.25]}]})";
const char* const kSeries = R"({"workers":[{"id":0,"last_ms":100,"interval_ms":10},
                                {"id":1,"last_ms":95.5,"interval_ms":50}],"R":6})";

TEST(PlanZipline, AnswersEndTimes) {
  EXPECT_EQ(answer(PlanKind::kZipline, kEnds),
            json::parse(R"({"algorithm":"zipline_gaps","objective":"max","sync_time_ms":31.25,
                            "wait_ms":3.25,"iterations":{"0":3,"7":2,"3":2}})"));
}

TEST(PlanZipline, AnswersSeriesByEveryAlgorithm) {
  for (const char* name : {"auto", "full_grid_scan", "zipline", "zipline_opt", "zipline_opt_bs",
                           "zipline_linked", "zipline_gaps"}) {
    PlanOptions options;
    options.algorithm = name;
    const json out = answer(PlanKind::kZipline, kSeries, options);
    EXPECT_EQ(out["sync_time_ms"], 150) << name;
    EXPECT_EQ(out["wait_ms"], 4.5) << name;
    EXPECT_EQ(out["iterations"], json::parse(R"({"0":5,"1":1})")) << name;
    EXPECT_EQ(out["algorithm"], std::string(name) == "auto" ? "zipline_gaps" : name);
  }
  PlanOptions options;
  options.r = 5;
  options.algorithm = "grid_scan";
  EXPECT_EQ(answer(PlanKind::kZipline, kSeries, options)["algorithm"], "grid_scan");
}

TEST(PlanZipline, KeepsMicrosecondsOfTimesSince1970) {
  const json out = answer(PlanKind::kZipline, R"({"workers":[
      {"id":0,"ends_ms":[1553557741828.123]},{"id":1,"ends_ms":[1553557741829.001]}]})");
  EXPECT_EQ(out["sync_time_ms"].dump(), "1553557741829.001");
  EXPECT_EQ(out["wait_ms"].dump(), "0.878");
}

TEST(PlanZipline, AnswersRate) {
  const char* const input = R"({"workers":[{"id":0,"ends_ms":[10,20,30,40],"done":1},
      {"id":1,"ends_ms":[12,23,34,45]}],"previous_barrier_ms":0,"beta":2})";
  PlanOptions options;
  options.objective = "rate";
  json out = answer(PlanKind::kZipline, input, options);
  EXPECT_EQ(out["objective"], "rate");
  EXPECT_EQ(out["sync_time_ms"], 45);
  options.beta = 0;  // never: one has a head start of one, and both go on alike
  out = answer(PlanKind::kZipline, input, options);
  EXPECT_EQ(out["objective"], "max");
  EXPECT_EQ(out["sync_time_ms"], 12);
}

TEST(PlanZipline, NamesTheWrongField) {
  const auto of = [](const std::string& input) { return error(PlanKind::kZipline, input); };
  EXPECT_THAT(of("{"), HasSubstr("the input is not JSON"));
  EXPECT_THAT(of(""), HasSubstr("the input is not JSON"));
  EXPECT_THAT(of("[]"), HasSubstr("the input: is [], allowed is an object"));
  EXPECT_THAT(of("{}"), HasSubstr("workers: is missing"));
  EXPECT_THAT(of(R"({"workers":[]})"), HasSubstr("workers: is empty"));
  EXPECT_THAT(of(R"({"workers":{}})"), HasSubstr("workers: is {}, allowed is a list"));
  EXPECT_THAT(of(R"({"workers":[4]})"), HasSubstr("workers[0]: is 4, allowed is an object"));
  EXPECT_THAT(of(R"({"workers":[{"ends_ms":[1]}]})"), HasSubstr("workers[0].id: is missing"));
  EXPECT_THAT(of(R"({"workers":[{"id":1.5,"ends_ms":[1]}]})"), HasSubstr("workers[0].id: is 1.5"));
  EXPECT_THAT(of(R"({"workers":[{"id":1,"ends_ms":[1]},{"id":1,"ends_ms":[1]}]})"),
              HasSubstr("workers[1].id: 1 is there twice"));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"ends_ms":[]}]})"),
              HasSubstr("workers[0].ends_ms: is empty"));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"ends_ms":[1,"2"]}]})"),
              HasSubstr(R"(workers[0].ends_ms[1]: is "2", allowed is a time in milliseconds)"));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"ends_ms":[3,2]}]})"),
              HasSubstr("workers[0].ends_ms[1]: is 2, allowed is nothing below"));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"ends_ms":[1e300]}]})"), HasSubstr("-2^60 to 2^60"));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"ends_ms":[18446744073709551615]}]})"),
              HasSubstr("-2^60 to 2^60"));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"last_ms":1,"interval_ms":1}]})"),
              HasSubstr("R: is missing"));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"last_ms":1,"interval_ms":1}],"R":0})"),
              HasSubstr("R: is 0, allowed is a whole number from 1"));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"last_ms":1,"interval_ms":-1}],"R":1})"),
              HasSubstr("workers[0].interval_ms: is -1, allowed is 0 or more"));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"last_ms":1}],"R":1})"),
              HasSubstr("workers[0].interval_ms: is missing"));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"last_ms":1,"interval_ms":1},{"id":1,"ends_ms":[1]}],
                     "R":1})"),
              HasSubstr("workers[1]: has ends_ms where others have not"));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"last_ms":1,"interval_ms":1}],"R":10000001})"),
              HasSubstr("R: is 10000001, allowed is a whole number from 1 to 10000000"));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"last_ms":1,"interval_ms":1},
                     {"id":1,"last_ms":1,"interval_ms":1}],"R":5000001})"),
              HasSubstr("is 5000001, allowed with 2 workers are 1 to 5000000"));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"last_ms":1,"interval_ms":1e15}],"R":10000000})"),
              HasSubstr("workers: "));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"ends_ms":[1]}],"objective":"rate"})"),
              HasSubstr("previous_barrier_ms: is missing"));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"ends_ms":[1],"done":-1}],"objective":"rate",
                     "previous_barrier_ms":0})"),
              HasSubstr("workers[0].done: is -1"));
}

TEST(PlanZipline, NamesTheWrongOption) {
  PlanOptions options;
  options.algorithm = "fast";
  EXPECT_THAT(error(PlanKind::kZipline, kEnds, options),
              AllOf(HasSubstr("--algorithm: is 'fast'"), HasSubstr("zipline_opt_bs")));
  options = {};
  options.objective = "min";
  EXPECT_THAT(error(PlanKind::kZipline, kEnds, options), HasSubstr("--objective: is 'min'"));
  options = {};
  options.r = 0;
  EXPECT_THAT(error(PlanKind::kZipline, kSeries, options), HasSubstr("--R: is 0"));
  options = {};
  options.input = "/no/such/file";
  EXPECT_THAT(error(PlanKind::kZipline, "", options),
              HasSubstr("cannot read /no/such/file: No such file"));
  options.input = testing::TempDir();
  EXPECT_THAT(error(PlanKind::kZipline, "", options),
              HasSubstr("cannot read " + testing::TempDir() + ": Is a directory; expected is"));
}

TEST(PlanZipline, ReadsAFile) {
  PlanOptions options;
  options.input = testing::TempDir() + "plan_zipline.json";
  std::ofstream(options.input) << kEnds;
  EXPECT_EQ(answer(PlanKind::kZipline, "not this", options)["wait_ms"], 3.25);
  std::ofstream(options.input, std::ios::trunc).flush();
  EXPECT_THAT(error(PlanKind::kZipline, kEnds, options), HasSubstr("the input is not JSON"));
}

TEST(PlanSpecsync, AnswersBothScopes) {
  const char* const input = R"({"workers":[{"id":0,"pull_ms":0,"span_ms":100},
      {"id":1,"pull_ms":5,"span_ms":200}],
      "pushes":[{"worker":1,"t_ms":10},{"worker":0,"t_ms":12.5}],"cap_ms":null,"scope":"job"})";
  EXPECT_EQ(answer(PlanKind::kSpecsync, input),
            json::parse(R"({"abort_time_ms":10,"abort_rate":{"0":0.05,"1":0.025},
                            "improvement":1.85,"off":false})"));
  PlanOptions options;
  options.scope = "worker";
  json out = answer(PlanKind::kSpecsync, input, options);
  EXPECT_EQ(out["abort_time_ms"], json::parse(R"({"0":10,"1":7.5})"));
  options.cap = "8";
  out = answer(PlanKind::kSpecsync, input, options);
  EXPECT_EQ(out["abort_time_ms"], json::parse(R"({"0":null,"1":7.5})"));
  EXPECT_EQ(out["abort_rate"]["0"], nullptr);
  options.scope = "job";
  options.cap = "0.5";
  out = answer(PlanKind::kSpecsync, input, options);
  EXPECT_EQ(out, json::parse(R"({"abort_time_ms":null,"abort_rate":{"0":null,"1":null},
                                 "improvement":0.0,"off":true})"));
  options.cap = "authors";  // (sqrt(10) / 3 - 1) * 200 ms = 10.8 ms
  EXPECT_EQ(answer(PlanKind::kSpecsync, input, options)["abort_time_ms"], 10);
}

// Most is pushed at 20 ms, which is within the span but above what the authors allow.
TEST(PlanSpecsync, TakesTheCapOfTheAuthorsFromOptionAndInput) {
  const auto input = [](const std::string& cap) {
    return R"({"workers":[{"id":0,"pull_ms":0,"span_ms":100},{"id":1,"pull_ms":0,"span_ms":100}],
        "pushes":[{"worker":1,"t_ms":2},{"worker":1,"t_ms":20},{"worker":1,"t_ms":20},
                  {"worker":0,"t_ms":20}],"cap_ms":)" +
           cap + "}";
  };
  EXPECT_EQ(answer(PlanKind::kSpecsync, input("null"))["abort_time_ms"], 20);
  EXPECT_EQ(answer(PlanKind::kSpecsync, input("\"span\""))["abort_time_ms"], 20);
  // (sqrt(10) / 3 - 1) * 100 ms = 5.4 ms
  EXPECT_EQ(answer(PlanKind::kSpecsync, input("\"authors\""))["abort_time_ms"], 2);
  PlanOptions options;
  options.cap = "authors";
  EXPECT_EQ(answer(PlanKind::kSpecsync, input("null"), options)["abort_time_ms"], 2);
  EXPECT_THAT(kPlanSpecsyncHelp, HasSubstr("\"authors\""));
}

TEST(PlanSpecsync, APushOfSomebodyElseCountsForAll) {
  const json out = answer(PlanKind::kSpecsync, R"({"workers":[{"id":0,"pull_ms":0,"span_ms":100},
      {"id":1,"pull_ms":0,"span_ms":100}],"pushes":[{"worker":"gone","t_ms":4}]})");
  EXPECT_EQ(out["abort_time_ms"], 4);
}

TEST(PlanSpecsync, NamesTheWrongField) {
  const auto of = [](const std::string& input) { return error(PlanKind::kSpecsync, input); };
  const std::string worker = R"({"workers":[{"id":0,"pull_ms":0,"span_ms":1}])";
  EXPECT_THAT(of(R"({"workers":[{"id":0,"pull_ms":0,"span_ms":0}],"pushes":[]})"),
              HasSubstr("workers[0].span_ms: is 0, allowed is at least 0.001"));
  EXPECT_THAT(of(R"({"workers":[{"id":0,"span_ms":1}],"pushes":[]})"),
              HasSubstr("workers[0].pull_ms: is missing"));
  EXPECT_THAT(of(worker + "}"), HasSubstr("pushes: is missing"));
  EXPECT_THAT(of(worker + R"(,"pushes":[{"worker":0}]})"), HasSubstr("pushes[0].t_ms: is missing"));
  EXPECT_THAT(of(worker + R"(,"pushes":[],"scope":"all"})"),
              HasSubstr(R"(scope: is "all", allowed is one of job, worker)"));
  EXPECT_THAT(of(worker + R"(,"pushes":[],"cap_ms":0})"), HasSubstr("cap_ms: is 0, allowed is"));
  EXPECT_THAT(of(worker + R"(,"pushes":[],"cap_ms":"max"})"), HasSubstr("'authors'"));
  PlanOptions options;
  options.cap = "ten";
  EXPECT_THAT(error(PlanKind::kSpecsync, worker + R"(,"pushes":[]})", options),
              HasSubstr("--cap: is 'ten'"));
}

TEST(PlanDssp, Answers) {
  EXPECT_EQ(answer(PlanKind::kDssp, R"({"worker":{"latest_ms":100,"previous_ms":90},
      "slowest":{"latest_ms":95,"previous_ms":45},"r_max":4,"now_ms":null})"),
            json::parse(R"({"extra_iterations":4,"difference_ms":5})"));
  EXPECT_EQ(answer(PlanKind::kDssp, R"({"worker":{"latest_ms":100,"previous_ms":95},
      "slowest":{"latest_ms":100,"previous_ms":90},"r_max":3,"now_ms":120})"),
            json::parse(R"({"extra_iterations":3,"difference_ms":15})"));
}

TEST(PlanDssp, NamesTheWrongField) {
  const auto of = [](const std::string& input) { return error(PlanKind::kDssp, input); };
  EXPECT_THAT(of(R"({"worker":{"latest_ms":1}})"), HasSubstr("worker.previous_ms: is missing"));
  EXPECT_THAT(of(R"({"worker":{"latest_ms":1,"previous_ms":2}})"),
              HasSubstr("worker.previous_ms: is 2, allowed is nothing later than latest_ms"));
  const std::string both =
      R"({"worker":{"latest_ms":1,"previous_ms":0},"slowest":{"latest_ms":1,"previous_ms":0})";
  EXPECT_THAT(of(both + "}"), HasSubstr("r_max: is missing"));
  EXPECT_THAT(of(both + R"(,"r_max":-1})"), HasSubstr("r_max: is -1, allowed is a whole number"));
  EXPECT_THAT(of(both + R"(,"r_max":1,"now_ms":"x"})"), HasSubstr("now_ms: is \"x\""));
}

}  // namespace
}  // namespace syncd::ctl
