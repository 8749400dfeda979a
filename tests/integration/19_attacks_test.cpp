// What somebody may do who can reach the daemon and wants it to stop, with TLS and without:
// whatever it is, another job gets on.
#include <gmock/gmock.h>
#include <poll.h>

#include "support/attack_site.h"

namespace syncd::test {
namespace {

using ::testing::HasSubstr;

// Sends one byte after the other until the daemon has had enough; the pause is the daemon's own
// answer, or a moment in which none comes.
TEST_P(Attacks, AHandshakeInSingleBytesEndsAtItsDeadline) {
  Daemon daemon(directory_, options("", {"timeouts.handshake_timeout=500ms"}));
  Bystander bystander(daemon.address());
  std::vector<std::uint8_t> bytes;
  if (with_tls()) {
    std::string error;
    const auto context = tls::Context::client({files_.ca(), "", ""}, error);
    tls::Channel::connect(context, "127.0.0.1", "x", bytes);
  } else {
    wire::Encoder().append(
        {1, wire::Hello{kProtocolMin, kProtocolMax, std::string(500, 'x'), "1", ""}}, bytes);
  }
  RawClient slow(daemon.tcp_address());
  const Deadline deadline;
  std::size_t sent = 0;
  while (!daemon.logged("no Hello came within")) {
    ASSERT_FALSE(deadline.passed()) << "the daemon waits for ever";
    ASSERT_LT(sent, bytes.size() - 1) << "it must not have heard it all";
    try {
      slow.send_bytes(std::span(bytes).subspan(sent++, 1));
    } catch (const std::runtime_error&) {
      // The daemon has closed it already, and its log says so soon.
    }
    ::poll(nullptr, 0, 5);
    if (sent + 8 > bytes.size()) sent = bytes.size() - 8;
    bystander.expect_progress(1);
  }
  slow.drain_until_closed();
}

TEST_P(Attacks, BeforeTheHelloAFrameMustBeSmall) {
  Daemon daemon(directory_, options());
  Bystander bystander(daemon.address());
  const auto attacker = client(daemon);
  attacker->send_bytes(std::string("\x01\x20\x00\x00", 4));
  const auto messages = attacker->drain_until_closed();
  ASSERT_EQ(messages.size(), 1U);
  const auto error = RawClient::as<wire::Error>(messages[0].body);
  EXPECT_EQ(error.status, Status::kProtocol);
  EXPECT_THAT(error.message, ::testing::AllOf(HasSubstr("8193"), HasSubstr("8192")));
  bystander.expect_progress();
}

TEST_P(Attacks, OversizedFramesEndTheirConnectionAlone) {
  Daemon daemon(directory_, options());
  Bystander bystander(daemon.address());
  const auto attacker = client(daemon);
  attacker->hello();
  attacker->send_bytes(std::string("\xff\xff\xff\xff", 4));
  const auto messages = attacker->drain_until_closed();
  ASSERT_FALSE(messages.empty());
  EXPECT_EQ(RawClient::as<wire::Error>(messages.back().body).status, Status::kProtocol);
  bystander.expect_progress();
}

// Tables within tables cannot be expressed in these messages, so that a deep nest is a buffer whose
// offsets chase each other: each of these refers to the one before. It is refused as no message;
// the limit of depth stands behind that, for messages to come.
TEST_P(Attacks, DeeplyNestedBuffersAreRefused) {
  Daemon daemon(directory_, options());
  Bystander bystander(daemon.address());
  std::string nest("\x08\x00\x00\x00SYW1", 8);
  while (nest.size() < 60'000) {
    const std::string table("\x0c\x00\x00\x00\x08\x00\x0c\x00\x04\x00\x08\x00", 12);
    nest += table;
  }
  std::string frame(4, '\0');
  for (std::size_t i = 0; i < 4; ++i) frame[i] = static_cast<char>(nest.size() >> (8 * i));
  const auto attacker = client(daemon);
  attacker->hello();
  attacker->send_bytes(frame + nest);
  const auto messages = attacker->drain_until_closed();
  ASSERT_FALSE(messages.empty());
  const auto error = RawClient::as<wire::Error>(messages.back().body);
  EXPECT_EQ(error.status, Status::kProtocol);
  EXPECT_THAT(error.message, ::testing::HasSubstr("not a valid message of this protocol"));
  bystander.expect_progress();
}

TEST_P(Attacks, AClientThatNeverReadsIsCutOff) {
  Daemon daemon(directory_,
                options("", {"limits.outbound_bytes_max=131072", "timeouts.write_timeout=500ms"}));
  Bystander bystander(daemon.address());
  const auto attacker = client(daemon);
  attacker->hello();
  const Deadline deadline;
  while (!daemon.logged("slow reader")) {
    ASSERT_FALSE(deadline.passed());
    try {
      for (int i = 0; i < 200; ++i) attacker->send(wire::JobsRequest{});
    } catch (const std::runtime_error&) {
      wait_until("the reason in the log", [&] { return daemon.logged("slow reader"); });
    }
    bystander.expect_progress(1);
  }
}

TEST_P(Attacks, OneMachineCannotTakeEveryConnection) {
  Daemon daemon(directory_, options("[limits]\nconnections_per_machine_max = 3\n"));
  Bystander bystander(daemon.address());  // the Unix socket is not counted
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(client(daemon));
    clients.back()->hello();
  }
  EXPECT_THROW(client(daemon)->hello(), std::runtime_error);
  EXPECT_TRUE(daemon.logged("connections_per_machine_max"));
  clients.pop_back();
  wait_until("a place to be free", [&] {
    try {
      client(daemon)->hello();
      return true;
    } catch (const std::runtime_error&) {
      return false;
    }
  });
  bystander.expect_progress();
}

// A handshake that is only begun costs the daemon a key exchange and a signature.
TEST_P(Attacks, OneMachineCannotTakeTheLoopWithHandshakes) {
  Daemon daemon(directory_, options("[limits]\nhandshakes_per_machine_per_s = 1\n"));
  Bystander bystander(daemon.address());
  std::vector<std::unique_ptr<RawClient>> begun;
  for (int i = 0; i < 100; ++i) begun.push_back(std::make_unique<RawClient>(daemon.tcp_address()));
  bystander.expect_progress();
  const auto is_served = [&] {
    try {
      client(daemon)->hello();
      return true;
    } catch (const std::runtime_error&) {
      return false;
    }
  };
  if (with_tls()) {
    wait_until("the refusal", [&] { return daemon.logged("limits.handshakes_per_machine_per_s"); });
    wait_until("the next second", is_served);
  } else {
    EXPECT_TRUE(is_served()) << "without TLS there is none";
    EXPECT_FALSE(daemon.logged("limits.handshakes_per_machine_per_s"));
  }
}

// They say nothing, while somebody who does comes after all of them and is served.
TEST_P(Attacks, SilentConnectionsMakeRoomForThoseThatSpeak) {
  Daemon daemon(directory_,
                options("", {"limits.unintroduced_max=50", "timeouts.handshake_timeout=10m"}));
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(std::make_unique<RawClient>(daemon.tcp_address()));
  client(daemon)->hello();
  Bystander(daemon.address()).expect_progress();
  silent.front()->drain_until_closed();
  EXPECT_TRUE(daemon.logged("50 connections have not introduced themselves"));
}

// Where all come from one address (a gateway, this machine), whoever has no right must not take the
// places of those who have one.
TEST_P(Attacks, SilentConnectionsMakeRoomForTheirMachinesOthers) {
  Daemon daemon(directory_, options("[limits]\nconnections_per_machine_max = 20\n",
                                    {"timeouts.handshake_timeout=10m"}));
  std::vector<std::unique_ptr<RawClient>> introduced;
  for (int i = 0; i < 3; ++i) {
    introduced.push_back(client(daemon));
    introduced.back()->hello();
  }
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 60; ++i) silent.push_back(std::make_unique<RawClient>(daemon.tcp_address()));
  for (int i = 0; i < 17; ++i) {
    introduced.push_back(client(daemon));
    introduced.back()->hello();
  }
  for (const auto& one : introduced) one->call_for<wire::StatusReply>(wire::StatusRequest{});
  EXPECT_TRUE(daemon.logged("limits.connections_per_machine_max"));
  EXPECT_THROW(client(daemon)->hello(), std::runtime_error)
      << "all of them have introduced themselves";
}

