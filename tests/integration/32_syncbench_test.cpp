// syncbench against a real daemon: every kind of policy, TLS, tokens, questions aside, and what it
// says when it cannot.
#include <gmock/gmock.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "support/daemon.h"
#include "support/history.h"
#include "support/syncctl_site.h"
#include "tests/support/tls_files.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Syncbench : public SyncctlSite {
 protected:
  RunResult bench_at(const std::string& address, const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {program("syncbench"), "--addr", address, "--json"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run(all, directory_.path(), {{"HOME", directory_.path()}});
  }
  RunResult bench(const std::vector<std::string>& arguments) {
    return bench_at(daemon_.address(), arguments);
  }
  static std::uint64_t number(const RunResult& result, const std::string& key) {
    const std::size_t at = result.out.find("\"" + key + "\": ");
    if (at == std::string::npos) return UINT64_MAX;
    return std::strtoull(result.out.c_str() + at + key.size() + 4, nullptr, 10);
  }
  // Of the spans of this name.
  static std::uint64_t count(const RunResult& result, const std::string& name) {
    const std::size_t at = result.out.find("\"" + name + "\": {");
    if (at == std::string::npos) return UINT64_MAX;
    return number({result.ending, result.out.substr(at), ""}, "count");
  }
};

TEST_F(Syncbench, CountsWhatTheDaemonCounts) {
  const RunResult result =
      bench({"--workers", "50", "--connections", "4", "--policy", "bsp", "--iterations", "20",
             "--ask-share", "0.2", "--ask", "members", "--member-bytes", "16", "--job", "load"});
  ASSERT_EQ(result.ending, exited(0)) << result.err;
  ASSERT_TRUE(is_json(result.out)) << result.out;
  EXPECT_EQ(number(result, "pushes"), 1000U);
  EXPECT_EQ(number(result, "daemon_pushes"), 1000U);
  EXPECT_EQ(number(result, "late"), 0U);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("\"mode\": \"durable\""), HasSubstr("\"policy\": \"bsp\"")));
  const History history = export_history(directory_, daemon_, "load");
  for (int rank = 0; rank < 50; ++rank) EXPECT_EQ(history.pushes(rank).size(), 20U) << rank;
  EXPECT_EQ(history.of_kind("worker_left").size(), 50U);
  EXPECT_EQ(history.of_kind("job_stopped").size(), 1U);
  // It has a job of its own.
  EXPECT_EQ(bench({"--iterations", "1", "--job", "load"}).ending, exited(2));
}

TEST_F(Syncbench, ByTimeAndWithComputing) {
  const RunResult result = bench({"--workers", "3", "--policy", "ssp:1", "--seconds", "0.3",
                                  "--iteration-time", "constant:5", "--slowdown", "fixed:0=2x"});
  ASSERT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_GT(number(result, "pushes"), 2U);
  EXPECT_EQ(number(result, "pushes"), number(result, "daemon_pushes"));
}

// Each worker goes through the calls of its policy, for the iterations that the daemon then has.
TEST_F(Syncbench, DecentralizedPolicies) {
  // Who jumps has fewer iterations.
  const std::vector<std::pair<std::string, std::uint64_t>> fewest_of = {
      {"hop:ring,max_ig=2", 100},
      {"hop:complete,backup=1,skip=5", 20},
      {"notify_ack:ring", 100},
      {"notify_ack:complete", 100}};
  for (const auto& [policy, fewest] : fewest_of) {
    for (const std::string time : {"0", "uniform:0.2-2"}) {
      const RunResult result =
          bench({"--workers", "5", "--connections", "2", "--policy", policy, "--iterations", "20",
                 "--iteration-time", time, "--ask-share", "0.1"});
      ASSERT_EQ(result.ending, exited(0)) << policy << ": " << result.err;
      const std::uint64_t pushes = number(result, "pushes");
      EXPECT_LE(pushes, 100U) << policy;
      EXPECT_GE(pushes, fewest) << policy;
      EXPECT_EQ(number(result, "daemon_pushes"), pushes) << policy;
      for (const char* call : {"targets", "push", "collect", "consumed"}) {
        EXPECT_GT(count(result, call), 0U) << policy << " " << call;
      }
    }
  }
}

