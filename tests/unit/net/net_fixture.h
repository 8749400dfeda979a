// A network on a loop in this thread, and raw clients beside it. The loop runs only inside
// run_until(), so that a test is one thread and every step of it has an order.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/edge/net/loop_guard.h"
#include "daemon/edge/net/network.h"

namespace syncd::net {

// Keeps what it is told; answers as the test says.
class FakeHandler final : public FrameHandler {
 public:
  struct Received {
    ConnectionId connection;
    wire::Message message;
  };
  std::vector<Received> received;
  std::vector<ConnectionId> closed;
  std::string closed_why;  // the last one
  bool closed_by_peer = false;  // likewise
  std::vector<LogLine> lines;
  std::function<void(ConnectionId, const wire::Message&)> answer;
  std::function<void()> turn_end;

  void on_message(ConnectionId connection, wire::Message&& message) override {
    received.push_back({connection, std::move(message)});
    if (answer) answer(connection, received.back().message);
  }
  void on_hot(ConnectionId connection, const Identity&, const wire::HotCall& hot,
              std::uint64_t) override {
    wire::visit_hot(hot, [&](const auto& call) { on_message(connection, {hot.id, call}); });
  }
  void on_closed(ConnectionId connection, const std::string& reason, bool by_peer) override {
    closed.push_back(connection);
    closed_why = reason;
    closed_by_peer = by_peer;
  }
  void on_turn_end() override {
    if (turn_end) turn_end();
  }
  void on_log(LogLine line) override { lines.push_back(std::move(line)); }

  // The field of the latest line of this event; "" if there is none.
  std::string logged(const std::string& event, const std::string& field) const {
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
      if (line->event != event) continue;
      for (const auto& [key, value] : line->fields) {
        if (key == field) return value;
      }
    }
    return {};
  }
};

// The other end of a connection: sends bytes, reads frames, never blocks.
class RawClient {
 public:
  explicit RawClient(const std::string& unix_path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, unix_path.c_str(), sizeof address.sun_path - 1);
    open(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  explicit RawClient(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    open(AF_INET, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  ~RawClient() { ::close(fd_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void send_bytes(std::span<const std::uint8_t> bytes) {
    ASSERT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  static std::vector<std::uint8_t> frame(const wire::Message& message) {
    std::vector<std::uint8_t> bytes;
    wire::Encoder().append(message, bytes);
    return bytes;
  }
  void send(const wire::Message& message) { send_bytes(frame(message)); }
  void hello() { send({1, wire::Hello{kProtocolMin, kProtocolMax, "test", "1", ""}}); }
  void shrink_receive_buffer() {
    const int bytes = 4096;
    ASSERT_EQ(setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
  }

  // Takes what has arrived; messages go to `messages`.
  void receive() {
    std::uint8_t buffer[65536];
    for (;;) {
      const ssize_t count = ::recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (count <= 0) {
        ended = true;
        reset = count < 0;
        break;
      }
      ++reads;
      splitter_.append({buffer, static_cast<std::size_t>(count)});
    }
    std::span<const std::uint8_t> payload;
    std::string error;
    while (splitter_.next(payload, error) == wire::FrameSplitter::Result::kFrame) {
      wire::Message message;
      ASSERT_TRUE(wire::decode(payload, message, error)) << error;
      messages.push_back(std::move(message));
    }
    ASSERT_EQ(error, "");
  }
  template <class T>
  const T* last() const {
    return messages.empty() ? nullptr : std::get_if<T>(&messages.back().body);
  }

  std::vector<wire::Message> messages;
  bool ended = false;
  bool reset = false;
  int reads = 0;

 private:
  void open(int family, const sockaddr* address, socklen_t length) {
    fd_ = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_GE(fd_, 0);
    ASSERT_EQ(connect(fd_, address, length), 0) << std::strerror(errno);
  }
  int fd_ = -1;
  wire::FrameSplitter splitter_;
};

class NetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/syncd-net-test-XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    directory_ = directory;
    ::signal(SIGPIPE, SIG_IGN);
    ASSERT_EQ(uv_loop_init(&loop_), 0);
  }
  void TearDown() override {
    if (network_) stop();
    EXPECT_EQ(uv_loop_close(&loop_), 0) << "a handle was not closed";
    std::string error;
    ::rmdir(directory_.c_str());
  }

  std::string socket_path() const { return directory_ + "/s"; }

  void start(NetworkOptions options = {}) {
    options.server_version = "9.9";
    network_ = std::make_unique<Network>(&loop_, options, handler_);
    network_->open();
    ListenSocket socket;
    std::string error;
    ASSERT_TRUE(open_unix_socket(socket_path(), 0600, socket, error)) << error;
    ASSERT_TRUE(network_->listen(std::move(socket), error)) << error;
  }
  void stop() {
    bool done = false;
    network_->shutdown("test is over", 200, [&] { done = true; });
    ASSERT_TRUE(run_until([&] { return done; }));
    network_.reset();
  }

  // Turns the loop until the condition holds. False: it did not within the deadline, which only a
  // defect reaches.
  bool run_until(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      uv_run(&loop_, UV_RUN_NOWAIT);
      if (loop_failure != nullptr) std::rethrow_exception(loop_failure);
      ::poll(nullptr, 0, 1);
    }
    return true;
  }
  bool receive_until(RawClient& client, const std::function<bool()>& condition) {
    return run_until([&] {
      client.receive();
      return condition();
    });
  }
  // A client whose handshake is done.
  std::unique_ptr<RawClient> connect() {
    auto client = std::make_unique<RawClient>(socket_path());
    client->hello();
    EXPECT_TRUE(receive_until(*client, [&] { return client->last<wire::Welcome>() != nullptr; }));
    client->messages.clear();
    return client;
  }

  std::string directory_;
  uv_loop_t loop_;
  FakeHandler handler_;
  std::unique_ptr<Network> network_;
};

inline wire::Message begin_message(std::uint64_t id) {
  return {id, wire::Begin{{1, 2, 3, 4}, static_cast<std::int64_t>(id)}};
}

}  // namespace syncd::net
