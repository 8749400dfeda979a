// The tool's connection against daemons that answer, refuse, fall silent or go away. Each stands on
// a thread of its own and is scripted by the test.
#include "daemon/tools/ctl/daemon_link.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "daemon/core/engine/limits.h"
#include "daemon/edge/server/history_reads.h"
#include "daemon/edge/store/record_codec.h"
#include "daemon/tools/ctl/history.h"
#include "support/files.h"

namespace syncd::ctl {
namespace {

using ::testing::HasSubstr;

// One accepted connection, as the scripted daemon sees it.
class Peer {
 public:
  explicit Peer(int fd) : fd_(fd) {}
  ~Peer() { ::close(fd_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // The next message; Unknown with id 0 once the tool has gone.
  wire::Message receive() {
    std::span<const std::uint8_t> payload;
    std::string error;
    while (splitter_.next(payload, error) != wire::FrameSplitter::Result::kFrame) {
      std::uint8_t buffer[4096];
      const ssize_t count = ::recv(fd_, buffer, sizeof buffer, 0);
      if (count <= 0) return {};
      splitter_.append({buffer, static_cast<std::size_t>(count)});
    }
    wire::Message message;
    EXPECT_TRUE(wire::decode(payload, message, error)) << error;
    return message;
  }
  void send(const wire::Message& message) {
    std::vector<std::uint8_t> bytes;
    wire::Encoder().append(message, bytes);
    send_bytes(bytes);
  }
  void send_bytes(const std::vector<std::uint8_t>& bytes) {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void shake_hands() {
    const wire::Message hello = receive();
    EXPECT_TRUE(std::holds_alternative<wire::Hello>(hello.body));
    wire::Welcome welcome;
    welcome.protocol = kProtocolMax;
    send({hello.id, welcome});
  }

 private:
  int fd_;
  wire::FrameSplitter splitter_;
};

class DaemonLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    endpoint_.kind = client::Endpoint::Kind::kUnix;
    endpoint_.path = directory_.file("s");
  }
  void TearDown() override {
    if (daemon_.joinable()) daemon_.join();
    if (listen_fd_ >= 0) ::close(listen_fd_);
  }
  // Serves one connection by each of the scripts, in turn.
  void serve(std::vector<std::function<void(Peer&)>> scripts) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, endpoint_.path.c_str(), sizeof address.sun_path - 1);
    listen_fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::bind(listen_fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(listen_fd_, 8), 0);
    daemon_ = std::thread([this, scripts = std::move(scripts)] {
      for (const auto& script : scripts) {
        Peer peer(::accept(listen_fd_, nullptr, nullptr));
        script(peer);
      }
    });
  }
  bool open(std::int64_t timeout_ms = 10'000) {
    return link_.open({{endpoint_}, {}, {}}, timeout_ms);
  }

