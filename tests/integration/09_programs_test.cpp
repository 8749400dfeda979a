// The programs that users get, from end to end: the C example and the reference trainer.
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

TEST(Example, SaysThatNoDaemonAnswers) {
  TempDir directory;
  const RunResult result = run({SYNCD_TEST_EXAMPLE}, directory.path(),
                               {{"SYNCD_ADDR", "unix:" + directory.file("nobody.sock")},
                                {"SYNCD_CONNECT_TIMEOUT_SEC", "1"}});
  EXPECT_EQ(result.ending, exited(1));
  EXPECT_THAT(result.err, HasSubstr("SYNCD_E_UNREACHABLE"));
  EXPECT_THAT(result.err, HasSubstr("nobody.sock"));
}

std::uint64_t pushes_of(const Daemon& daemon, const std::string& job) {
  RawClient client(daemon.address());
  client.hello();
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
  // Small and quick: a few dozen iterations of a millisecond.
  RunResult train(const std::vector<std::string>& arguments) {
    std::vector<std::string> argv = {program("reference_trainer"),
                                     "--iteration-ms",
                                     "1",
                                     "--workers",
                                     "3",
                                     "--max-iterations",
                                     "20"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run(argv, directory_.path(),
               {{"HOME", directory_.path()},
                {"TMPDIR", directory_.path()},
                {"SYNCD_CONNECT_TIMEOUT_SEC", connect_timeout_sec_}});
  }

  // What one policy's run came to, by the trainer's JSON.
  struct Outcome {
    std::string policy;
    std::int64_t iterations = 0;
    double final_loss = 0;
    std::int64_t staleness_max = 0;
    std::int64_t late = 0;
    std::int64_t skipped = 0;
    std::int64_t updates = 0;
    std::string job;
  };
  std::vector<Outcome> outcomes(const RunResult& result) {
    std::vector<Outcome> out;
    for (const Row& row : json_rows(result.out, "policies")) {
      out.push_back({row.at("policy"), number(row, "iterations"), std::stod(row.at("final_loss")),
                     number(row, "staleness_max"), number(row, "late"), number(row, "skipped"),
                     number(row, "updates"), row.at("job")});
    }
    return out;
  }
  Outcome only_outcome(const RunResult& result) {
    EXPECT_EQ(result.ending, exited(0)) << result.err;
    const auto all = outcomes(result);
    EXPECT_EQ(all.size(), 1U);
    return all.size() == 1 ? all[0] : Outcome();
  }

  TempDir directory_;
  std::string connect_timeout_sec_ = "30";
};

TEST_F(Trainer, ComparesPoliciesWithADaemonOfItsOwn) {
  const std::string csv = directory_.file("csv");
  const RunResult result =
      train({"--workload", "mf", "--generate", "--samples", "4000", "--compare", "bsp,asp,ssp:2",
             "--slowdown", "fixed:1=3x", "--out", csv});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  // A line of headings and one line a policy, each with as many columns.
  std::size_t rows = 0;
  for (const std::string& line : lines_of(result.out)) {
    rows += line.starts_with("policy ") || line.starts_with("bsp ") || line.starts_with("asp ") ||
            line.starts_with("ssp:2 ");
  }
  EXPECT_EQ(rows, 4U) << result.out;
  for (const char* name : {"mf-bsp-loss.csv", "mf-asp-workers.csv", "mf-ssp-2-loss.csv"}) {
    EXPECT_FALSE(parse_csv(read_file(csv + "/" + name)).rows.empty()) << name;
  }
}

TEST_F(Trainer, LearnsAndKeepsThePolicysBound) {
  for (const char* workload : {"mf", "svm"}) {
    const RunResult result =
        train({"--workload", workload, "--generate", "--samples", "4000", "--compare", "bsp,ssp:2",
               "--slowdown", "fixed:0=2x", "--json"});
    ASSERT_EQ(result.ending, exited(0)) << result.err;
    const auto runs = outcomes(result);
    ASSERT_EQ(runs.size(), 2U);
    EXPECT_EQ(runs[0].policy, "bsp");
    EXPECT_EQ(runs[0].staleness_max, 0);
    EXPECT_LE(runs[1].staleness_max, 2);
    for (const Outcome& one : runs) {
      EXPECT_EQ(one.iterations, 60) << workload << " under " << one.policy;
      // The constant guess costs ln 2 for svm, and about 1.05 for mf's generated ratings.
      EXPECT_LT(one.final_loss, workload == std::string("svm") ? 0.6931 : 1.05);
      EXPECT_GT(one.final_loss, 0);
    }
  }
}

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
  const Outcome run = only_outcome(trainer.finish());
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
  const Outcome run = only_outcome(result);
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
  const Outcome run = only_outcome(trainer.finish());
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

TEST_F(Trainer, ATruncatedDataFileIsNamedWithItsLineAndCostsNobodyElseAnything) {
  Daemon daemon(directory_, {.store = "memory"});
  Bystander bystander(daemon.address());
  struct Case {
    const char* workload;
    const char* format;
    const char* name;
  };
  for (const Case& one : {Case{"mf", "u.data", "u.data"}, Case{"mf", "ratings.csv", "ratings.csv"},
                          Case{"svm", "u.data", "train.libsvm"}}) {
    const std::string data = directory_.file(std::string("data-") + one.name);
    const std::vector<std::string> common = {"--workload", one.workload, "--data-dir",
                                             data,         "--daemon",   daemon.address()};
    std::vector<std::string> generating = common;
    generating.insert(generating.end(),
                      {"--generate", "--samples", "2000", "--format", one.format});
    if (one.workload == std::string("svm")) generating.resize(generating.size() - 2);
    ASSERT_EQ(train(generating).ending, exited(0)) << one.name;

    const std::string file = data + "/" + one.name;
    const std::string whole = read_file(file);
    truncate_file(file, whole.size() / 2 + (whole[whole.size() / 2 - 1] == '\n' ? 1 : 0));
    const std::size_t cut_line = lines_of(read_file(file)).size();
    const RunResult result = train(common);
    EXPECT_EQ(result.ending, exited(2)) << one.name << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr(file + ":" + std::to_string(cut_line))) << one.name;
    bystander.expect_progress();
  }
}

TEST_F(Trainer, WrongUseIsNamed) {
  RunResult result = train({"--workload", "mf", "--generate", "--policy", "quantum"});
  EXPECT_EQ(result.ending, exited(2));
  EXPECT_THAT(result.err, HasSubstr("quantum"));
  result = train({"--workload", "mf", "--data-dir", directory_.file("nothing-here")});
  EXPECT_EQ(result.ending, exited(2));
  EXPECT_THAT(result.err, HasSubstr("nothing-here"));
  connect_timeout_sec_ = "1";
  result = train({"--workload", "mf", "--generate", "--samples", "2000", "--daemon",
                  "unix:" + directory_.file("nobody.sock")});
  EXPECT_EQ(result.ending, exited(1));
  EXPECT_THAT(result.err, HasSubstr("nobody.sock"));
}

}  // namespace
}  // namespace syncd::test
