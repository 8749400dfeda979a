#include <gtest/gtest.h>

#include "daemon/edge/config/config.h"
#include "daemon/edge/config/settings.h"

namespace syncd::config {
namespace {

Command parse(std::vector<const char*> words, Flags& flags, std::string& text) {
  words.insert(words.begin(), "syncd");
  return parse_command_line(static_cast<int>(words.size()), words.data(), "9.9", flags, text);
}

TEST(CommandLine, WithoutArgumentsNothingIsSet) {
  Flags flags;
  std::string text;
  EXPECT_EQ(parse({}, flags, text), Command::kRun);
  EXPECT_TRUE(flags.settings.empty());
  EXPECT_FALSE(flags.check_config);
}

TEST(CommandLine, FlagsBecomeSettings) {
  Flags flags;
  std::string text;
  ASSERT_EQ(parse({"--config", "f.toml", "--store=/s", "--mode", "fast", "--tcp", "127.0.0.1:0",
                   "--tcp", "[::1]:0", "--unix", "off", "--log-level", "debug", "--insecure",
                   "--check-config", "--ready-file", "r"},
                  flags, text),
            Command::kRun)
      << text;
  EXPECT_EQ(flags.config_file, "f.toml");
  EXPECT_EQ(flags.ready_file, "r");
  EXPECT_TRUE(flags.check_config);
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"listen.tcp", "127.0.0.1:0,[::1]:0"},
      {"listen.unix", "off"},
      {"listen.insecure", "true"},
      {"store.path", "/s"},
      {"store.mode", "fast"},
      {"log.level", "debug"}};
  EXPECT_EQ(flags.settings, expected);
}

TEST(CommandLine, HelpNamesEverySettingAndExitCode) {
  Flags flags;
  std::string text;
  ASSERT_EQ(parse({"--help"}, flags, text), Command::kPrint);
  for (const Setting& setting : settings()) {
    EXPECT_NE(text.find(setting.key), std::string::npos) << setting.key;
    EXPECT_NE(text.find(environment_name(setting.key)), std::string::npos) << setting.key;
    if (setting.flag != nullptr) {
      EXPECT_NE(text.find(setting.flag), std::string::npos) << setting.flag;
    }
  }
  for (const Setting& limit : test_limits()) {
    EXPECT_EQ(text.find(limit.key), std::string::npos) << limit.key;
  }
  EXPECT_EQ(text.find("--test-limit"), std::string::npos);
  EXPECT_NE(text.find("Exit codes:"), std::string::npos);
  ASSERT_EQ(parse({"--version"}, flags, text), Command::kPrint);
  EXPECT_EQ(text, "syncd 9.9\n");
}

TEST(CommandLine, TestsSetLimits) {
  Flags flags;
  std::string text;
  ASSERT_EQ(parse({"--test-limit", "a.b=1", "--test-limit=c.d=2"}, flags, text), Command::kRun);
  EXPECT_EQ(flags.test_limits, (std::vector<std::string>{"a.b=1", "c.d=2"}));
}

TEST(CommandLine, MistakesAreNamed) {
  const std::pair<std::vector<const char*>, const char*> cases[] = {
      {{"--tpc", "x"}, "did you mean --tcp?"},
      {{"--store"}, "--store"},
      {{"serve"}, "serve"},
      {{"--insecure=maybe"}, "insecure"},
      {{"--store", "a", "--store", "b"}, "--store"},
  };
  for (const auto& [words, expected] : cases) {
    Flags flags;
    std::string text;
    EXPECT_EQ(parse(words, flags, text), Command::kUsage) << expected;
    EXPECT_NE(text.find(expected), std::string::npos) << text;
    EXPECT_NE(text.find("syncd --help"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace syncd::config
