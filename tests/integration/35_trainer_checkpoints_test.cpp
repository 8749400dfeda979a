// The reference trainer with --checkpoint: after SIGKILL of all of it, with the daemon or without,
// a start with the same directory goes on from the newest complete checkpoint, and the losses are
// those of a run that nothing happened to, bit for bit. The daemon's history has every loss in
// full.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "support/daemon.h"
#include "support/history.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
namespace fs = std::filesystem;

constexpr int kWorkers = 3;

struct Case {
  std::string name;
  std::vector<std::string> training;
  std::int64_t iterations;
  std::int64_t every;
  std::int64_t killed_at;  // an iteration after the second checkpoint
};

// One trainer after the other at one daemon, with one directory of checkpoints.
class Training {
 public:
  Training(const TempDir& directory, const Case& chosen, const std::string& name)
      : directory_(directory),
        chosen_(chosen),
        name_(name),
        daemon_(directory, {.name = "syncd-" + name}) {}

  Daemon& daemon() { return daemon_; }
  std::string checkpoints() const { return directory_.file("checkpoints-" + name_); }

  void start(const std::vector<std::string>& more = {}, const std::string& launch = "") {
    Command command;
    command.argv = {program("reference_trainer"),
                    "--generate",
                    "--workers",
                    std::to_string(kWorkers),
                    "--budget",
                    "each",
                    "--max-iterations",
                    std::to_string(chosen_.iterations),
                    "--target-loss",
                    "0",
                    "--daemon",
                    daemon_.address(),
                    "--job",
                    "trained",
                    "--json",
                    "--checkpoint",
                    checkpoints(),
                    "--checkpoint-every",
                    std::to_string(chosen_.every)};
    command.argv.insert(command.argv.end(), chosen_.training.begin(), chosen_.training.end());
    command.argv.insert(command.argv.end(), more.begin(), more.end());
    command.environment = {{"HOME", directory_.path()}, {"TMPDIR", directory_.path()}};
    if (!launch.empty()) command.environment.emplace_back("SYNCD_LAUNCH", launch);
    command.stdout_path = directory_.file(name_ + ".out");
    command.stderr_path = directory_.file(name_ + ".err");
    process_ = Process(command);
  }
  void await_iteration(std::int64_t iteration) {
    wait_until("iteration " + std::to_string(iteration), [&] {
      if (!process_.running()) throw std::runtime_error("the trainer has ended: " + err());
      return pushers_of(iteration) == kWorkers;
    });
  }
  // The kernel kills its workers with it.
  void kill_trainer() { process_.kill(); }
  void signal(int number) { process_.signal(number); }
  Ending finish() { return process_.wait(); }
  std::string err() const { return read_file(directory_.file(name_ + ".err")); }
  double final_loss() const {
    const auto rows = json_rows(read_file(directory_.file(name_ + ".out")), "policies");
    EXPECT_THAT(rows, SizeIs(1)) << err();
    return rows.empty() ? -1 : std::stod(rows[0].at("final_loss"));
  }

  // By worker and iteration, every loss that was ever pushed.
  using Losses = std::map<std::pair<std::int64_t, std::int64_t>, std::set<std::string>>;
  Losses losses() const {
    Losses all;
    for (const Row& push : export_history(directory_, daemon_, "trained").of_kind("push")) {
      all[{number(push, "rank"), number(push, "iteration")}].insert(push.at("loss"));
    }
    return all;
  }

 private:
  int pushers_of(std::int64_t iteration) const {
    // One export: while the trainer runs, a second one has more.
    const RunResult csv =
        syncctl(directory_, daemon_, {"history", "export", "trained", "--format", "csv"});
    if (csv.ending != exited(0)) return 0;  // nobody has joined yet
    std::set<std::int64_t> workers;
    for (const Row& push : parse_csv(csv.out).of_kind("push")) {
      if (number(push, "iteration") == iteration) workers.insert(number(push, "rank"));
    }
    return static_cast<int>(workers.size());
  }

  const TempDir& directory_;
  const Case& chosen_;
  std::string name_;
  Daemon daemon_;
  Process process_;
};

// The first iteration in which they differ.
std::string difference(const Training::Losses& found, const Training::Losses& expected) {
  std::map<std::int64_t, std::string> differences;
  const auto text_of = [](const Training::Losses& losses, const auto& key) {
    std::string text;
    if (!losses.contains(key)) return text;
    for (const std::string& loss : losses.at(key)) text += " " + loss;
    return text;
  };
  Training::Losses keys = found;
  keys.insert(expected.begin(), expected.end());
  for (const auto& [key, unused] : keys) {
    const std::string has = text_of(found, key);
    const std::string wanted = text_of(expected, key);
    if (has == wanted) continue;
    differences[key.second] +=
        "worker " + std::to_string(key.first) + " has" + has + " and not" + wanted + "; ";
  }
  if (differences.empty()) return "";
  return "iteration " + std::to_string(differences.begin()->first) + ": " +
         differences.begin()->second;
}

class TrainerCheckpoints : public ::testing::TestWithParam<Case> {
 protected:
  TempDir directory_;
};

