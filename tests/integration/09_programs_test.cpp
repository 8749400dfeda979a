// The programs that users get, from end to end: the C example, and the reference trainer at a
// daemon to which something happens meanwhile. The rest about the trainer is in
// unit/reference_trainer.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <map>

#include "support/daemon.h"
#include "support/history.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

using ::testing::HasSubstr;

TEST(Example, FitsItsLineUnderEachPolicy) {
  TempDir directory;
  for (const char* policy : {"bsp", "ssp:3", "asp"}) {
    Daemon daemon(directory, {.name = "syncd-" + std::string(policy), .store = "memory"});
    const RunResult result = run({SYNCD_TEST_EXAMPLE, "4", "200", policy}, directory.path(),
                                 {{"SYNCD_ADDR", daemon.address()}});
    EXPECT_EQ(result.ending, exited(0)) << result.err;
    EXPECT_THAT(result.out, HasSubstr("4 workers under " + std::string(policy) + ": y = "));
    const History history = export_history(directory, daemon, "parameter-server");
    EXPECT_EQ(history.of_kind("push").size(), 4U * 200U);
  }
}

std::uint64_t pushes_of(const Daemon& daemon, const std::string& job) {
  RawClient client = greeted(daemon.address());
  for (const auto& status : client.call_for<wire::JobsReply>(wire::JobsRequest{}).jobs) {
    if (status.name == job) return status.pushes;
  }
  return 0;
}

// While it lives, no file of that process can grow beyond a few kilobytes: to its store that is a
// full disk.
class FullDisk {
 public:
  explicit FullDisk(pid_t pid) : pid_(pid) {
    EXPECT_EQ(prlimit(pid_, RLIMIT_FSIZE, nullptr, &before_), 0);
    rlimit full = before_;
    full.rlim_cur = 4096;
    EXPECT_EQ(prlimit(pid_, RLIMIT_FSIZE, &full, nullptr), 0);
  }
  ~FullDisk() { EXPECT_EQ(prlimit(pid_, RLIMIT_FSIZE, &before_, nullptr), 0); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  pid_t pid_;
  rlimit before_{};
};

// A trainer that runs against a daemon to which something happens meanwhile: one job, on generated
// data, reported as JSON.
class Background {
 public:
  Background(const TempDir& directory, const Daemon& daemon, std::vector<std::string> arguments)
      : directory_(directory), daemon_(daemon) {
    Command command;
    command.argv = {program("reference_trainer"),
                    "--generate",
                    "--samples",
                    "3000",
                    "--daemon",
                    daemon.address(),
                    "--job",
                    "trained",
                    "--json"};
    command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
    command.environment = {{"HOME", directory.path()}, {"TMPDIR", directory.path()}};
    command.stdout_path = directory.file("trainer.out");
    command.stderr_path = directory.file("trainer.err");
    process_ = Process(command);
  }

  template <typename Condition>
  void await(const std::string& what, const Condition& condition) {
    wait_until(what, [&] {
      if (!process_.running()) throw std::runtime_error("the trainer has ended: " + err());
      return condition();
    });
  }
  void await_pushes(std::uint64_t count) {
    await("push " + std::to_string(count), [&] { return pushes_of(daemon_, "trained") >= count; });
  }
  std::string err() const { return read_file(directory_.file("trainer.err")); }
  RunResult finish() {
    const Ending ending = process_.wait();
    return {ending, read_file(directory_.file("trainer.out")), err()};
  }

 private:
  const TempDir& directory_;
  const Daemon& daemon_;
  Process process_;
};

class Trainer : public ::testing::Test {
 protected:
  // What the one policy's run came to, by the trainer's JSON.
  struct Outcome {
    std::int64_t iterations = 0;
    std::int64_t late = 0;
    std::int64_t skipped = 0;
    std::int64_t updates = 0;
    std::string job;
  };
  static Outcome outcome(const RunResult& result) {
    EXPECT_EQ(result.ending, exited(0)) << result.err;
    const auto rows = json_rows(result.out, "policies");
    EXPECT_EQ(rows.size(), 1U);
    if (rows.size() != 1) return {};
    const Row& row = rows[0];
    return {number(row, "iterations"), number(row, "late"), number(row, "skipped"),
            number(row, "updates"), row.at("job")};
  }

  TempDir directory_;
};

TEST_F(Trainer, TrainsAgainstADaemonThatIsKilledMeanwhile) {
  Daemon daemon(directory_);
  Background trainer(directory_, daemon,
                     {"--workload", "svm", "--policy", "ssp:3", "--workers", "4", "--iteration-ms",
                      "5", "--max-iterations", "100"});
  for (const std::uint64_t moment : {50U, 200U}) {
    trainer.await_pushes(moment);
    daemon.kill();
    daemon.start();
  }
  const Outcome run = outcome(trainer.finish());
  EXPECT_EQ(run.iterations, 400);
  EXPECT_EQ(run.updates, 400);
  EXPECT_EQ(export_history(directory_, daemon, run.job).of_kind("push").size(), 400U);
}

TEST_F(Trainer, OutlivesADiskThatIsFullForAWhile) {
  Daemon daemon(directory_);
  // The slow worker computes when the disk fills up, and so makes a call that is refused at once.
  Background trainer(directory_, daemon,
                     {"--workload", "mf", "--policy", "asp", "--workers", "4", "--iteration-ms",
                      "5", "--slowdown", "fixed:0=8x", "--max-iterations", "100"});
  trainer.await_pushes(100);
  {
    const FullDisk disk(daemon.pid());
    trainer.await("a worker is refused",
                  [&] { return trainer.err().find("SYNCD_E_STORE") != std::string::npos; });
  }
  const RunResult result = trainer.finish();
  const std::string notice = "workers try such calls again until they succeed";
  EXPECT_THAT(result.err, HasSubstr(notice));
  EXPECT_EQ(result.err.find(notice), result.err.rfind(notice)) << "it is said once";
  const Outcome run = outcome(result);
  EXPECT_EQ(run.iterations, 400);
  EXPECT_EQ(run.updates, 400);
  EXPECT_EQ(export_history(directory_, daemon, run.job).of_kind("push").size(), 400U);
}

TEST_F(Trainer, DropsLateUpdatesOfAWorkerThatIsNotWaitedFor) {
  Daemon daemon(directory_, {.store = "memory"});
  Background trainer(
      directory_, daemon,
      {"--workload", "mf", "--policy", "bsp:2,backup=1", "--workers", "3", "--iteration-ms", "2",
       "--slowdown", "fixed:2=20x", "--max-iterations", "100"});
  const Outcome run = outcome(trainer.finish());
  EXPECT_EQ(run.iterations, 300);
  EXPECT_GT(run.late, 0);
  EXPECT_GT(run.skipped, 0);
  EXPECT_EQ(run.updates, 300) << "late ones are not in the parameters";
  std::map<std::string, std::int64_t> pushes;
  for (const Row& row : export_history(directory_, daemon, run.job).of_kind("push")) {
    const bool late = row.contains("late") && row.at("late") == "true";
    ++pushes[late ? "late" : "counted"];
    if (late) {
      EXPECT_EQ(row.at("rank"), "2");
    }
  }
  EXPECT_EQ(pushes["counted"], run.iterations);
  EXPECT_EQ(pushes["late"], run.late);
}

}  // namespace
}  // namespace syncd::test