TEST_P(Attacks, SilentConnectionsMakeRoomWhereAllPlacesAreTaken) {
  Daemon daemon(directory_,
                options("[limits]\nconnections_max = 20\n", {"timeouts.handshake_timeout=10m"}));
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 60; ++i) silent.push_back(std::make_unique<RawClient>(daemon.tcp_address()));
  client(daemon)->hello();
  EXPECT_TRUE(daemon.logged("limits.connections_max"));
}

TEST_P(Attacks, IdleConnectionsCostOthersNothing) {
  Daemon daemon(directory_, options("[timeouts]\nheartbeat_timeout = \"10m\"\n"));
  hold_idle_connections(daemon, 500, [&] { return client(daemon); });
}

// What was recorded of a worker's connection, said again by somebody else.
TEST(Replay, ARecordedConnectionIsOfNoUse) {
  TempDir directory;
  const TlsFiles files(directory.path());
  files.make_server();
  files.make_client("worker", {"w"});
  Daemon daemon(directory, {.tcp = "127.0.0.1:0",
                            .config = "[tls]\ncertificate = \"" + files.certificate("server") +
                                      "\"\nkey = \"" + files.key("server") + "\"\nclient_ca = \"" +
                                      files.ca() + "\"\n"});
  RawTlsClient worker(daemon.tcp_address(),
                      {files.ca(), files.certificate("worker"), files.key("worker")});
  worker.hello();
  worker.call_for<wire::Joined>(join_of("job", 0, 1, "asp"));
  RawClient asking = greeted(daemon.address());
  const auto before = asking.call_for<wire::StatusReply>(wire::StatusRequest{});
  EXPECT_EQ(before.workers, 1U);
  ASSERT_FALSE(daemon.logged("connection_rejected"));
  RawClient attacker(daemon.tcp_address());
  try {
    attacker.send_bytes(worker.sent_below_tls());
  } catch (const std::runtime_error&) {  // it may have been cut off before it had said it all
  }
  // What comes back is TLS for a key that only the worker had: no session may come of it.
  wait_until("the refusal", [&] { return daemon.logged("connection_rejected"); });
  const auto after = asking.call_for<wire::StatusReply>(wire::StatusRequest{});
  EXPECT_EQ(after.workers, before.workers);
  EXPECT_EQ(after.sessions, before.sessions);
  // The worker whose words they were is none the worse for it.
  worker.call_for<wire::StatusReply>(wire::StatusRequest{});
}

