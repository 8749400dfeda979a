// A store or a configuration that cannot be used: the daemon does not start, says why in one
// sentence that names the place, and exits with the code that documents the kind of failure.
#include <gmock/gmock.h>

#include <filesystem>

#include "support/daemon.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kConfigurationFailed = 2;
constexpr int kStoreFailed = 3;

class BadStart : public ::testing::Test {
 protected:
  RunResult syncd(const std::vector<std::string>& arguments) {
    std::vector<std::string> argv = {program("syncd")};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run(argv, directory_.path(), {{"HOME", directory_.path()}});
  }
  RunResult with_store(const std::string& store) {
    return syncd({"--store", store, "--unix", directory_.file("s.sock"), "--tcp", "off"});
  }
  // With a configuration file of this text; its name is the first of the pair.
  std::pair<std::string, RunResult> with_config(const std::string& text) {
    const std::string path = directory_.file("bad.toml");
    write_file(path, text);
    RunResult result = syncd({"--config", path, "--store", "memory", "--unix",
                              directory_.file("s.sock"), "--tcp", "off"});
    const RunResult checked = syncd({"--config", path, "--check-config"});
    EXPECT_EQ(checked.ending, exited(kConfigurationFailed)) << checked.err;
    EXPECT_THAT(checked.err + checked.out, HasSubstr(path)) << "--check-config names it, too";
    EXPECT_FALSE(exists(directory_.file("s.sock")));
    return {path, std::move(result)};
  }

  void TearDown() override { bystander_.expect_progress(); }

  TempDir directory_;
  // Somebody else's daemon on the same machine, which must not notice any of this.
  Daemon other_{directory_, {.name = "other"}};
  Bystander bystander_{other_.address()};
};

std::string said(const RunResult& result) {
  return result.out + result.err;
}

TEST_F(BadStart, AStoreBelowAFileIsRefused) {
  write_file(directory_.file("file"), "");
  const std::string path = directory_.file("file/store");
  const RunResult result = with_store(path);
  EXPECT_EQ(result.ending, exited(kStoreFailed)) << said(result);
  EXPECT_THAT(said(result), AllOf(HasSubstr(path), HasSubstr("not a directory")));
}

TEST_F(BadStart, AStoreBelowADirectoryThatIsMissingIsRefused) {
  const std::string path = directory_.file("no/store");
  const RunResult result = with_store(path);
  EXPECT_EQ(result.ending, exited(kStoreFailed)) << said(result);
  EXPECT_THAT(said(result), AllOf(HasSubstr(path), HasSubstr("does not exist")));
  const RunResult checked = syncd({"--store", path, "--check-config"});
  EXPECT_EQ(checked.ending, exited(kStoreFailed)) << said(checked);
  EXPECT_THAT(checked.err, AllOf(HasSubstr(path), HasSubstr("does not exist")));
}

TEST_F(BadStart, AStoreWhereNobodyCanWriteIsRefused) {
  const RunResult result = with_store("/proc/syncd-store");
  EXPECT_EQ(result.ending, exited(kStoreFailed)) << said(result);
  EXPECT_THAT(said(result), HasSubstr("/proc/syncd-store"));
}

TEST_F(BadStart, AStoreThatIsAFileIsRefusedAndTheFileLeftAlone) {
  write_file(directory_.file("file"), "data");
  const RunResult result = with_store(directory_.file("file"));
  EXPECT_EQ(result.ending, exited(kStoreFailed)) << said(result);
  EXPECT_THAT(said(result), HasSubstr(directory_.file("file")));
  EXPECT_EQ(read_file(directory_.file("file")), "data");
}

TEST_F(BadStart, AStoreThatAnotherDaemonHasOpenIsRefused) {
  const RunResult result = with_store(other_.store_path());
  EXPECT_EQ(result.ending, exited(kStoreFailed)) << said(result);
  EXPECT_THAT(said(result), AllOf(HasSubstr(other_.store_path()), HasSubstr("another")));
}

TEST_F(BadStart, ADamagedStoreIsRefusedAndNothingIsThrownAway) {
  const std::string store = directory_.file("damaged");
  {
    Daemon daemon(directory_, {.name = "damaged-daemon", .store = store});
    Bystander(daemon.address()).expect_progress(20);
    ASSERT_EQ(daemon.stop(), exited(0));
  }
  int damaged = 0;
  for (const auto& entry : std::filesystem::directory_iterator(store)) {
    if (!entry.path().filename().string().starts_with("MANIFEST")) continue;
    truncate_file(entry.path(), entry.file_size() / 2);
    ++damaged;
  }
  ASSERT_GT(damaged, 0);
  const RunResult result = with_store(store);
  EXPECT_EQ(result.ending, exited(kStoreFailed)) << said(result);
  EXPECT_THAT(said(result), HasSubstr(store));
}