TEST_P(TrainerCheckpoints, AfterSigkillOfAllTheLossesAreThoseOfAnUninterruptedRun) {
  const Case& chosen = GetParam();
  Training whole(directory_, chosen, "whole");
  whole.start();
  ASSERT_EQ(whole.finish(), exited(0)) << whole.err();
  const Training::Losses expected = whole.losses();
  ASSERT_THAT(expected, SizeIs(kWorkers * chosen.iterations));

  Training killed(directory_, chosen, "killed");
  killed.start();
  killed.await_iteration(chosen.killed_at);
  killed.kill_trainer();
  killed.start();
  killed.await_iteration(chosen.killed_at + chosen.every);
  killed.kill_trainer();  // now the daemon as well
  killed.daemon().kill();
  killed.daemon().start();
  killed.start();
  ASSERT_EQ(killed.finish(), exited(0)) << killed.err();
  EXPECT_THAT(killed.err(), HasSubstr("going on at iteration "));

  // What was computed again after a kill has the same loss as the first time.
  EXPECT_EQ(difference(killed.losses(), expected), "");
  EXPECT_EQ(killed.final_loss(), whole.final_loss());
}

INSTANTIATE_TEST_SUITE_P(
    Models, TrainerCheckpoints,
    ::testing::Values(
        Case{"mf", {"--workload", "mf", "--samples", "2000", "--iteration-ms", "20"}, 100, 10, 25},
        // Momentum: a worker's velocity is saved, too.
        Case{"cnn",
             {"--workload", "cnn", "--samples", "1000", "--batch", "4", "--iteration-ms", "40"},
             40,
             4,
             9},
        Case{"svm",
             {"--workload", "svm", "--samples", "1000", "--workers-as", "threads", "--iteration-ms",
              "10"},
             100,
             10,
             25}),
    [](const auto& param) { return param.param.name; });

class TrainerEnds : public ::testing::Test {
 protected:
  TempDir directory_;
  const Case chosen_{
      "mf", {"--workload", "mf", "--samples", "2000", "--iteration-ms", "20"}, 100, 10, 25};
};

TEST_F(TrainerEnds, ASecondLaunchSupersedesTheFirstAndGoesOn) {
  Training training(directory_, chosen_, "launched");
  training.start({}, "night/1");
  training.await_iteration(25);
  training.kill_trainer();
  training.start({}, "night/2");
  ASSERT_EQ(training.finish(), exited(0)) << training.err();
  EXPECT_THAT(training.err(), HasSubstr("going on at iteration "));
  EXPECT_THAT(training.losses(), SizeIs(kWorkers * chosen_.iterations));
}

// Nobody asks but the signal.
TEST_F(TrainerEnds, SigtermSavesACheckpointFirst) {
  Case unasked = chosen_;
  unasked.every = 0;
  Training training(directory_, unasked, "preempted");
  training.start();
  training.await_iteration(5);
  training.signal(SIGTERM);
  EXPECT_EQ(training.finish(), exited(128 + SIGTERM)) << training.err();
  const History history = export_history(directory_, training.daemon(), "trained");
  EXPECT_THAT(history.of_kind("checkpoint_complete"), Not(IsEmpty()));
  for (const Row& left : history.of_kind("worker_left")) EXPECT_EQ(left.at("reason"), "SIGTERM");
  training.start();
  ASSERT_EQ(training.finish(), exited(0)) << training.err();
  EXPECT_THAT(training.err(), HasSubstr("going on at iteration "));
}

TEST_F(TrainerEnds, ADamagedCheckpointIsToldAndTheOneBeforeUsed) {
  Training training(directory_, chosen_, "damaged");
  training.start();
  training.await_iteration(35);
  training.kill_trainer();
  // The newest complete one, whichever that is.
  std::map<std::int64_t, std::vector<fs::path>> found;
  for (const auto& entry : fs::directory_iterator(training.checkpoints())) {
    const std::string name = entry.path().filename();
    if (entry.path().extension() == ".ckpt") found[std::stoll(name.substr(2))].push_back(entry);
  }
  while (!found.empty() && found.rbegin()->second.size() < kWorkers) {
    found.erase(std::prev(found.end()));
  }
  ASSERT_GE(found.size(), 2U);
  truncate_file(found.rbegin()->second.front(), 100);
  const std::int64_t before = std::prev(found.end(), 2)->first;
  training.start();
  ASSERT_EQ(training.finish(), exited(0)) << training.err();
  EXPECT_THAT(training.err(),
              AllOf(HasSubstr(" is damaged: it has 100 bytes and should have "),
                    HasSubstr("; the checkpoint before it is tried\n"),
                    HasSubstr("from checkpoint " + std::to_string(before) + " of start 1")));
}

TEST_F(TrainerEnds, AnotherTrainingInTheDirectoryIsRefusedInOneSentence) {
  Training training(directory_, chosen_, "other");
  training.start();
  training.await_iteration(25);
  training.kill_trainer();
  training.start({"--seed", "9"});
  EXPECT_EQ(training.finish(), exited(2));
  EXPECT_THAT(training.err(), HasSubstr("is of another training: its seed is 1, here it is 9; "
                                        "allowed: the same training, or another directory\n"));
}

}  // namespace
}  // namespace syncd::test
