// Which preconditions are checked, in release builds too; and what a failed check does to the
// program syncd: it logs it and aborts. That program is the whole daemon, built with a check that
// fails when it is told to reload.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/core/engine/relative_clocks.h"
#include "daemon/core/topology/bounds.h"
#include "daemon/core/topology/graph.h"
#include "daemon/core/topology/spectral.h"
#include "daemon/tools/sim/iteration_time.h"
#include "daemon/tools/sim/simulation.h"
#include "libclient/update_queue.h"
#include "proto/base/check.h"
#include "proto/base/plain_text.h"
#include "proto/wire/wire.h"

namespace syncd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Precondition, OfClocksIsThatTheyAreThere) {
  RelativeClocks clocks;
  EXPECT_THROW(clocks.min(), InternalError);
  EXPECT_THROW(clocks.max(), InternalError);
  EXPECT_THROW(clocks.nth_largest(0), InternalError);
  clocks.add(3);
  EXPECT_THROW(clocks.remove(4), InternalError);
  EXPECT_THROW(clocks.nth_largest(0), InternalError);
  EXPECT_THROW(clocks.nth_largest(2), InternalError);
  EXPECT_EQ(clocks.nth_largest(1), 3);
  clocks.remove(3);
  EXPECT_THROW(clocks.remove(3), InternalError);
  EXPECT_TRUE(clocks.empty());
}

TEST(Precondition, OfGraphsIsThatTheirNodesAreThere) {
  using namespace topology;
  const std::vector<Edge> ring = {{0, 1}, {1, 2}, {2, 0}};
  const Graph graph(3, ring);
  EXPECT_THROW(Graph(2, ring), InternalError);
  for (const std::vector<Node>& kept : {std::vector<Node>{1, 0}, {0, 0}, {0, 3}}) {
    EXPECT_THROW(static_cast<void>(graph.subgraph(kept)), InternalError);
  }
  EXPECT_THROW(row_weights(graph, Weighting::kMetropolis, 0), InternalError) << "it is directed";
  EXPECT_EQ(row_weights(graph, Weighting::kEqual, 0).in.size(), 1U);
  GapSetting setting;
  for (const std::int64_t max_ig : {std::int64_t{0}, std::int64_t{kMaxIgMax} + 1}) {
    EXPECT_THROW(gap_bounds(graph, setting, max_ig), InternalError) << max_ig;
  }
  setting.kind = GapSetting::Kind::kNotifyAck;
  EXPECT_THROW(gap_bounds(graph, setting, 1), InternalError);
  EXPECT_THROW(spectral_gap(Graph()), InternalError);
  EXPECT_THROW(eigen_gap_no_self_loop(Graph(kSpectralNodesMax + 1, {})), InternalError);
}

TEST(Precondition, OfTheRest) {
  std::vector<std::uint8_t> out;
  EXPECT_THROW(wire::Encoder().append({1, wire::Unknown{7}}, out), InternalError);
  EXPECT_THROW(first_text_character(""), InternalError);
  EXPECT_THROW(client::update_queue_slots(0, 0, false), InternalError);
  EXPECT_THROW(client::update_queue_slots(1, UINT32_MAX, false), InternalError);
  const sim::Durations durations({}, {}, 1, 1);
  EXPECT_THROW(durations(0, -1), InternalError);
  sim::Options options;
  options.policy = "none that there is";
  EXPECT_NE(sim::check_options(options), "");
  EXPECT_THROW(sim::Simulation{options}, InternalError);
}

TEST(FailedCheck, IsLoggedAndAbortsTheDaemon) {
  std::string directory = (std::filesystem::temp_directory_path() / "syncd-check-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  std::array<int, 2> log{};
  ASSERT_EQ(pipe2(log.data(), O_CLOEXEC), 0);
  const std::string store = directory + "/store";
  const std::string unix_path = directory + "/s";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit none{};
    setrlimit(RLIMIT_CORE, &none);
    dup2(log[1], STDERR_FILENO);
    execl(SYNCD_FAILING_DAEMON, "syncd", "--tcp", "off", "--unix", unix_path.c_str(), "--store",
          store.c_str(), "--admin", "off", static_cast<char*>(nullptr));
    _exit(127);
  }
  close(log[1]);
  std::string lines;
  bool told = false;
  std::array<char, 4096> buffer{};
  // To its end, which is the daemon's.
  for (ssize_t count = 0; (count = read(log[0], buffer.data(), buffer.size())) > 0;) {
    lines.append(buffer.data(), static_cast<std::size_t>(count));
    if (!told && lines.find(" ready\n") != std::string::npos) {
      told = true;
      kill(child, SIGHUP);
    }
  }
  close(log[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(told) << lines;
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
  EXPECT_THAT(lines, HasSubstr("error server_failed reason=\"internal error: a check has failed: "
                               "stopping_ (daemon.cpp:"));
  EXPECT_THAT(lines, Not(HasSubstr("terminate called")));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace syncd