TEST_F(BadStart, AMalformedLineIsNamedWithFileAndLine) {
  const auto [path, result] = with_config("[store]\nmode = \"fast\"\nretention_days = = 3\n");
  EXPECT_EQ(result.ending, exited(kConfigurationFailed)) << said(result);
  EXPECT_THAT(said(result), HasSubstr(path + ":3"));
}

TEST_F(BadStart, AnUnknownKeyIsNamedWithFileAndLineAndTheKnownOnes) {
  const auto [path, result] = with_config("[store]\nmode = \"fast\"\nmood = \"durable\"\n");
  EXPECT_EQ(result.ending, exited(kConfigurationFailed)) << said(result);
  EXPECT_THAT(said(result), AllOf(HasSubstr(path + ":3"), HasSubstr("mood"), HasSubstr("mode")));
}

TEST_F(BadStart, AnUnknownSectionIsNamed) {
  const auto [path, result] = with_config("\n[shop]\nmode = \"fast\"\n");
  EXPECT_EQ(result.ending, exited(kConfigurationFailed)) << said(result);
  EXPECT_THAT(said(result), AllOf(HasSubstr(path + ":2"), HasSubstr("shop")));
}

TEST_F(BadStart, AWrongValueIsNamedWithWhatIsAllowed) {
  const auto [path, result] = with_config("[store]\nmode = \"quick\"\n");
  EXPECT_EQ(result.ending, exited(kConfigurationFailed)) << said(result);
  EXPECT_THAT(said(result), AllOf(HasSubstr(path + ":2"), HasSubstr("quick"), HasSubstr("durable"),
                                  HasSubstr("fast")));
}

TEST_F(BadStart, AJobWithAnUnknownPolicyIsNamed) {
  const auto [path, result] =
      with_config("[[job]]\nname = \"j\"\npolicy = \"quantum\"\nexpected_workers = 2\n");
  EXPECT_EQ(result.ending, exited(kConfigurationFailed)) << said(result);
  EXPECT_THAT(said(result), AllOf(HasSubstr(path), HasSubstr("quantum"), HasSubstr("ssp:S")));
}

TEST_F(BadStart, ListeningBeyondLocalhostIsRefusedUnlessItIsSaidToBeInsecure) {
  const std::vector<std::string> open = {
      "--store", "memory",    "--unix",        directory_.file("s.sock"),
      "--tcp",   "0.0.0.0:0", "--check-config"};
  for (const bool only_checked : {true, false}) {
    std::vector<std::string> arguments = open;
    if (!only_checked) arguments.pop_back();
    const RunResult result = syncd(arguments);
    EXPECT_EQ(result.ending, exited(kConfigurationFailed)) << said(result);
    EXPECT_THAT(said(result), AllOf(HasSubstr("0.0.0.0:0"), HasSubstr("insecure")));
  }
  std::vector<std::string> knowingly = open;
  knowingly.push_back("--insecure");
  EXPECT_EQ(syncd(knowingly).ending, exited(0));

  const std::string path = directory_.file("open.toml");
  write_file(path, "[listen]\ntcp = \"0.0.0.0:0\"\n");
  const RunResult result = syncd({"--store", "memory", "--config", path});
  EXPECT_EQ(result.ending, exited(kConfigurationFailed)) << said(result);
  EXPECT_THAT(said(result), AllOf(HasSubstr(path + ":2"), HasSubstr("insecure")));
}

TEST_F(BadStart, AMissingConfigurationFileIsNamed) {
  const RunResult result = syncd({"--config", directory_.file("nowhere.toml")});
  EXPECT_EQ(result.ending, exited(kConfigurationFailed)) << said(result);
  EXPECT_THAT(said(result), HasSubstr(directory_.file("nowhere.toml")));
}

TEST_F(BadStart, AnUnknownFlagIsNamed) {
  const RunResult result = syncd({"--frobnicate"});
  EXPECT_EQ(result.ending, exited(kConfigurationFailed)) << said(result);
  EXPECT_THAT(said(result), HasSubstr("--frobnicate"));
}

}  // namespace
}  // namespace syncd::test
