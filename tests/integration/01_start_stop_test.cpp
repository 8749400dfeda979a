// Starting, being asked to stop, and sockets that are taken or left over.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A second daemon with the flags of `like`, which must not come up: how it ended and what it said.
RunResult must_not_start(const TempDir& directory, const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {program("syncd")};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return run(argv, directory.path(), {{"HOME", directory.path()}});
}

TEST(NoArguments, ServesOnTheUsersSocketAndKeepsItsStoreInTheUsersStateDirectory) {
  if (!others_may_enter("/")) GTEST_SKIP() << "only root may enter / here: no program runs as another user";
  TempDir directory;
  ASSERT_EQ(chmod(directory.path().c_str(), 0777), 0);
  for (const char* name : {"run", "state"}) {
    std::filesystem::create_directory(directory.file(name));
    ASSERT_EQ(chmod(directory.file(name).c_str(), 0777), 0);
  }
  Command command;
  command.argv = {program("syncd")};
  command.environment = {{"HOME", directory.path()},
                         {"XDG_RUNTIME_DIR", directory.file("run")},
                         {"XDG_STATE_HOME", directory.file("state")}};
  command.stdout_path = directory.file("log");
  command.as_lone_user = true;
  Process daemon(command);
  const std::string socket = directory.file("run/syncd.sock");
  wait_until("the log to say that it is ready", [&] {
    const std::string log = read_file(command.stdout_path);
    if (!daemon.running()) throw std::runtime_error(log);
    return log.find(" ready") != std::string::npos;
  });
  Bystander("unix:" + socket).expect_progress();
  EXPECT_TRUE(exists(directory.file("state/syncd")));
  EXPECT_THAT(read_file(directory.file("log")),
              AllOf(HasSubstr(socket), HasSubstr("127.0.0.1:7117"), HasSubstr("state/syncd")));
  daemon.signal(SIGTERM);
  EXPECT_EQ(daemon.wait(), exited(0));
  EXPECT_FALSE(exists(socket)) << "it takes its socket away";
}

TEST(Ready, TheReadyFileNamesTheTcpPortThatWasChosen) {
  TempDir directory;
  Daemon daemon(directory, {.store = "memory", .tcp = "127.0.0.1:0"});
  Bystander over_tcp(daemon.tcp_address(), "over-tcp");
  Bystander over_unix(daemon.address(), "over-unix");
  over_tcp.expect_progress();
  over_unix.expect_progress();
  EXPECT_EQ(daemon.stop(), exited(0));
}

TEST(Stop, AnswersThoseWhoAreBlockedAndExitsWithZero) {
  for (const int number : {SIGTERM, SIGINT}) {
    TempDir directory;
    Daemon daemon(directory);
    RawClient client(daemon.address());
    client.hello();
    RawWorker worker(client, join_of("job", 0, 2));
    const std::uint64_t blocked = client.send(wire::Begin{worker.ref(), 0});
    // Once this is answered, the begin before it stands.
    client.call_for<wire::JobsReply>(wire::JobsRequest{});
    daemon.signal(number);
    const auto error = RawClient::as<wire::Error>(client.answer(blocked));
    EXPECT_EQ(error.status, Status::kShutdown);
    EXPECT_THAT(error.message, HasSubstr("shutting down"));
    client.notification<wire::ShutdownNotice>();
    client.drain_until_closed();
    EXPECT_EQ(daemon.wait(), exited(0)) << strsignal(number);
    EXPECT_FALSE(exists(daemon.socket_path()));
  }
}

TEST(Stop, ACallOfTheCInterfaceSaysWhyItCannotGoOn) {
  TempDir directory;
  Daemon daemon(directory);
  ApiClient client(daemon.address());
  ApiWorker worker = client.join({.rank = 0, .world_size = 2});
  syncd_step step = SYNCD_STEP_INIT;
  EXPECT_EQ(worker.begin(step, 20).status, SYNCD_E_TIMEOUT);
  EXPECT_EQ(daemon.stop(), exited(0));
  const Answer answer = worker.begin(step, 200);
  EXPECT_TRUE(answer.status == SYNCD_E_TIMEOUT || answer.status == SYNCD_E_UNREACHABLE)
      << answer.text();
  EXPECT_TRUE(answer.retriable);
  EXPECT_THAT(answer.message, HasSubstr(daemon.socket_path()));
}

TEST(Stop, WhatWasPushedJustBeforeIsThereAfterwards) {
  TempDir directory;
  Daemon daemon(directory);
  {
    ApiClient client(daemon.address());
    ApiWorker worker = client.join({.policy = "asp", .rank = 0});
    ASSERT_TRUE(worker.iterate(25).ok());
    EXPECT_EQ(daemon.stop(), exited(0));
    daemon.start();
    EXPECT_TRUE(worker.iterate(1).ok());
  }
  const RunResult jobs = syncctl(directory, daemon, {"jobs", "--json"});
  EXPECT_THAT(jobs.out, HasSubstr("\"pushes\": 26"));
}

TEST(SecondDaemon, OnTheSameSocketIsRefusedAndTheFirstGoesOn) {
  TempDir directory;
  Daemon daemon(directory);
  Bystander bystander(daemon.address());
  const RunResult second = must_not_start(
      directory, {"--store", "memory", "--unix", daemon.socket_path(), "--tcp", "off"});
  EXPECT_EQ(second.ending, exited(4));
  EXPECT_THAT(second.err + second.out,
              AllOf(HasSubstr(daemon.socket_path()), HasSubstr("another")));
  bystander.expect_progress();
  Bystander newcomer(daemon.address(), "newcomer");
  newcomer.expect_progress();
}

TEST(SecondDaemon, OnTheSameTcpPortIsRefusedAndTheAddressIsNamed) {
  TempDir directory;
  Daemon daemon(directory, {.store = "memory", .tcp = "127.0.0.1:0"});
  Bystander bystander(daemon.tcp_address());
  const RunResult second = must_not_start(
      directory,
      {"--store", "memory", "--unix", directory.file("other.sock"), "--tcp", daemon.tcp_address()});
  EXPECT_EQ(second.ending, exited(4));
  EXPECT_THAT(second.err + second.out, AllOf(HasSubstr(daemon.tcp_address()), HasSubstr("in use")));
  EXPECT_FALSE(exists(directory.file("other.sock")));
  bystander.expect_progress();
}

TEST(SocketFile, ThatAKilledDaemonLeftIsReplaced) {
  TempDir directory;
  Daemon daemon(directory);
  daemon.kill();
  ASSERT_TRUE(exists(daemon.socket_path()));
  daemon.start();
  Bystander(daemon.address()).expect_progress();
}

TEST(SocketFile, ThatIsNoSocketIsLeftAlone) {
  TempDir directory;
  const std::string path = directory.file("precious");
  write_file(path, "data");
  const RunResult result =
      must_not_start(directory, {"--store", "memory", "--unix", path, "--tcp", "off"});
  EXPECT_EQ(result.ending, exited(4));
  EXPECT_THAT(result.err + result.out, HasSubstr(path));
  EXPECT_EQ(read_file(path), "data");
}

TEST(Hangup, IsSurvivedAndTheLogSaysWhatItDid) {
  TempDir directory;
  Daemon daemon(directory, {.store = "memory"});
  Bystander bystander(daemon.address());
  daemon.signal(SIGHUP);
  wait_until("the log to say so", [&] { return daemon.logged("signal=SIGHUP"); });
  bystander.expect_progress();
  EXPECT_EQ(daemon.stop(), exited(0));
}

}  // namespace
}  // namespace syncd::test
