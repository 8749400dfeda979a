// See wire_client.h.
#include "tests/bench/wire_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tests/bench/measure.h"

namespace syncd::bench {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr int kEventsMax = 256;
// A daemon under valgrind is 50 times slower than one without.
constexpr int kPatienceMs = 120'000;

std::string reason() {
  return std::strerror(errno);
}

int connect_to(const std::string& address) {
  constexpr std::string_view kPrefix = "unix:";
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  const std::string path = address.substr(kPrefix.size());
  if (!address.starts_with(kPrefix) || path.size() >= sizeof to.sun_path) {
    fail(address + ": not the address of a Unix socket, or too long for one");
  }
  std::memcpy(to.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("no socket: " + reason());
  // Blocks while the listener's queue is full.
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
    fail("cannot connect to " + address + ": " + reason());
  }
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return fd;
}

}  // namespace

struct WireClient::Peer {
  explicit Peer(int socket) : fd(socket) {}
  ~Peer() { close(fd); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const int fd;
  wire::FrameSplitter frames;
  std::vector<std::uint8_t> out;
  bool dirty = false;
};

WireClient::WireClient() : epoll_(epoll_create1(EPOLL_CLOEXEC)), read_buffer_(kReadBytes) {
  if (epoll_ < 0) fail("no epoll set: " + reason());
}

WireClient::~WireClient() {
  close(epoll_);
}

std::size_t WireClient::add(const std::string& address) {
  peers_.push_back(std::make_unique<Peer>(connect_to(address)));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = peers_.size() - 1;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, peers_.back()->fd, &event) != 0) fail("epoll_ctl failed");
  return peers_.size() - 1;
}

void WireClient::drop(std::size_t connection) {
  peers_[connection].reset();
}

void WireClient::send(std::size_t connection, const wire::Message& message) {
  Peer& peer = *peers_[connection];
  encoder_.append(message, peer.out);
  if (peer.dirty) return;
  peer.dirty = true;
  dirty_.push_back(connection);
}

void WireClient::flush() {
  for (const std::size_t connection : dirty_) write_to(*peers_[connection]);
  dirty_.clear();
}

void WireClient::write_to(Peer& peer) {
  std::size_t done = 0;
  while (done < peer.out.size()) {
    const ssize_t n = ::send(peer.fd, peer.out.data() + done, peer.out.size() - done, MSG_NOSIGNAL);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
      continue;
    }
    // The servers never block on a write, so waiting here cannot deadlock.
    pollfd wanted{peer.fd, POLLOUT, 0};
    if (errno != EAGAIN) fail("a connection broke while sending: " + reason());
    if (::poll(&wanted, 1, kPatienceMs) <= 0) fail("a server does not read what it is sent");
  }
  peer.out.clear();
  peer.dirty = false;
}

void WireClient::read_from(std::size_t connection, const Handler& handler) {
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
    if (result == wire::FrameSplitter::Result::kError) fail("the server sent no frame: " + error);
    handler(connection, payload);
  }
}

void WireClient::poll(const Handler& handler) {
  flush();
  std::array<epoll_event, kEventsMax> events;
  const int count = epoll_wait(epoll_, events.data(), kEventsMax, kPatienceMs);
  if (count < 0 && errno != EINTR) fail("epoll_wait: " + reason());
  if (count == 0) fail("a server does not answer");
  for (int i = 0; i < count; ++i) {
    read_from(events[static_cast<std::size_t>(i)].data.u64, handler);
    flush();
  }
}

}  // namespace syncd::bench
