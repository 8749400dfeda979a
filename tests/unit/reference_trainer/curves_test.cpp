// What training computes stays the same: the loss curves of every model under policies that use
// each loop, in virtual time, against those that are stored. SYNCD_REWRITE_GOLDEN=1 stores what is
// computed now instead, which is right only for a change that is to change the training.
//
// Losses are compared with a tolerance, not as text or a hash: they are sums of floats, and
// compilers and libraries differ in fused multiply-adds, in expf and logf, and in how a product of
// matrices is cut up. Moments and counts of iterations come from the engine and must be equal.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "reference_trainer/data/generate.h"
#include "reference_trainer/data/prepare.h"
#include "reference_trainer/run/run.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

const std::filesystem::path kFile =
    std::filesystem::path(SYNCD_TEST_SOURCE_DIR) / "golden" / "trainer" / "curves.txt";

// Relative. A learning rate that is 1 % greater changes each curve by five times as much or more.
constexpr double kTolerance = 2e-5;
constexpr std::size_t kPoints = 6;  // of each curve that are stored, the last one among them

struct Case {
  WorkloadKind kind;
  std::string policy;
  HopOrder order = HopOrder::kParallel;
};

std::string name_of(const Case& one) {
  const char* order = one.order == HopOrder::kSerial ? " serial" : "";
  return std::string(workload_name(one.kind)) + " " + one.policy + order;
}

// One policy for each way that an update goes: added at a barrier, at once, dropped and computed
// again, taken back; sent in either order, acknowledged, jumped over, overwritten. Of the network,
// which takes longer, some.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const WorkloadKind kind : {WorkloadKind::kMf, WorkloadKind::kSvm}) {
    for (const char* policy :
         {"bsp", "bsp:1,backup=1", "asp", "ssp:2", "elastic_bsp:5", "specsync+asp",
          "hop:ring,max_ig=3", "hop:ring_based,max_ig=4,backup=1,skip=3", "notify_ack:ring,every=2",
          "async:complete"}) {
      all.push_back({kind, policy});
    }
    all.push_back({kind, "hop:ring,max_ig=3", HopOrder::kSerial});
  }
  for (const char* policy : {"bsp:1,backup=1", "ssp:2", "hop:ring,max_ig=3", "notify_ack:ring"}) {
    all.push_back({WorkloadKind::kCnn, policy});
  }
  return all;
}

// Rates that no bound of a worker with parameters of its own cuts.
double rate_of(WorkloadKind kind) {
  return kind == WorkloadKind::kMf ? 0.03 : kind == WorkloadKind::kSvm ? 0.4 : 0.002;
}

