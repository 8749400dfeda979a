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

#include "golden_fold.h"
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

// Two answers that are alike take one line; two that are not stand below their events.
TEST(GoldenScript, FoldsTheAnswersToAListOfEvents) {
  const std::string script =
      "> 0s create train policy=asp expected=2\n> join {a,b}\n> begin {a,b} 0\n> 1s push a 0\n"
      "> begin {a,b} 1\n";
  std::string actual, error;
  ASSERT_TRUE(run_golden_script(script, actual, error)) << error;
  for (const std::string wanted :
       {"\n  rec worker_joined #1/{0,1} e1 i{1,2} seq={2,3} name={a,b} host=node-{a,b}\n",
        "\n  > begin b 0\n  rec job_started #1 e1 seq=4 expected=2\n"
        "  -> {a,b} begin(0): granted 0 PULL\n",
        "\n  > begin a 1\n  -> a begin(1): granted 1 staleness=1\n  > begin b 1\n  -> b begin(1): "
        "error "}) {
    EXPECT_NE(actual.find(wanted), std::string::npos) << wanted << "in:\n" << actual;
  }
}

// What is folded can be spread again; what could not is left as it is.
TEST(GoldenFold, LosesNothing) {
  const std::vector<Lines> cases = {{"i9 seq=9", "i10 seq=10"},
                                    {"#1/2 node-a, x", "#1/3 node-b, x"},
                                    {"worker 1 (a)", "worker 12 (ab)"},
                                    {"same", "same"},
                                    {"k=1", "k="},
                                    {"a", "a b"},
                                    {"{a}", "{b}"},
                                    {"x=1,2", "x=2,2"},
                                    {"x=1,a", "x=2,b"}};
  const std::vector<std::string> folded = {"i{9,10} seq={9,10}",
                                           "#1/{2,3} node-{a,b}, x",
                                           "worker {1,12} ({a,ab})",
                                           "same",
                                           "",
                                           "",
                                           "",
                                           "x={1,2},2",
                                           ""};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(fold(cases[i]).value_or(""), folded[i]);
    if (folded[i].find('{') == std::string::npos) continue;
    EXPECT_EQ(spread(folded[i]), cases[i]);
  }
  EXPECT_EQ(spread("{a,b} to {c,d}!"), (Lines{"a to c!", "b to d!"}));
  EXPECT_EQ(spread("{a,b} {c}"), Lines());
  EXPECT_EQ(spread("{a"), Lines());
}

TEST(GoldenScript, NamesTheLineThatIsMalformed) {
  std::string actual, error;
  EXPECT_FALSE(run_golden_script("# fine\n> begin a\n", actual, error));
  EXPECT_EQ(error, "line 2 (> begin a): worker 'a' has not joined");
  EXPECT_FALSE(run_golden_script("> 2s pass\n> 1s pass\n", actual, error));
  EXPECT_EQ(error, "line 2 (> 1s pass): time goes back");
  EXPECT_FALSE(run_golden_script("> stop train now\n", actual, error));
  EXPECT_EQ(error, "line 1 (> stop train now): 'now' is not expected");
  EXPECT_FALSE(run_golden_script("> begin {a,b} {0}\n", actual, error));
  EXPECT_EQ(error, "line 1 (> begin {a,b} {0}): lists in braces must be equally long");
  EXPECT_FALSE(run_golden_script("stop train\n", actual, error));
}

}  // namespace
}  // namespace syncd::test
