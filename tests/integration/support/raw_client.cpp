// See raw_client.h.
#include "support/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace syncd::test {
namespace {

std::runtime_error failure(const std::string& what) {
  return std::runtime_error(what + ": " + std::strerror(errno));
}

int connect_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) throw std::runtime_error(path + " is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw failure("socket");
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  const auto error = failure("cannot connect to " + path);
  ::close(fd);
  throw error;
}

int connect_tcp(const std::string& host, const std::string& port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    throw std::runtime_error(host + " is no numeric IPv4 address");
  }
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw failure("socket");
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  const auto error = failure("cannot connect to " + host + ":" + port);
  ::close(fd);
  throw error;
}

}  // namespace

RawClient::RawClient(const std::string& address) {
  if (address.starts_with("unix:")) {
    fd_ = connect_unix(address.substr(5));
  } else {
    const std::size_t colon = address.rfind(':');
    fd_ = connect_tcp(address.substr(0, colon), address.substr(colon + 1));
  }
}

RawClient::~RawClient() {
  if (fd_ >= 0) ::close(fd_);
}

RawClient::RawClient(RawClient&& other) noexcept
    : splitter_(std::move(other.splitter_)),
      fd_(std::exchange(other.fd_, -1)),
      next_id_(other.next_id_),
      encoder_(std::move(other.encoder_)),
      answers_(std::move(other.answers_)),
      notifications_(std::move(other.notifications_)) {}

wire::Welcome RawClient::hello(const std::string& token) {
  wire::Hello hello;
  hello.protocol_min = kProtocolMin;
  hello.protocol_max = kProtocolMax;
  hello.client_name = "integration test";
  hello.token = token;
  return call_for<wire::Welcome>(hello);
}

RawClient greeted(const std::string& address, const std::string& token) {
  RawClient client(address);
  client.hello(token);
  return client;
}

void RawClient::send_to_socket(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) throw failure("send");
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

void RawClient::send_bytes(std::string_view bytes) {
  send_bytes(std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
}

std::uint64_t RawClient::send(wire::Body body) {
  const std::uint64_t id = next_id_++;
  send_with_id(id, std::move(body));
  return id;
}

void RawClient::send_with_id(std::uint64_t id, wire::Body body) {
  std::vector<std::uint8_t> frame;
  encoder_.append({id, std::move(body)}, frame);
  send_bytes(frame);
}

void RawClient::close_sending() {
  ::shutdown(fd_, SHUT_WR);
}

// False: the stream has ended.
bool RawClient::next_frame(const Deadline& deadline, wire::Message& message) {
  for (;;) {
    std::span<const std::uint8_t> payload;
    std::string error;
    switch (splitter_.next(payload, error)) {
      case wire::FrameSplitter::Result::kFrame:
        if (!wire::decode(payload, message, error)) throw std::runtime_error(error);
        if (!std::holds_alternative<wire::Heartbeat>(message.body) &&
            !std::holds_alternative<wire::HeartbeatAck>(message.body)) {
          return true;
        }
        if (message.id == 0 && std::holds_alternative<wire::Heartbeat>(message.body)) {
          send_with_id(0, wire::HeartbeatAck{});
        }
        continue;
      case wire::FrameSplitter::Result::kError:
        throw std::runtime_error("the daemon sent a bad frame: " + error);
      case wire::FrameSplitter::Result::kNeedMore:
        break;
    }
    pollfd wanted{fd_, POLLIN, 0};
    const int ready = poll(&wanted, 1, deadline.left_ms());
    if (ready < 0 && errno != EINTR) throw failure("poll");
    if (ready <= 0) {
      if (deadline.passed()) throw std::runtime_error("the daemon did not answer in time");
      continue;
    }
    std::uint8_t buffer[16384];
    const ssize_t count = recv(fd_, buffer, sizeof buffer, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno != ECONNRESET) throw failure("recv");
    if (count <= 0) return false;
    arrived(std::span(buffer, static_cast<std::size_t>(count)));
  }
}

wire::Message RawClient::receive(Milliseconds timeout) {
  wire::Message message;
  if (!next_frame(Deadline(timeout), message)) {
    throw std::runtime_error("the daemon closed the connection");
  }
  return message;
}

void RawClient::keep(wire::Message message) {
  if (message.id == 0) {
    notifications_.push_back(std::move(message.body));
  } else {
    answers_.push_back(std::move(message));
  }
}

wire::Body RawClient::answer(std::uint64_t id, Milliseconds timeout) {
  const Deadline deadline(timeout);
  for (;;) {
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      if (answers_[i].id != id) continue;
      wire::Body body = std::move(answers_[i].body);
      answers_.erase(answers_.begin() + static_cast<std::ptrdiff_t>(i));
      return body;
    }
    keep(receive(Milliseconds(deadline.left_ms())));
  }
}

std::string RawClient::describe(const wire::Body& body) {
  std::string text(wire::body_name(body));
  if (const auto* error = std::get_if<wire::Error>(&body)) {
    text += " " + std::string(status_name(error->status)) + ": " + error->message;
  }
  return text;
}

std::vector<wire::Message> RawClient::drain_until_closed(Milliseconds timeout) {
  const Deadline deadline(timeout);
  std::vector<wire::Message> out;
  wire::Message message;
  while (next_frame(deadline, message)) out.push_back(message);
  return out;
}

wire::Join join_of(std::string job, std::int32_t rank, std::uint32_t world_size,
                   std::string policy) {
  wire::Join join;
  join.job = std::move(job);
  join.policy = std::move(policy);
  join.rank = rank;
  join.name = rank < 0 ? "worker" : "worker-" + std::to_string(rank);
  join.host = "host-" + std::to_string(rank);
  join.world_size = world_size;
  return join;
}

Bystander::Bystander(const std::string& address, const std::string& job)
    : client_(greeted(address)), worker_(client_, join_of(job, 0, 1, "asp")) {}

void Bystander::expect_progress(int iterations) {
  for (int i = 0; i < iterations; ++i, ++next_) {
    const std::int64_t granted = worker_.begin(next_).iteration;
    if (granted != next_ || worker_.push(next_).iteration != next_) {
      throw std::runtime_error("the bystander's iteration " + std::to_string(next_) +
                               " went wrong");
    }
  }
}

}  // namespace syncd::test