SharedArrays data_of(WorkloadKind kind) {
  if (kind == WorkloadKind::kSvm) return testing::small_data(kind);
  if (kind == WorkloadKind::kMf) {
    const RatingShape shape{.users = 60, .items = 40, .factors = 2, .ratings = 1'200};
    return prepare_ratings(generate_ratings(shape, RatingFormat::kUData, 11), 11);
  }
  return prepare_images(generate_images({.training = 64, .test = 12}, ImageFormat::kCifar10, 11),
                        11);
}

std::vector<CurvePoint> curve_of(const Case& one, double rate_factor = 1) {
  const bool is_cnn = one.kind == WorkloadKind::kCnn;
  RunSettings settings;
  settings.workload = {.kind = one.kind,
                       .workers = 4,
                       .batch = is_cnn ? 4 : 24,
                       .learning_rate = rate_factor * rate_of(one.kind),
                       .decay = {.factor = 0.5, .at = {4}, .steps = 1},
                       .seed = 7,
                       .momentum = one.kind == WorkloadKind::kMf ? 0 : 0.9,
                       .weight_decay = is_cnn ? 0.0005 : 0};
  settings.policy = one.policy;
  settings.hop_order = one.order;
  settings.iterations = is_cnn ? 6 : 12;
  settings.slowdown = "random:4x@1/4";
  const VirtualSettings virtually{
      .iteration_time = "uniform_each:10-30", .delay_us = 500, .transfer_us = 1'000};
  const SharedArrays data = data_of(one.kind);
  const auto workload = make_workload(settings.workload, data);
  const RunResult result = run_virtually(settings, virtually, *workload, data, {});
  EXPECT_EQ(result.failure, "") << name_of(one);
  std::vector<CurvePoint> points;
  const std::size_t last = result.curve.size() - 1;
  for (std::size_t i = 1; i <= kPoints; ++i) points.push_back(result.curve[last * i / kPoints]);
  return points;
}

// "0.123456 17 0.69314718 0.7012": seconds, iterations, loss, and that of worker 0 where it has
// parameters of its own.
std::string text_of(const CurvePoint& point) {
  std::ostringstream text;
  text.precision(10);
  text << point.time_s << " " << point.iterations << " " << point.loss;
  if (point.loss_of_one) text << " " << *point.loss_of_one;
  return text.str();
}

// A line for each case, and below it, indented, one for each point.
std::map<std::string, std::vector<std::string>> read_curves() {
  std::map<std::string, std::vector<std::string>> curves;
  std::ifstream file(kFile);
  std::string name;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("  ")) {
      curves[name].push_back(line.substr(2));
    } else {
      name = line;
    }
  }
  return curves;
}

std::vector<double> numbers_of(const std::string& line) {
  std::istringstream text(line);
  return {std::istream_iterator<double>(text), {}};
}

// By how much two points differ: infinite where a moment or a count does.
double difference(const std::string& expected, const std::string& actual) {
  const std::vector<double> wanted = numbers_of(expected);
  const std::vector<double> got = numbers_of(actual);
  if (wanted.size() != got.size() || wanted[0] != got[0] || wanted[1] != got[1]) return INFINITY;
  double most = 0;
  for (std::size_t i = 2; i < got.size(); ++i) {
    most = std::max(most, std::abs(got[i] / wanted[i] - 1));
  }
  return most;
}

TEST(Curves, StayTheSame) {
  std::ostringstream now;
  const auto stored = read_curves();
  const bool rewrites = std::getenv("SYNCD_REWRITE_GOLDEN") != nullptr;
  for (const Case& one : cases()) {
    const std::string name = name_of(one);
    std::vector<std::string> curve;
    for (const CurvePoint& point : curve_of(one)) curve.push_back(text_of(point));
    now << name << "\n";
    for (const std::string& point : curve) now << "  " << point << "\n";
    if (rewrites) continue;
    const auto found = stored.find(name);
    ASSERT_NE(found, stored.end()) << name << " is not in " << kFile;
    ASSERT_EQ(found->second.size(), curve.size()) << name;
    for (std::size_t i = 0; i < curve.size(); ++i) {
      EXPECT_LE(difference(found->second[i], curve[i]), kTolerance)
          << name << "\n  expected: " << found->second[i] << "\n  actual:   " << curve[i];
    }
  }
  if (rewrites) std::ofstream(kFile) << now.str();
}

// The tolerance lets nothing pass that is no rounding.
TEST(Curves, ChangeByMoreThanTheToleranceWithTheRate) {
  const auto stored = read_curves();
  for (const Case& one : cases()) {
    if (one.policy != "ssp:2" && one.policy != "hop:ring,max_ig=3") continue;
    const std::vector<std::string>& points = stored.at(name_of(one));
    double most = 0;
    const std::vector<CurvePoint> changed = curve_of(one, 1.01);
    for (std::size_t i = 0; i < points.size(); ++i) {
      most = std::max(most, difference(points[i], text_of(changed[i])));
    }
    EXPECT_GT(most, 5 * kTolerance) << name_of(one);
  }
}

}  // namespace
}  // namespace syncd::trainer
