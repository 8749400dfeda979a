// The reference trainer with policies of every kind against a live daemon: the table of a
// comparison has a row for each, and the daemon's history shows that each was followed and every
// worker did its iterations.
#include <gmock/gmock.h>

#include <iterator>
#include <sstream>

#include "support/daemon.h"
#include "support/history.h"

namespace syncd::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kWorkers = 4;  // ring_based takes even numbers
constexpr std::int64_t kIterations = 24;

struct Expected {
  std::string policy;
  std::int64_t staleness_max;      // at any grant
  std::vector<std::string> kinds;  // records that its history must have
};

const std::vector<Expected>& expectations() {
  static const std::vector<Expected> all = {
      {"bsp", 0, {}},
      {"asp", kIterations, {}},
      {"ssp:3", 3, {}},
      {"dssp:3-15", 15, {}},
      // Within a superstep, staleness is below twice the number of planned iterations.
      {"elastic_bsp:15", 29, {"plan", "barrier"}},
      {"elastic_bsp:150", 299, {"plan"}},  // the barrier may be planned for after the end
      {"specsync+asp", kIterations, {"policy_note"}},  // the thresholds that were tuned
      // Neighbours here are so both ways: max_ig bounds the gap. NOTIFY-ACK: one iteration.
      {"hop:ring_based,max_ig=5,backup=1", 5, {}},
      {"notify_ack:root_expander", 1, {}}};
  return all;
}

std::string policy_list() {
  std::string list;
  for (const Expected& expected : expectations()) {
    list += (list.empty() ? "" : ",") + expected.policy;
  }
  return list;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

// The words of each line of the table under its heading, up to the empty line or message after it.
std::vector<std::vector<std::string>> table_rows(const std::string& report) {
  std::vector<std::vector<std::string>> rows;
  bool inside = false;
  for (const std::string& line : lines_of(report)) {
    const auto words = words_of(line);
    if (inside && words.size() < 8) break;
    if (inside) rows.push_back(words);
    inside = inside || (!words.empty() && words.front() == "policy");
  }
  return rows;
}

// The daemon's name for the job of the comparison under this policy.
std::string job_of(const TempDir& directory, const Daemon& daemon, const std::string& policy) {
  const RunResult jobs = syncctl(directory, daemon, {"jobs"});
  for (const std::string& line : lines_of(jobs.out)) {
    const auto words = words_of(line);  // ID, JOB, POLICY, ...
    if (words.size() > 2 && words[2] == policy) return words[1];
  }
  ADD_FAILURE() << "no job under " << policy << ":\n" << jobs.out;
  return {};
}

void expect_followed(const History& history, const Expected& expected) {
  SCOPED_TRACE(expected.policy);
  std::vector<std::int64_t> all(kIterations);
  for (std::int64_t k = 0; k < kIterations; ++k) all[static_cast<std::size_t>(k)] = k;
  for (int rank = 0; rank < kWorkers; ++rank) EXPECT_EQ(history.pushes(rank), all) << rank;
  for (const Row& push : history.of_kind("push")) {
    EXPECT_LE(number(push, "staleness"), expected.staleness_max);
  }
  for (const std::string& kind : expected.kinds) {
    EXPECT_THAT(history.of_kind(kind), Not(IsEmpty())) << kind;
  }
  EXPECT_THAT(history.of_kind("worker_lost"), IsEmpty());
}

// Four workers, the last of which is slow, at this daemon.
RunResult train(const TempDir& directory, const Daemon& daemon, std::vector<std::string> more) {
  std::vector<std::string> argv = {program("reference_trainer"),
                                   "--generate",
                                   "--samples",
                                   "2000",
                                   "--workers",
                                   std::to_string(kWorkers),
                                   "--iteration-ms",
                                   "2",
                                   "--slowdown",
                                   "fixed:3=3x",
                                   "--budget",
                                   "each",
                                   "--max-iterations",
                                   std::to_string(kIterations),
                                   "--daemon",
                                   daemon.address()};
  argv.insert(argv.end(), more.begin(), more.end());
  return run(argv, directory.path(), {{"HOME", directory.path()}, {"TMPDIR", directory.path()}});
}

TEST(Comparison, RunsEveryPolicyLiveAndPrintsARowForEach) {
  TempDir directory;
  Daemon daemon(directory);
  const RunResult result =
      train(directory, daemon, {"--workload", "mf", "--job", "live", "--compare", policy_list()});
  ASSERT_EQ(result.ending, exited(0)) << result.err;

  const auto rows = table_rows(result.out);
  ASSERT_EQ(rows.size(), expectations().size()) << result.out;
  EXPECT_EQ(rows[7].back(), "0") << "updates that Hop's workers missed\n" << result.out;
  EXPECT_EQ(rows[8].back(), "0") << "and NOTIFY-ACK's\n" << result.out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Expected& expected = expectations()[i];
    EXPECT_EQ(rows[i][0], expected.policy);
    EXPECT_EQ(rows[i][2], std::to_string(kWorkers * kIterations)) << result.out;
    const std::string job = job_of(directory, daemon, expected.policy);
    EXPECT_THAT(job, HasSubstr("live-" + std::to_string(i + 1) + "-"));
    expect_followed(export_history(directory, daemon, job), expected);
  }
}

// What tells Hop's two orders apart from outside is the loss that a worker reports with its first
// update: in serial order it has computed before it sends, in parallel order it has not.
TEST(Comparison, HopTrainsInEitherOrder) {
  TempDir directory;
  Daemon daemon(directory);
  for (const std::string order : {"parallel", "serial"}) {
    const RunResult result = train(
        directory, daemon,
        {"--workload", "svm", "--job", order, "--policy", "hop:ring,max_ig=2", "--order", order});
    ASSERT_EQ(result.ending, exited(0)) << result.err;
    const auto rows = table_rows(result.out);
    ASSERT_EQ(rows.size(), 1U) << result.out;
    EXPECT_EQ(rows[0].back(), "0") << "missing updates\n" << result.out;
    const History history = export_history(directory, daemon, order);
    expect_followed(history, {"hop:ring,max_ig=2", 2, {}});
    for (const Row& push : history.of_kind("push")) {
      EXPECT_EQ(push.contains("loss"), order == "serial" || number(push, "iteration") > 0)
          << order << ", iteration " << push.at("iteration");
    }
  }
}

}  // namespace
}  // namespace syncd::test