  const test::TempDir directory_;
  client::Endpoint endpoint_;
  int listen_fd_ = -1;
  std::thread daemon_;
  DaemonLink link_;
};

TEST_F(DaemonLinkTest, AsksAndIsAnswered) {
  serve({[](Peer& peer) {
    peer.shake_hands();
    const wire::Message request = peer.receive();
    peer.send({0, wire::ShutdownNotice{"a notification comes in between"}});
    wire::StatusReply reply;
    reply.pid = 77;
    peer.send({request.id, reply});
  }});
  ASSERT_TRUE(open()) << link_.error();
  wire::StatusReply reply;
  ASSERT_TRUE(link_.call(wire::StatusRequest{}, reply)) << link_.error();
  EXPECT_EQ(reply.pid, 77U);
  EXPECT_EQ(link_.endpoint(), "unix:" + endpoint_.path);
}

TEST_F(DaemonLinkTest, NobodyThere) {
  EXPECT_FALSE(open());
  EXPECT_EQ(link_.failure(), DaemonLink::Failure::kUnreachable);
  EXPECT_THAT(link_.error(), HasSubstr("unix:" + endpoint_.path));
  EXPECT_THAT(link_.error(), HasSubstr("is syncd running?"));
}

TEST_F(DaemonLinkTest, ARefusalCarriesItsText) {
  serve({[](Peer& peer) {
    peer.shake_hands();
    peer.send({peer.receive().id, wire::Error{Status::kUnknownJob, "there is no job 'x'"}});
  }});
  ASSERT_TRUE(open()) << link_.error();
  wire::Ok ok;
  EXPECT_FALSE(link_.call(wire::StopJobRequest{"x", ""}, ok));
  EXPECT_EQ(link_.failure(), DaemonLink::Failure::kRefused);
  EXPECT_THAT(link_.error(), HasSubstr("there is no job 'x' (SYNCD_E_UNKNOWN_JOB)"));
}

TEST_F(DaemonLinkTest, ARefusedHandshakeIsARefusal) {
  serve({[](Peer& peer) {
    peer.receive();
    peer.send({0, wire::Error{Status::kProtocol, "this daemon speaks version 9"}});
  }});
  EXPECT_FALSE(open());
  EXPECT_EQ(link_.failure(), DaemonLink::Failure::kRefused);
  EXPECT_THAT(link_.error(), HasSubstr("version 9"));
}

TEST_F(DaemonLinkTest, SilenceTimesOut) {
  serve({[](Peer& peer) {
    peer.shake_hands();
    peer.receive();  // the request
    peer.receive();  // returns when the tool has gone
  }});
  DaemonLink link;
  ASSERT_TRUE(link.open({{endpoint_}, {}, {}}, 50)) << link.error();
  wire::StatusReply reply;
  EXPECT_FALSE(link.call(wire::StatusRequest{}, reply));
  EXPECT_EQ(link.failure(), DaemonLink::Failure::kUnreachable);
  EXPECT_THAT(link.error(), HasSubstr("did not answer within 50 ms"));
}

TEST_F(DaemonLinkTest, GarbageIsNotTheProtocol) {
  serve({[](Peer& peer) {
    peer.receive();
    const std::string text = "HTTP/1.1 400 Bad Request\r\n\r\n";
    peer.send_bytes({text.begin(), text.end()});
  }});
  EXPECT_FALSE(open());
  EXPECT_THAT(link_.error(), HasSubstr("sent something that is not a message"));
}

// A reader of history that pauses is disconnected by the daemon, and goes on where it was.
TEST_F(DaemonLinkTest, HistoryGoesOnAfterALostConnection) {
  const auto page = [](Peer& peer, std::uint64_t expected, std::uint64_t next) {
    const wire::Message request = peer.receive();
    const auto* history = std::get_if<wire::HistoryRequest>(&request.body);
    ASSERT_NE(history, nullptr);
    EXPECT_EQ(history->from_sequence, expected);
    Record record;
    record.kind = RecordKind::kPush;
    record.job = 1;
    record.sequence = expected;
    store::RecordEncoder encoder;
    const auto bytes = encoder.encode(record);
    peer.send({request.id, wire::HistoryReply{{{expected, {bytes.begin(), bytes.end()}}}, next}});
  };
  serve({[&page](Peer& peer) {
           peer.shake_hands();
           page(peer, 1, 2);
           peer.send({0, wire::Error{Status::kTimeout, "nothing came for 5 s"}});
         },
         [&page](Peer& peer) {
           peer.shake_hands();
           page(peer, 2, 0);
         }});
  ASSERT_TRUE(open()) << link_.error();
  const ReadHistory read = history_of(link_, "j");
  HistoryPage page_read;
  std::string error;
  ASSERT_TRUE(read(1, 10, page_read, error)) << error;
  EXPECT_EQ(page_read.next, 2U);
  ASSERT_TRUE(read(2, 10, page_read, error)) << error;
  ASSERT_EQ(page_read.records.size(), 1U);
  EXPECT_EQ(page_read.records[0].sequence, 2U);
  EXPECT_EQ(page_read.next, 0U);
  daemon_.join();
}

// A plan for thousands of workers is larger than a frame: it comes in several answers.
TEST_F(DaemonLinkTest, ARecordLargerThanAFrameIsPutTogether) {
  std::vector<Record> kept(3);
  store::RecordEncoder encoder;
  store::ReadResult all;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    kept[i].kind = RecordKind::kPolicySwitched;
    kept[i].job = 1;
    kept[i].sequence = i + 1;
    kept[i].policy = i == 1 ? std::string(2 * limits::kHistoryReplyBytesMax + 77, 'p') : "asp";
    const auto bytes = encoder.encode(kept[i]);
    all.records.push_back({i + 1, {bytes.begin(), bytes.end()}});
  }
  // What the daemon does with a store of these; reading ends before what does not fit.
  const auto answer = [&all](Peer& peer, std::uint64_t sequence, std::uint64_t from_byte,
                             std::size_t records, std::uint64_t next) {
    const wire::Message request = peer.receive();
    const auto* history = std::get_if<wire::HistoryRequest>(&request.body);
    ASSERT_NE(history, nullptr);
    EXPECT_EQ(history->from_sequence, sequence);
    EXPECT_EQ(history->from_byte, from_byte);
    store::ReadResult read;
    read.next_sequence = next;
    const auto begin = all.records.begin() + static_cast<std::ptrdiff_t>(sequence) - 1;
    read.records.assign(begin, begin + static_cast<std::ptrdiff_t>(records));
    wire::Body body = server::history_reply(std::move(read), history->from_byte);
    if (const auto* reply = std::get_if<wire::HistoryReply>(&body)) {
      EXPECT_LE(reply->records.front().bytes.size(), limits::kHistoryReplyBytesMax);
    }
    peer.send({request.id, std::move(body)});
  };
  constexpr std::uint64_t kPart = limits::kHistoryReplyBytesMax;
  serve({[&answer](Peer& peer) {
    peer.shake_hands();
    answer(peer, 1, 0, 1, 2);
    answer(peer, 2, 0, 1, 3);
    answer(peer, 2, kPart, 1, 3);
    answer(peer, 2, 2 * kPart, 2, 0);  // small as the rest is, the next record waits its turn
    answer(peer, 3, 0, 1, 0);
  }});
  ASSERT_TRUE(open()) << link_.error();
  const ReadHistory history = history_of(link_, "j");
  std::vector<Record> read;
  HistoryPage page{{}, 1};
  std::string error;
  while (page.next != 0) {
    ASSERT_TRUE(history(page.next, 10, page, error)) << error;
    read.insert(read.end(), page.records.begin(), page.records.end());
  }
  EXPECT_EQ(read, kept);
  daemon_.join();

  const wire::Body beyond = server::history_reply({{all.records[0]}, 0}, 100'000);
  ASSERT_TRUE(std::holds_alternative<wire::Error>(beyond));
  EXPECT_THAT(std::get<wire::Error>(beyond).message, HasSubstr("none from byte 100000 on"));
}

}  // namespace
}  // namespace syncd::ctl
