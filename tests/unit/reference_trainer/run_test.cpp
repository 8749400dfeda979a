// The program itself with real worker processes and a real syncd: a comparison, and what happens
// when a worker, the daemon, the trainer or the user ends things early. Polls with deadlines; no
// timing is asserted.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "reference_trainer/data/data_file.h"
#include "reference_trainer/run/process.h"

namespace syncd::trainer {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

constexpr std::int64_t kDeadlineMs = 120'000;

std::string contents(const fs::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool becomes_true(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kDeadlineMs);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// Fields 3 (state) and 4 (parent) of /proc/PID/stat; the name before them may hold anything.
std::pair<char, pid_t> state_and_parent(const fs::path& process) {
  const std::string stat = contents(process / "stat");
  const std::size_t name_end = stat.rfind(')');
  if (name_end == stat.npos) return {'X', 0};
  std::istringstream rest(stat.substr(name_end + 1));
  char state = 'X';
  pid_t parent = 0;
  rest >> state >> parent;
  return {state, parent};
}

// Living children of a process whose command line holds `word`.
std::vector<pid_t> children_of(pid_t parent, const std::string& word) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const auto pid = parse_unsigned(entry.path().filename().string());
    if (!pid) continue;
    const auto [state, its_parent] = state_and_parent(entry.path());
    if (its_parent != parent || state == 'Z' || state == 'X') continue;
    if (contents(entry.path() / "cmdline").find(word) != std::string::npos) {
      found.push_back(static_cast<pid_t>(*pid));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool is_alive(pid_t pid) {
  const char state = state_and_parent("/proc/" + std::to_string(pid)).first;
  return state != 'X' && state != 'Z';
}

// One call of the program, with a temporary directory of its own under TMPDIR, in which nothing may
// be left when it has ended.
class Trainer {
 public:
  explicit Trainer(std::vector<std::string> arguments) {
    fs::create_directory(temporary());
    ::setenv("TMPDIR", temporary().c_str(), 1);
    ::setenv("SYNCD_CONNECT_TIMEOUT_SEC", "1", 1);
    ::unsetenv("SYNCD_ADDR");
    SpawnOptions spawn;
    // One stream for each would need more of ChildProcess than the program does.
    spawn.program = "/bin/sh";
    spawn.arguments = {"-c", "exec \"$@\" >\"$0/out\" 2>\"$0/err\"", place_.path().string(),
                       SYNCD_TEST_BIN_DIR "/reference_trainer"};
    spawn.arguments.insert(spawn.arguments.end(), arguments.begin(), arguments.end());
    process_ = ChildProcess::start(spawn);
  }

  ~Trainer() { ::unsetenv("TMPDIR"); }

  std::string wait() {
    const auto status = process_->wait(kDeadlineMs);
    return status ? describe_exit(*status) : "still running";
  }
  pid_t pid() const { return process_->pid(); }
  void signal(int number) { process_->signal(number); }
  std::string out() const { return contents(place_.path() / "out"); }
  std::string err() const { return contents(place_.path() / "err"); }
  fs::path directory() const { return place_.path(); }
  fs::path temporary() const { return place_.path() / "tmp"; }
  std::vector<std::string> left_behind() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(temporary())) names.push_back(entry.path());
    return names;
  }

  std::vector<pid_t> workers() const { return children_of(pid(), "--internal-worker"); }
  std::vector<pid_t> daemons() const { return children_of(pid(), "syncd.sock"); }

  // Waits until the first iteration was granted, for which all workers must have joined. Takes
  // --verbose.
  std::vector<pid_t> wait_for_start(std::size_t count) {
    EXPECT_TRUE(becomes_true([&] {
      return err().find("the first iteration was granted") != std::string::npos;
    })) << err();
    const std::vector<pid_t> pids = workers();
    EXPECT_EQ(pids.size(), count);
    return pids;
  }

 private:
  TemporaryDirectory place_;
  std::optional<ChildProcess> process_;
};

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

TEST(TrainerRun, ComparesPoliciesAgainstItsOwnDaemon) {
  const TemporaryDirectory csv;
  Trainer trainer(
      words("--workload mf --workers 3 --compare bsp,asp,ssp:1 --generate --samples 2000 "
            "--slowdown fixed:2=3x --iteration-ms 2 --max-iterations 20 --json "
            "--out " +
            csv.path().string()));
  ASSERT_EQ(trainer.wait(), "exit status 0") << trainer.err();
  const json report = json::parse(trainer.out());
  ASSERT_EQ(report["policies"].size(), 3U);
  for (const json& run : report["policies"]) {
    EXPECT_EQ(run["iterations"], 60);
    EXPECT_TRUE(run["failure"].is_null());
    EXPECT_EQ(run["lost_workers"], 0);
    EXPECT_EQ(run["workers"].size(), 3U);
    EXPECT_GT(run["seconds"], 0);
    EXPECT_GE(run["waiting_share"], 0);
    EXPECT_LT(run["waiting_share"], 1);
  }
  // What the policies promise of staleness, measured by the workers themselves.
  EXPECT_EQ(report["policies"][0]["staleness_max"], 0);
  EXPECT_LE(report["policies"][2]["staleness_max"], 1);
  for (const char* name : {"mf-bsp-loss.csv", "mf-asp-loss.csv", "mf-ssp-1-loss.csv"}) {
    const std::string curve = contents(csv.path() / name);
    EXPECT_THAT(curve, HasSubstr("time_s,iterations,loss\n0.000,0,"));
    EXPECT_THAT(curve, HasSubstr(",60,"));
  }
  EXPECT_THAT(trainer.left_behind(), IsEmpty());
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
  return found;
}

TEST(TrainerRun, WritesAReportOfWhatHappened) {
  const TemporaryDirectory place;
  const fs::path page = place.path() / "report.html";
  const fs::path lines = place.path() / "series.jsonl";
  Trainer trainer(
      words("--workload mf --workers 3 --compare bsp,elastic_bsp:4,specsync+asp --generate "
            "--samples 2000 --slowdown fixed:2=3x --iteration-ms 2 --max-iterations 20 --quiet "
            "--report " +
            page.string() + " --json-lines " + lines.string()));
  ASSERT_EQ(trainer.wait(), "exit status 0") << trainer.err();
  EXPECT_EQ(trainer.err(), "") << "quiet, and no terminal";
  EXPECT_THAT(trainer.out(), HasSubstr("\nwrote " + page.string() + "\n"));
  const std::string html = contents(page);
  EXPECT_THAT(html, AllOf(HasSubstr("mf under 3 policies"), HasSubstr("elastic_bsp:4"),
                          HasSubstr("--max-iterations 20"), HasSubstr("</html>")));
  for (const char* recorded :
       {"\"what\":\"computing\"", "\"what\":\"pushing\"", "\"barriers_s\":["}) {
    EXPECT_GT(count(html, recorded), 0U) << recorded;
  }
  // The series agree with the sums: every grant has its staleness, every worker its times.
  std::istringstream in(contents(lines));
  std::int64_t grants = 0;
  std::int64_t iterations = 0;
  for (std::string line; std::getline(in, line);) {
    const json entry = json::parse(line);
    if (entry["type"] == "staleness") grants += entry["grants"].get<std::int64_t>();
    if (entry["type"] == "worker") iterations += entry["iterations"].get<std::int64_t>();
  }
  EXPECT_EQ(iterations, 3 * 60);
  EXPECT_GE(grants, iterations);
}

TEST(TrainerRun, AReportThatCannotBeWrittenIsRefusedBeforeTheFirstRun) {
  Trainer trainer(words("--workload mf --generate --report /nonexistent/report.html"));
  EXPECT_EQ(trainer.wait(), "exit status 2");
  EXPECT_THAT(trainer.err(), HasSubstr("--report: /nonexistent/report.html cannot be written: "
                                       "directory /nonexistent: No such file or directory"));
}

TEST(TrainerRun, TheLossFallsUnderEveryPolicyAndTheTargetEndsARun) {
  Trainer trainer(
      words("--workload svm --workers 2 --compare bsp,asp --generate --iteration-ms 0 "
            "--max-iterations 100000 --target-loss 0.6 --json"));
  ASSERT_EQ(trainer.wait(), "exit status 0") << trainer.err();
  const json report = json::parse(trainer.out());
  for (const json& run : report["policies"]) {
    EXPECT_LT(run["final_loss"], 0.62);
    EXPECT_TRUE(run["time_to_target_s"].is_number());
    EXPECT_LT(run["iterations"], 200'000);
  }
}

TEST(TrainerRun, TrainsANetworkAndReportsItsAccuracy) {
  Trainer trainer(
      words("--workload cnn --workers 2 --compare bsp,asp --generate --samples 1000 --batch 8 "
            "--iteration-ms 0 --max-iterations 6 --json"));
  ASSERT_EQ(trainer.wait(), "exit status 0") << trainer.err();
  const json report = json::parse(trainer.out());
  EXPECT_THAT(report["data"].get<std::string>(),
              HasSubstr("1000 images to train on, 200 held out"));
  for (const json& run : report["policies"]) {
    EXPECT_EQ(run["iterations"], 12);
    EXPECT_NE(run["final_loss"], run["initial_loss"]);
    EXPECT_GE(run["final_accuracy"], 0);
    EXPECT_LE(run["final_accuracy"], 1);
  }
  EXPECT_THAT(trainer.left_behind(), IsEmpty());
}

TEST(TrainerRun, WithoutAGpuCudaSaysWhatIsMissingBeforeAnythingStarts) {
  Trainer trainer(
      words("--workload cnn --backend cuda --workers 2 --generate --samples 1000 --batch 8 "
            "--iteration-ms 0 --max-iterations 3 --json"));
  const std::string end = trainer.wait();
  if (end == "exit status 0") GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(end, "exit status 2");
  EXPECT_THAT(trainer.err(), ::testing::StartsWith("reference_trainer: --backend cuda: "));
#ifdef SYNCD_HAS_CUDA
  // It was built, so it can be loaded, and says itself what it lacks.
  EXPECT_THAT(trainer.err(), HasSubstr("there is no GPU that CUDA can use"));
#endif
  EXPECT_EQ(trainer.out(), "");
}

// In the trainer's own process, where the queues of forty workers would not fit.
TEST(TrainerRun, FortyWorkersOfARingTrainInVirtualTime) {
  Trainer trainer(words(
      "--workload cnn --workers 40 --policy hop:ring_based,max_ig=5 --virtual-time --generate "
      "--samples 1000 --batch 1 --target-loss 1 --max-iterations 1 --json"));
  EXPECT_EQ(trainer.wait(), "exit status 0") << trainer.err();
  EXPECT_EQ(json::parse(trainer.out())["policies"][0]["iterations"], 40);
}

// ---- Workers as threads

TEST(TrainerRun, WorkersMayBeThreads) {
  ::setenv("SYNCD_JOB", "that-of-somebody-else", 1);  // is not for workers
  Trainer trainer(
      words("--workload mf --workers 3 --workers-as threads --generate --samples 2000 "
            "--compare bsp,asp,ssp:1,hop:complete,max_ig=2 --slowdown fixed:2=3x --iteration-ms 2 "
            "--max-iterations 20 --json --verbose"));
  ::unsetenv("SYNCD_JOB");
  trainer.wait_for_start(0);
  ASSERT_EQ(trainer.wait(), "exit status 0") << trainer.err();
  const json report = json::parse(trainer.out());
  ASSERT_EQ(report["policies"].size(), 4U);
  for (const json& run : report["policies"]) {
    EXPECT_EQ(run["iterations"], 60);
    EXPECT_EQ(run["updates"], 60);
    EXPECT_TRUE(run["failure"].is_null());
    EXPECT_EQ(run["lost_workers"], 0);
    EXPECT_LT(run["final_loss"], run["initial_loss"]);
    for (const json& worker : run["workers"]) EXPECT_EQ(worker["end"], "finished");
  }
  EXPECT_EQ(report["policies"][0]["staleness_max"], 0);
  EXPECT_LE(report["policies"][2]["staleness_max"], 1);
  EXPECT_THAT(trainer.left_behind(), IsEmpty());
}

TEST(TrainerRun, AnInterruptStopsThreadsTooAndStillReports) {
  Trainer trainer(
      words("--workload mf --workers 3 --workers-as threads --policy bsp --generate --samples 2000 "
            "--iteration-ms 20 --max-iterations 100000 --verbose"));
  trainer.wait_for_start(0);
  const std::vector<pid_t> daemons = trainer.daemons();
  ASSERT_EQ(daemons.size(), 1U);
  trainer.signal(SIGINT);
  EXPECT_EQ(trainer.wait(), "exit status 130") << trainer.err();
  EXPECT_THAT(trainer.out(), AllOf(HasSubstr("policy"), HasSubstr("bsp: interrupted")));
  EXPECT_FALSE(is_alive(daemons[0]));
  EXPECT_THAT(trainer.left_behind(), IsEmpty());
}

TEST(TrainerRun, ADaemonThatDiesFailsTheRunOfThreads) {
  Trainer trainer(
      words("--workload mf --workers 2 --workers-as threads --policy bsp --generate --samples 2000 "
            "--iteration-ms 20 --max-iterations 100000 --verbose"));
  trainer.wait_for_start(0);
  const std::vector<pid_t> daemons = trainer.daemons();
  ASSERT_EQ(daemons.size(), 1U);
  ASSERT_EQ(::kill(daemons[0], SIGKILL), 0);
  EXPECT_EQ(trainer.wait(), "exit status 1");
  EXPECT_THAT(trainer.out(), HasSubstr("bsp: the run failed: syncd ended by itself"));
  EXPECT_THAT(trainer.left_behind(), IsEmpty());
}

// ---- Decentralized and speculative policies

// One run of four workers under a policy with 40 iterations for each; its part of the report.
json run_of(const std::string& policy, const std::string& more) {
  Trainer trainer(
      words("--workload svm --workers 4 --generate --samples 4000 --budget each "
            "--max-iterations 40 --json --policy " +
            policy + " " + more));
  EXPECT_EQ(trainer.wait(), "exit status 0") << trainer.err();
  const json report = json::parse(trainer.out(), nullptr, false);
  return report.is_object() ? report["policies"][0] : json::object();
}

void expect_healthy(const json& run) {
  ASSERT_TRUE(run.contains("iterations"));
  EXPECT_EQ(run["iterations"], 4 * 40);
  EXPECT_EQ(run["lost_workers"], 0);
  EXPECT_EQ(run["missing_updates"], 0);
  EXPECT_EQ(run["torn_updates"], 0);
  EXPECT_LT(run["final_loss"], 0.9 * run["initial_loss"].get<double>());
}

TEST(TrainerRun, HopTrainsOnARing) {
  const json run = run_of("hop:ring,max_ig=2", "--iteration-ms 1 --learning-rate 0.25");
  expect_healthy(run);
  // Two neighbours each, all of whose updates are read; but for the end, when they leave.
  EXPECT_GT(run["reduced_updates"], 4 * 2 * 35);
  EXPECT_LE(run["reduced_updates"], 4 * 3 * 40);
  EXPECT_LE(run["staleness_max"], 2) << "the longest path of the ring";
  EXPECT_LT(run["final_loss_of_one_worker"], 0.9 * run["initial_loss"].get<double>());
}

TEST(TrainerRun, HopWithABackupStandsASlowWorker) {
  const json run =
      run_of("hop:ring_based,max_ig=3,backup=1", "--iteration-ms 1 --slowdown fixed:3=6x");
  expect_healthy(run);
  EXPECT_LT(run["reduced_updates"], 4 * 3 * 40) << "the slow one is not always waited for";
}

TEST(TrainerRun, HopWithStalenessReducesWhatIsThere) {
  expect_healthy(
      run_of("hop:ring_based,max_ig=4,staleness=3", "--iteration-ms 1 --slowdown random:6x@0.1"));
}

TEST(TrainerRun, HopLetsASlowWorkerJump) {
  const std::string policy = "hop:ring_based,max_ig=2,backup=1,skip=10,skip_trigger=2";
  const json run = run_of(policy, "--iteration-ms 1 --slowdown fixed:3=6x");
  expect_healthy(run);
  // A busy machine may hold another one up as well.
  EXPECT_GT(run["workers"][3]["skipped"], run["skipped"].get<int>() / 2);
  const json at_leisure =
      run_of(policy, "--virtual-time --iteration-time constant:1 --slowdown fixed:3=6x");
  EXPECT_GT(at_leisure["skipped"], 0);
  EXPECT_EQ(at_leisure["skipped"], at_leisure["workers"][3]["skipped"]) << "the others never do";
}

TEST(TrainerRun, NotifyAckReducesOneWholeUpdateOfEveryInNeighbour) {
  const json run = run_of("notify_ack:root_expander", "--iteration-ms 1 --slowdown random:6x@0.1");
  expect_healthy(run);
  EXPECT_GT(run["reduced_updates"], 4 * 2 * 38) << "all, but for the end, when they leave";
  EXPECT_LE(run["reduced_updates"], 4 * 3 * 40);
}

TEST(TrainerRun, SpecSyncDropsWorkThatOthersHaveOvertaken) {
  const json run = run_of("specsync:fixed,8,0.2+asp", "--iteration-ms 16 --slowdown random:2x@0.3");
  expect_healthy(run);
  EXPECT_GT(run["restarts"], 0);
  EXPECT_GT(run["wasted_share"], 0);
  EXPECT_LT(run["wasted_share"], 1);
}

// Nothing was trained, no daemon was asked, and no table is printed.
void expect_refused(const std::string& compare, const std::string& reason) {
  const TemporaryDirectory csv;
  Trainer trainer(
      words("--workload mf --workers 3 --generate --max-iterations 5 --daemon unix:/no/such/socket "
            "--out " +
            (csv.path() / "new").string() + " --compare " + compare));
  EXPECT_EQ(trainer.wait(), "exit status 2") << compare;
  EXPECT_EQ(trainer.out(), "");
  EXPECT_THAT(trainer.err(), AllOf(HasSubstr("--compare: policy "), HasSubstr(reason)));
  EXPECT_FALSE(fs::exists(csv.path() / "new"));
  EXPECT_THAT(trainer.left_behind(), IsEmpty());
}

TEST(TrainerRun, AWrongPolicyAnywhereInAListIsRefusedBeforeTheFirstRun) {
  expect_refused("asp,bsp,ssp:many", "'ssp:many'");
  expect_refused("asp,hop:ring_based,max_ig=2,bsp", "the nearest are 2 and 4");
}

TEST(TrainerRun, QueuesThatNeedTooMuchMemoryAreRefusedBeforeTheFirstRun) {
  Trainer trainer(
      words("--workload mf --workers 200 --compare bsp,hop:ring,max_ig=100 --generate"));
  EXPECT_EQ(trainer.wait(), "exit status 2");
  EXPECT_THAT(trainer.err(),
              AllOf(HasSubstr("hop:ring,max_ig=100: 200 workers"), HasSubstr("allowed: 2 GiB")));
}

// A syncd that gives up workers that are gone within a second.
class HastyDaemon {
 public:
  HastyDaemon() {
    write_data_file(place_.path() / "syncd.toml", "[listen]\ntcp = \"off\"\nunix = \"" + socket() +
                                                      "\"\n[store]\npath = \"memory\"\n[timeouts]\n"
                                                      "worker_grace = \"300ms\"\n"
                                                      "heartbeat_timeout = \"600ms\"\n");
    SpawnOptions spawn;
    spawn.program = SYNCD_TEST_BIN_DIR "/syncd";
    spawn.arguments = {"--config", (place_.path() / "syncd.toml").string()};
    spawn.output_fd = ::open(log().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    process_ = ChildProcess::start(spawn);
    ::close(spawn.output_fd);
    EXPECT_TRUE(becomes_true([this] { return fs::exists(socket()); }));
  }
  ~HastyDaemon() {
    process_->signal(SIGTERM);
    process_->wait(kDeadlineMs);
  }
  std::string address() const { return "unix:" + socket(); }
  bool has_given_up_a_worker() const {
    return contents(log()).find(" worker_lost ") != std::string::npos;
  }

 private:
  fs::path log() const { return place_.path() / "syncd.log"; }
  std::string socket() const { return (place_.path() / "syncd.sock").string(); }

  TemporaryDirectory place_;
  std::optional<ChildProcess> process_;
};

// The others go on without the lost one, whose half-sent updates nobody takes for whole.
TEST(TrainerRun, AKilledWorkerOfADecentralizedRunSpoilsNothing) {
  const HastyDaemon daemon;
  Trainer trainer(
      words("--workload mf --workers 4 --policy hop:ring,max_ig=2 --generate --samples 2000 "
            "--iteration-ms 5 --max-iterations 100 --budget each --json --verbose --daemon " +
            daemon.address()));
  const std::vector<pid_t> workers = trainer.wait_for_start(4);
  ASSERT_EQ(::kill(workers[1], SIGKILL), 0);
  ASSERT_EQ(trainer.wait(), "exit status 0") << trainer.err();
  const json run = json::parse(trainer.out())["policies"][0];
  EXPECT_EQ(run["lost_workers"], 1);
  EXPECT_EQ(run["iterations"], 3 * 100 + run["workers"][1]["iterations"].get<int>());
  EXPECT_EQ(run["missing_updates"], 0);
  EXPECT_EQ(run["torn_updates"], 0);
  EXPECT_LT(run["final_loss"], run["initial_loss"]);
}

class ComesBack : public ::testing::TestWithParam<const char*> {};

// A worker that stands still until it is given up takes part again and spoils nothing.
TEST_P(ComesBack, AWorkerThatWasGivenUpTakesPartAgain) {
  const HastyDaemon daemon;
  Trainer trainer(
      words("--workload mf --workers 4 --generate --samples 2000 --iteration-ms 5 --json --verbose "
            "--max-iterations 300 --budget each --policy " +
            std::string(GetParam()) + " --daemon " + daemon.address()));
  const std::vector<pid_t> workers = trainer.wait_for_start(4);
  ASSERT_EQ(::kill(workers[1], SIGSTOP), 0);
  EXPECT_TRUE(becomes_true([&] { return daemon.has_given_up_a_worker(); }));
  ASSERT_EQ(::kill(workers[1], SIGCONT), 0);
  ASSERT_EQ(trainer.wait(), "exit status 0") << trainer.err();
  const json run = json::parse(trainer.out())["policies"][0];
  EXPECT_EQ(run["lost_workers"], 0) << trainer.err();
  EXPECT_EQ(run["iterations"], 4 * 300);
  // Given up, as was seen above, and here to its last iteration. Whether the trainer joined it
  // again or the client library, which does so where it waited in begin, depends on where it was
  // stopped.
  EXPECT_EQ(run["workers"][1]["iterations"], 300);
  EXPECT_EQ(run["missing_updates"], 0);
  EXPECT_EQ(run["torn_updates"], 0);
  EXPECT_LT(run["final_loss"], run["initial_loss"]);
}

INSTANTIATE_TEST_SUITE_P(TrainerRun, ComesBack,
                         ::testing::Values("hop:ring,max_ig=2", "notify_ack:ring"));

// ---- What may end early

TEST(TrainerRun, AKilledWorkerDoesNotEndTheRunForTheOthers) {
  const HastyDaemon daemon;
  // 'each': the others do their own share, however much the lost one had taken.
  Trainer trainer(
      words("--workload mf --workers 3 --policy ssp:5 --generate --samples 2000 "
            "--iteration-ms 20 --max-iterations 50 --budget each --json --verbose --daemon " +
            daemon.address()));
  const std::vector<pid_t> workers = trainer.wait_for_start(3);
  // Past the start: a worker that has computed has pulled, and the first status says so by its
  // time.
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  ASSERT_EQ(::kill(workers[1], SIGKILL), 0);
  ASSERT_EQ(trainer.wait(), "exit status 0") << trainer.err();
  const json run = json::parse(trainer.out())["policies"][0];
  EXPECT_EQ(run["lost_workers"], 1);
  EXPECT_EQ(run["workers"][0]["iterations"], 50);
  EXPECT_EQ(run["workers"][1]["end"], "killed by SIGKILL");
  EXPECT_EQ(run["workers"][2]["iterations"], 50);
  EXPECT_THAT(trainer.err(), HasSubstr("worker 1 ended: killed by SIGKILL"));
  EXPECT_THAT(trainer.left_behind(), IsEmpty());
}

TEST(TrainerRun, AnInterruptStopsEverythingAndStillReports) {
  Trainer trainer(
      words("--workload mf --workers 3 --policy bsp --generate --samples 2000 "
            "--iteration-ms 20 --max-iterations 100000 --verbose"));
  const std::vector<pid_t> workers = trainer.wait_for_start(3);
  const std::vector<pid_t> daemons = trainer.daemons();
  ASSERT_EQ(daemons.size(), 1U);
  trainer.signal(SIGINT);
  EXPECT_EQ(trainer.wait(), "exit status 130") << trainer.err();
  EXPECT_THAT(trainer.out(), AllOf(HasSubstr("policy"), HasSubstr("bsp: interrupted")));
  for (const pid_t pid : workers) EXPECT_FALSE(is_alive(pid));
  EXPECT_FALSE(is_alive(daemons[0]));
  EXPECT_THAT(trainer.left_behind(), IsEmpty());
}

TEST(TrainerRun, AReaderThatGoesAwayLeavesNothingBehind) {
  // Both streams end in a pipe that nobody reads any more.
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const TemporaryDirectory place;
  ::setenv("TMPDIR", place.path().c_str(), 1);
  SpawnOptions spawn;
  spawn.program = SYNCD_TEST_BIN_DIR "/reference_trainer";
  spawn.arguments = words(
      "--workload mf --workers 2 --compare bsp,asp --generate --samples 2000 --iteration-ms 5 "
      "--max-iterations 10");
  spawn.output_fd = pipe[1];
  ChildProcess trainer = ChildProcess::start(spawn);
  ::close(pipe[0]);
  ::close(pipe[1]);
  const auto status = trainer.wait(kDeadlineMs);
  ::unsetenv("TMPDIR");
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(describe_exit(*status), "exit status 1");
  EXPECT_TRUE(fs::is_empty(place.path()));
}

TEST(TrainerRun, NothingOutlivesAKilledTrainer) {
  Trainer trainer(
      words("--workload mf --workers 3 --policy bsp --generate --samples 2000 "
            "--iteration-ms 20 --max-iterations 100000 --verbose"));
  std::vector<pid_t> all = trainer.wait_for_start(3);
  const std::vector<pid_t> daemons = trainer.daemons();
  all.insert(all.end(), daemons.begin(), daemons.end());
  ASSERT_EQ(all.size(), 4U);
  trainer.signal(SIGKILL);
  EXPECT_EQ(trainer.wait(), "killed by SIGKILL");
  for (const pid_t pid : all) {
    EXPECT_TRUE(becomes_true([pid] { return !is_alive(pid); })) << pid;
  }
}

TEST(TrainerRun, ADaemonThatDiesFailsTheRunWithItsReason) {
  Trainer trainer(
      words("--workload mf --workers 2 --compare bsp,asp --generate --samples 2000 "
            "--iteration-ms 20 --max-iterations 100000 --verbose"));
  trainer.wait_for_start(2);
  const std::vector<pid_t> daemons = trainer.daemons();
  ASSERT_EQ(daemons.size(), 1U);
  ASSERT_EQ(::kill(daemons[0], SIGKILL), 0);
  EXPECT_EQ(trainer.wait(), "exit status 1");
  EXPECT_THAT(trainer.out(), HasSubstr("bsp: the run failed: syncd ended by itself (killed by "
                                       "SIGKILL)"));
  EXPECT_THAT(trainer.left_behind(), IsEmpty());
}

TEST(TrainerRun, AJobThatTheDaemonRefusesFailsItsRunAndTheOthersGoOn) {
  const HastyDaemon daemon;
  // A graph's file is the daemon's to read.
  Trainer trainer(
      words("--workload mf --workers 2 --compare hop:file:/no/such/graph,asp --generate --samples "
            "2000 --iteration-ms 1 --max-iterations 5 --json --daemon " +
            daemon.address()));
  EXPECT_EQ(trainer.wait(), "exit status 1");
  const json report = json::parse(trainer.out());
  EXPECT_THAT(report["policies"][0]["failure"].get<std::string>(),
              AllOf(HasSubstr("SYNCD_E_"), HasSubstr("/no/such/graph")));
  EXPECT_TRUE(report["policies"][1]["failure"].is_null());
  EXPECT_EQ(report["policies"][1]["iterations"], 10);
}

TEST(TrainerRun, AThreadThatFailsIsThatWorkersFailure) {
  const HastyDaemon daemon;
  Trainer trainer(
      words("--workload mf --workers 2 --workers-as threads --compare hop:file:/no/such/graph,asp "
            "--generate --samples 2000 --iteration-ms 1 --max-iterations 5 --json "
            "--daemon " +
            daemon.address()));
  EXPECT_EQ(trainer.wait(), "exit status 1");
  const json report = json::parse(trainer.out());
  EXPECT_THAT(report["policies"][0]["failure"].get<std::string>(),
              AllOf(HasSubstr(": failed: "), HasSubstr("SYNCD_E_"), HasSubstr("/no/such/graph")));
  EXPECT_TRUE(report["policies"][1]["failure"].is_null());
  EXPECT_EQ(report["policies"][1]["iterations"], 10);
}

TEST(TrainerRun, AThreadThatDoesNotEndIsLeftBehindAtTheSecondInterrupt) {
  // A daemon that takes connections and never answers.
  const TemporaryDirectory place;
  const std::string path = (place.path() / "silent.sock").string();
  const int silent = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(silent, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(silent, 8), 0);
  Trainer trainer(
      words("--workload mf --workers 2 --workers-as threads --generate --samples 2000 --policy asp "
            "--target-loss 0.1 --verbose --json --daemon unix:" +
            path));
  EXPECT_TRUE(becomes_true([&] {
    return trainer.err().find(": training as job") != std::string::npos;
  })) << trainer.err();
  trainer.signal(SIGINT);
  // One more would be the same signal, were it still pending.
  EXPECT_TRUE(becomes_true([&] {
    trainer.signal(SIGINT);
    return !is_alive(trainer.pid());
  }));
  EXPECT_EQ(trainer.wait(), "exit status 130") << trainer.err();
  const json run = json::parse(trainer.out())["policies"][0];
  EXPECT_THAT(run["workers"][0]["end"].get<std::string>(), HasSubstr("left behind"));
  EXPECT_THAT(trainer.left_behind(), IsEmpty());
  ::close(silent);
}

TEST(TrainerRun, VirtualTimeNeedsNoDaemonAndRepeatsItself) {
  const auto run = [] {
    Trainer trainer(
        words("--workload mf --workers 40 --compare bsp,specsync+asp,hop:ring,max_ig=3 --generate "
              "--samples 2000 --virtual-time --iteration-time uniform_each:1000-3000 "
              "--max-iterations 20 --json --daemon unix:/no/such/syncd.sock"));
    EXPECT_EQ(trainer.wait(), "exit status 0");
    return trainer.out();
  };
  const std::string first = run();
  EXPECT_EQ(first, run());
  const json report = json::parse(first);
  ASSERT_EQ(report["policies"].size(), 3U);
  EXPECT_EQ(report["virtual_iteration_time"], "uniform_each:1000-3000");
  for (const json& policy : report["policies"]) {
    EXPECT_EQ(policy["iterations"], 800);
    EXPECT_GT(policy["seconds"].get<double>(), 20.0);
  }
}

// What specsync:progress promises beyond the paper, on seeds that were not used to make it: on the
// average within 5 % of a pair that was found by hand, at most 2 % slower than asp, and it
// converges where asp does not.
TEST(TrainerRun, SpecSyncForProgressIsAsFastAsAspAndConvergesWhereThatDoesNot) {
  const auto seconds_to_loss = [](double rate, int seed) {
    Trainer trainer(words(
        "--virtual-time --workload mf --samples 100000 --workers 40 --batch 2250 --target-loss "
        "0.53 --iteration-time normal:3000,60 --max-iterations 200 --json --compare "
        "asp,specsync:progress+asp,specsync:fixed,200,0.3+asp --learning-rate " +
        std::to_string(rate) + " --seed " + std::to_string(seed)));
    EXPECT_EQ(trainer.wait(), "exit status 0");
    const json report = json::parse(trainer.out());
    std::vector<double> seconds;  // infinite: it diverges
    for (const json& run : report["policies"]) {
      const json& loss = run["final_loss"];
      EXPECT_TRUE(loss.is_null() || loss <= 0.53) << run["policy"];
      seconds.push_back(loss.is_null() ? HUGE_VAL : run["seconds"].get<double>());
    }
    return seconds;
  };
  std::vector<double> mean(3, 0);
  for (const int seed : {7001, 7002, 7003}) {
    const std::vector<double> slow = seconds_to_loss(0.0022, seed);
    const std::vector<double> fast = seconds_to_loss(0.0034, seed);
    ASSERT_EQ(slow.size(), 3U);
    ASSERT_EQ(fast.size(), 3U);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += slow[i] / 3;
    EXPECT_EQ(fast[0], HUGE_VAL) << "asp";
    EXPECT_LE(fast[1], 1.05 * fast[2]);
  }
  EXPECT_LE(mean[1], 1.02 * mean[0]);
  EXPECT_LE(mean[1], 1.05 * mean[2]);
}

TEST(TrainerRun, ADaemonThatIsNotThereIsNamed) {
  Trainer trainer(
      words("--workload mf --workers 2 --generate --samples 2000 --max-iterations 5 "
            "--daemon unix:/no/such/syncd.sock"));
  EXPECT_EQ(trainer.wait(), "exit status 1");
  EXPECT_THAT(trainer.out(),
              AllOf(HasSubstr("SYNCD_E_UNREACHABLE"), HasSubstr("/no/such/syncd.sock")));
}

TEST(TrainerRun, AStoreThatTheDaemonCannotOpenIsReportedInTheDaemonsWords) {
  Trainer trainer(words("--workload mf --generate --samples 2000 --store /proc/no/such/store"));
  EXPECT_EQ(trainer.wait(), "exit status 1");
  EXPECT_THAT(trainer.err(), AllOf(HasSubstr("syncd ended by itself (exit status "),
                                   HasSubstr("/proc/no/such/store")));
}

TEST(TrainerRun, ATruncatedDataFileIsRefusedWithFileAndLine) {
  const TemporaryDirectory place;
  const fs::path file = place.path() / "u.data";
  write_data_file(file, "1\t2\t3\t881250949\n2\t2\t3\t8812");
  Trainer trainer({"--workload", "mf", "--data", file.string()});
  EXPECT_EQ(trainer.wait(), "exit status 2");
  EXPECT_THAT(trainer.err(),
              HasSubstr("reference_trainer: " + file.string() + ":2: the file ends "));
  EXPECT_THAT(trainer.left_behind(), IsEmpty());
}

TEST(TrainerRun, TheWorkerModeIsNotForUsers) {
  Trainer trainer({"--internal-worker"});
  EXPECT_EQ(trainer.wait(), "exit status 2");
  EXPECT_THAT(trainer.err(), HasSubstr("for the program's own use"));
}

}  // namespace
}  // namespace syncd::trainer
