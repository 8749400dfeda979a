// The load generator's sockets. One thread.
#include "tests/bench/client.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tests/bench/measure.h"

namespace syncd::bench {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr int kEventsMax = 256;

}  // namespace

struct Client::Peer {
  int fd = -1;
  wire::FrameSplitter frames;
  std::vector<std::uint8_t> out;
  bool dirty = false;

  ~Peer() { close(fd); }
};

Client::Client() : epoll_(epoll_create1(EPOLL_CLOEXEC)), read_buffer_(kReadBytes) {
  if (epoll_ < 0) fail(std::string("no epoll set: ") + std::strerror(errno));
}

Client::~Client() {
  close(epoll_);
}

std::size_t Client::add(const Endpoint& endpoint) {
  const int fd = connect_to(endpoint);
  if (fd < 0) fail("nobody listens on " + endpoint.text());
  auto peer = std::make_unique<Peer>();
  peer->fd = fd;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = peers_.size();
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl failed");
  peers_.push_back(std::move(peer));
  return peers_.size() - 1;
}

void Client::send(std::size_t connection, const wire::Message& message) {
  Peer& peer = *peers_[connection];
  encoder_.append(message, peer.out);
  if (!peer.dirty) {
    peer.dirty = true;
    dirty_.push_back(connection);
  }
}

void Client::flush() {
  for (const std::size_t connection : dirty_) write_to(*peers_[connection]);
  dirty_.clear();
}

void Client::write_to(Peer& peer) {
  std::size_t done = 0;
  while (done < peer.out.size()) {
    const ssize_t n = ::send(peer.fd, peer.out.data() + done, peer.out.size() - done, MSG_NOSIGNAL);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN) {
      // The servers never block on a write, so waiting here cannot deadlock.
      pollfd wanted{peer.fd, POLLOUT, 0};
      if (::poll(&wanted, 1, static_cast<int>(kPatience.count())) <= 0)
        fail("a server does not read what it is sent");
    } else {
      fail(std::string("a connection broke while sending: ") + std::strerror(errno));
    }
  }
  peer.out.clear();
  peer.dirty = false;
}

void Client::read_from(std::size_t connection, const Handler& handler) {
  Peer& peer = *peers_[connection];
  const ssize_t n = recv(peer.fd, read_buffer_.data(), read_buffer_.size(), 0);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) fail("the server closed a connection: see its log");
  peer.frames.append({read_buffer_.data(), static_cast<std::size_t>(n)});
  std::span<const std::uint8_t> payload;
  std::string error;
  for (;;) {
    const auto result = peer.frames.next(payload, error);
    if (result == wire::FrameSplitter::Result::kNeedMore) return;
    if (result == wire::FrameSplitter::Result::kError || !wire::decode(payload, message_, error)) {
      fail("the server sent something that is no message: " + error);
    }
    if (std::holds_alternative<wire::Heartbeat>(message_.body)) {
      send(connection, {0, wire::HeartbeatAck{}});
    } else if (!std::holds_alternative<wire::HeartbeatAck>(message_.body)) {
      handler(connection, message_);
    }
  }
}

bool Client::poll(std::chrono::nanoseconds timeout, const Handler& handler) {
  flush();
  std::array<epoll_event, kEventsMax> events;
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec wait{whole.count(), (timeout - whole).count()};
  const int count = epoll_pwait2(epoll_, events.data(), kEventsMax, &wait, nullptr);
  if (count < 0 && errno != EINTR) fail(std::string("epoll_pwait2: ") + std::strerror(errno));
  for (int i = 0; i < count; ++i) {
    read_from(events[static_cast<std::size_t>(i)].data.u64, handler);
    flush();
  }
  return count > 0;
}

}  // namespace syncd::bench
