#include "daemon/edge/config/duration.h"

#include <gtest/gtest.h>

namespace syncd::config {
namespace {

TEST(Duration, ReadsNumbersWithUnits) {
  const std::pair<const char*, Micros> cases[] = {
      {"0", 0},
      {"0s", 0},
      {"7us", 7},
      {"500ms", 500'000},
      {"10s", 10'000'000},
      {"1.5s", 1'500'000},
      {"0.25ms", 250},
      {"2m", 120'000'000},
      {"1h", 3'600'000'000},
      {"30d", 2'592'000'000'000},
      {"0.5d", 43'200'000'000},
      {"1.000001s", 1'000'001},
  };
  for (const auto& [text, expected] : cases) {
    Micros us = -1;
    EXPECT_TRUE(parse_duration(text, us)) << text;
    EXPECT_EQ(us, expected) << text;
  }
}

TEST(Duration, RefusesAnythingElse) {
  for (const char* text : {"", "5", "s", "-1s", "1 s", "1sec", "1.s", ".5s", "1.0000001s", "1s ",
                           "1s2", "9999999999s", "999999999d", "1e3s", "ten seconds"}) {
    Micros us = 42;
    EXPECT_FALSE(parse_duration(text, us)) << text;
    EXPECT_EQ(us, 42) << text;
  }
}

TEST(Duration, ShowsWhatReadsBackTheSame) {
  const std::pair<Micros, const char*> cases[] = {
      {0, "0s"},           {7, "7us"},          {1'500'000, "1500ms"}, {10'000'000, "10s"},
      {90'000'000, "90s"}, {120'000'000, "2m"}, {3'600'000'000, "1h"}, {86'400'000'000, "1d"},
  };
  for (const auto& [us, expected] : cases) {
    EXPECT_EQ(show_duration(us), expected);
    Micros back = -1;
    EXPECT_TRUE(parse_duration(expected, back));
    EXPECT_EQ(back, us);
  }
}

}  // namespace
}  // namespace syncd::config
