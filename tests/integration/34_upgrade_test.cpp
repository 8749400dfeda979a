// A store that an older daemon has left, as its users will hand it to this one:
// tests/data/store_8bade98 was made by the daemon of that commit, once killed while three workers
// of `old-live` ran, once stopped later.
#include <gmock/gmock.h>

#include <filesystem>

#include "support/daemon.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

namespace fs = std::filesystem;

std::string old_data(const std::string& name) {
  return SYNCD_TEST_SOURCE_DIR "/data/store_8bade98/" + name;
}

std::string export_of(const TempDir& directory, const Daemon& daemon, const std::string& job) {
  const RunResult exported =
      syncctl(directory, daemon, {"history", "export", job, "--format", "jsonl"});
  EXPECT_EQ(exported.ending, exited(0)) << exported.err;
  return exported.out;
}

class OldStore : public ::testing::TestWithParam<const char*> {};

TEST_P(OldStore, IsServedWholeAndItsJobsGoOn) {
  TempDir directory;
  fs::copy(old_data(GetParam()), directory.file("store"), fs::copy_options::recursive);
  DaemonOptions options;
  options.store = directory.file("store");
  Daemon daemon(directory, options);

  for (const auto& file : fs::directory_iterator(old_data("history"))) {
    const std::string job = file.path().stem();
    const std::string then = read_file(file.path());
    const std::string now = export_of(directory, daemon, job);
    ASSERT_FALSE(then.empty());
    EXPECT_EQ(now.substr(0, then.size()), then) << job;
    if (job == "old-live") continue;
    EXPECT_EQ(now.size(), then.size()) << job << " was stopped";
  }

  RawClient client(daemon.address());
  client.hello();
  wire::Join back = join_of("old-live", 0, 3, "ssp:3");
  back.name = "worker-0";
  back.host = "vm";
  back.incarnation = 1;  // as its history says
  back.epoch = 1;
  back.granted = 35;
  back.pushed = 35;
  RawWorker worker(client, back);
  EXPECT_TRUE(worker.joined().resumed);
  const std::int64_t next = worker.joined().iteration;
  EXPECT_EQ(next, 36) << "its history has iterations 0 to 35";
  worker.begin(next);
  worker.push(next);
  EXPECT_GT(export_of(directory, daemon, "old-live").size(),
            read_file(old_data("history/old-live.jsonl")).size());
  EXPECT_EQ(daemon.stop(), exited(0));
}

INSTANTIATE_TEST_SUITE_P(MadeBy8bade98, OldStore, ::testing::Values("closed", "killed"),
                         [](const auto& store) { return std::string(store.param); });

}  // namespace
}  // namespace syncd::test
