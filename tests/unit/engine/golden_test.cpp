// Every script in tests/golden/engine says what the engine must answer, event by event, with its
// records, explanations and log lines. SYNCD_REWRITE_GOLDEN=1 saves what it answers now instead;
// read the difference before you commit it. One thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "golden_script.h"

namespace syncd::test {
namespace {

const std::filesystem::path kScripts =
    std::filesystem::path(SYNCD_TEST_SOURCE_DIR) / "golden" / "engine";

std::vector<std::string> script_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kScripts)) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The first line that differs, with the lines around it.
std::string first_difference(const std::string& expected, const std::string& actual) {
  std::istringstream a(expected), b(actual);
  std::string wanted, got, last_event;
  for (int number = 1;; ++number) {
    const bool more_wanted = static_cast<bool>(std::getline(a, wanted));
    const bool more_got = static_cast<bool>(std::getline(b, got));
    if (!more_wanted && !more_got) return "no line differs";
    if (more_wanted && wanted.starts_with(">")) last_event = wanted;
    if (more_wanted && more_got && wanted == got) continue;
    return "line " + std::to_string(number) + ", after: " + last_event +
           "\n  expected: " + (more_wanted ? wanted : "(end of script)") +
           "\n  actual:   " + (more_got ? got : "(nothing more)");
  }
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, AnswersAsTheScriptSays) {
  const std::filesystem::path path = kScripts / (GetParam() + ".txt");
  const std::string script = read(path);
  ASSERT_NE(script.find("\n> "), std::string::npos) << path << " has no event";
  std::string actual, error;
  ASSERT_TRUE(run_golden_script(script, actual, error)) << path << ": " << error;
  if (std::getenv("SYNCD_REWRITE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << actual;
    return;
  }
  EXPECT_TRUE(script == actual) << path << ": " << first_difference(script, actual);
}

std::string script_label(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}

INSTANTIATE_TEST_SUITE_P(Engine, Golden, testing::ValuesIn(script_names()), script_label);

// The runner itself: a script that says something else than the engine does is not accepted.
TEST(GoldenScript, GivesTheEnginesAnswersInPlaceOfWrongOnes) {
  std::string actual, error;
  ASSERT_TRUE(
      run_golden_script("> 0s create train policy=asp\n  -> create: wrong\n", actual, error));
  EXPECT_EQ(actual.find("wrong"), std::string::npos);
  EXPECT_NE(actual.find("=> create: ok"), std::string::npos) << actual;
}

TEST(GoldenScript, NamesTheLineThatIsMalformed) {
  std::string actual, error;
  EXPECT_FALSE(run_golden_script("# fine\n> begin a\n", actual, error));
  EXPECT_EQ(error, "line 2 (> begin a): worker 'a' has not joined");
  EXPECT_FALSE(run_golden_script("> 2s pass\n> 1s pass\n", actual, error));
  EXPECT_EQ(error, "line 2 (> 1s pass): time goes back");
  EXPECT_FALSE(run_golden_script("> stop train now\n", actual, error));
  EXPECT_EQ(error, "line 1 (> stop train now): 'now' is not expected");
  EXPECT_FALSE(run_golden_script("stop train\n", actual, error));
}

}  // namespace
}  // namespace syncd::test
