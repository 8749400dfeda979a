// Starting, and being asked to stop. Sockets that are taken or left over are in
// unit/net/listen_socket_test.cpp.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "support/daemon.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(NoArguments, ServesOnTheUsersSocketAndKeepsItsStoreInTheUsersStateDirectory) {
  if (!others_may_enter("/"))
    GTEST_SKIP() << "only root may enter / here: no program runs as another user";
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

TEST(Stop, WhenItHasBeenIdleForAsLongAsItWasTold) {
  TempDir directory;
  const RunResult daemon = run({program("syncd"), "--store", "memory", "--unix",
                                directory.file("s"), "--tcp", "off", "--exit-when-idle", "50ms"},
                               directory.path());
  EXPECT_EQ(daemon.ending, exited(0));
  EXPECT_THAT(daemon.err + daemon.out, HasSubstr("stopping idle=50ms"));
  EXPECT_FALSE(exists(directory.file("s")));
}

TEST(Stop, AnswersThoseWhoAreBlockedAndExitsWithZero) {
  for (const int number : {SIGTERM, SIGINT}) {
    TempDir directory;
    Daemon daemon(directory);
    RawClient client = greeted(daemon.address());
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

TEST(SecondDaemon, OnTheSameSocketIsRefusedAndTheFirstGoesOn) {
  TempDir directory;
  Daemon daemon(directory);
  Bystander bystander(daemon.address());
  const RunResult second =
      run({program("syncd"), "--store", "memory", "--unix", daemon.socket_path(), "--tcp", "off"},
          directory.path(), {{"HOME", directory.path()}});
  EXPECT_EQ(second.ending, exited(4));
  EXPECT_THAT(second.err + second.out,
              AllOf(HasSubstr(daemon.socket_path()), HasSubstr("another")));
  bystander.expect_progress();
  Bystander newcomer(daemon.address(), "newcomer");
  newcomer.expect_progress();
}

TEST(Hangup, IsSurvivedAndTheLogSaysWhatItDid) {
  TempDir directory;
  Daemon daemon(directory, {.store = "memory"});
  Bystander bystander(daemon.address());
  daemon.reload("signal=SIGHUP");
  bystander.expect_progress();
  EXPECT_EQ(daemon.stop(), exited(0));
}

}  // namespace
}  // namespace syncd::test
