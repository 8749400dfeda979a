// The ElasticBSP paper's own data and the waits that its table 3 gives for n = 1000.
#include <fstream>
#include <sstream>

#include "tests/unit/planners/zipline_support.h"

namespace syncd::planners {
namespace {

std::vector<Progression> read_published() {
  std::ifstream file(std::string(SYNCD_TEST_SOURCE_DIR) + "/data/zipline_pushes_n1000.txt");
  std::vector<Progression> workers;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line.substr(line.find(':') + 1));
    std::vector<Micros> pushes;
    for (std::string field; std::getline(fields, field, ',');) {
      if (!field.empty() && field != "\r") pushes.push_back(std::stoll(field) * 1000);
    }
    if (pushes.size() < 2) continue;
    const Micros last = pushes.back();
    const Micros interval = last - pushes[pushes.size() - 2];
    workers.push_back({last + interval, interval});
  }
  return workers;
}

struct Published {
  std::uint32_t r;
  Micros wait;
  Micros sync_time;
};

class ZiplinePublished : public testing::TestWithParam<ZiplineAlgorithm> {};

TEST_P(ZiplinePublished, GivesTheWaitsOfTable3) {
  const std::vector<Progression> workers = read_published();
  ASSERT_EQ(workers.size(), 1000U);
  for (const Published& one : {Published{15, 1'403'000, 1'553'557'780'376'000},
                               Published{150, 1'382'000, 1'553'557'811'694'000}}) {
    std::string error;
    const auto plan = plan_zipline(workers, one.r, {.algorithm = GetParam()}, error);
    ASSERT_TRUE(plan) << error;
    EXPECT_EQ(plan->wait, one.wait) << "R = " << one.r;
    EXPECT_EQ(plan->sync_time, one.sync_time) << "R = " << one.r;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ZiplinePublished, testing::ValuesIn(kExactAlgorithms),
                         [](const auto& one) { return std::string(to_string(one.param)); });

}  // namespace
}  // namespace syncd::planners