TEST_F(Syncbench, AsksAsideWhatWorkersAndOperatorsAsk) {
  const RunResult result =
      bench({"--workers", "4", "--policy", "asp", "--iterations", "100", "--ask-share", "1",
             "--ask", "explain,members,phase,status,jobs,workers,history"});
  ASSERT_EQ(result.ending, exited(0)) << result.err;
  std::uint64_t asked = 0;
  for (const char* question :
       {"explain", "members", "phase", "status", "jobs", "workers", "history"}) {
    EXPECT_GT(count(result, std::string("aside_") + question), 0U) << question;
    asked += count(result, std::string("aside_") + question);
  }
  // Those of the workers that went on when the first had done were not measured.
  EXPECT_LE(asked, 400U);
  EXPECT_GE(asked, 100U);
  EXPECT_EQ(number(result, "requests"), asked + count(result, "begin") + count(result, "push"));
}

TEST_F(Syncbench, OverTlsWithATokenDurableAndFast) {
  TlsFiles files(directory_.path());
  files.make_server();
  write_private_file(directory_.file("tokens"), "[bench] 0123456789abcdef0123456789abcdef\n");
  write_private_file(directory_.file("token"), "0123456789abcdef0123456789abcdef\n");
  for (const std::string mode : {"durable", "fast"}) {
    Daemon daemon(directory_,
                  {.name = "tls-" + mode,
                   .mode = mode,
                   .tcp = "127.0.0.1:0",
                   .config = "[tls]\ncertificate = \"" + files.certificate("server") +
                             "\"\nkey = \"" + files.key("server") + "\"\n[auth]\ntoken_file = \"" +
                             directory_.file("tokens") + "\"\n"});
    const std::string address = "tls:" + daemon.tcp_address();
    const std::vector<std::string> load = {"--iterations", "20",    "--ask-share",
                                           "0.5",          "--ask", "explain,status"};
    const auto with = [&](std::vector<std::string> credentials) {
      credentials.insert(credentials.end(), load.begin(), load.end());
      return bench_at(address, credentials);
    };
    const std::string token = directory_.file("token");
    RunResult result = with({"--ca", files.ca(), "--token-file", token});
    ASSERT_EQ(result.ending, exited(0)) << result.err;
    EXPECT_EQ(number(result, "daemon_pushes"), 160U);
    EXPECT_THAT(result.out, HasSubstr("\"mode\": \"" + mode + "\""));
    result = with({"--ca", files.ca()});
    EXPECT_TRUE(ended(result, 1, "wants a token"));
    result = with({"--ca", directory_.file("nothing.crt"), "--token-file", token});
    EXPECT_TRUE(ended(result, 2, "nothing.crt"));
  }
}

TEST_F(Syncbench, SaysWhatIsWrong) {
  RunResult result = bench({"--policy", "nothing"});
  EXPECT_TRUE(ended(result, 1, "nothing"));
  result = bench({"--policy", "hop"});
  EXPECT_TRUE(ended(result, 1, "hop needs a graph"));
  result = bench({"--ask", "explain,beauty"});
  EXPECT_EQ(result.ending, exited(2));
  EXPECT_THAT(result.err, AllOf(HasSubstr("'beauty'"), HasSubstr("history")));
  result = bench({"--iteration-time", "long"});
  EXPECT_TRUE(ended(result, 2, "--iteration-time"));
  EXPECT_EQ(daemon_.stop(), exited(0));
  result = bench({});
  EXPECT_TRUE(ended(result, 3, "no daemon answered"));
}

}  // namespace
}  // namespace syncd::test