TEST(Replay, AnothersWorkerIsRefused) {
  TempDir directory;
  Daemon daemon(directory, {.store = "memory"});
  RawClient owner = greeted(daemon.address());
  RawWorker worker(owner, join_of("job", 0, 1, "asp"));
  worker.begin(0);
  RawClient thief = greeted(daemon.address());
  const auto refused = RawClient::as<wire::Error>(thief.call(worker.push_body(0)));
  EXPECT_EQ(refused.status, Status::kFenced);
  EXPECT_THAT(refused.message, HasSubstr("did not join over this connection"));
  EXPECT_EQ(worker.push(0).iteration, 0) << "the same from whose worker it is";
}

// The one worker of a job has left and joined again, over the same connection and as itself: only
// the number of its life tells the words of the first from those of the second.
TEST(Replay, AnOldIncarnationIsRefused) {
  TempDir directory;
  Daemon daemon(directory, {.store = "memory"});
  RawClient client = greeted(daemon.address());
  RawWorker other(client, join_of("job", 1, 2, "asp"));  // the job goes on without the first
  RawWorker first(client, join_of("job", 0, 2, "asp"));
  const std::uint64_t begun = client.send(wire::Begin{other.ref(), 0});
  first.begin(0);
  RawClient::as<wire::Granted>(client.answer(begun));
  const wire::Push old = first.push_body(0);
  first.leave();
  RawWorker second(client, join_of("job", 0, 2, "asp"));
  ASSERT_EQ(second.ref().job, first.ref().job);
  ASSERT_EQ(second.ref().rank, first.ref().rank);
  ASSERT_EQ(second.ref().epoch, first.ref().epoch);
  ASSERT_GT(second.ref().incarnation, first.ref().incarnation);
  const std::int64_t iteration = second.joined().iteration;
  second.begin(iteration);
  wire::Push late = second.push_body(iteration);
  late.worker.incarnation = old.worker.incarnation;
  for (const wire::Push& one : {old, late}) {
    const auto refused = RawClient::as<wire::Error>(client.call(one));
    EXPECT_EQ(refused.status, Status::kFenced);
    EXPECT_THAT(refused.message, HasSubstr("was replaced by incarnation"));
  }
  EXPECT_EQ(second.push(iteration).iteration, iteration) << "the same of the life that goes on";
}

INSTANTIATE_TEST_SUITE_P(, Attacks, ::testing::Bool(), name_of_transport);

}  // namespace
}  // namespace syncd::test
