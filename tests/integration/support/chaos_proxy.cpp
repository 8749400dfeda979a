// See chaos_proxy.h.
#include "support/chaos_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <limits>
#include <list>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/support/random.h"

namespace syncd::test {
namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using std::chrono::microseconds;

constexpr std::size_t kBufferBytesMax = 4096;
constexpr std::size_t kNoBytes = std::numeric_limits<std::size_t>::max();

std::runtime_error failure(const std::string& what) {
  return std::runtime_error(what + ": " + std::strerror(errno));
}

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

// An address in the form that the system takes.
struct Address {
  explicit Address(const std::string& text) {
    if (text.starts_with("unix:")) {
      const std::string path = text.substr(5);
      auto& local = reinterpret_cast<sockaddr_un&>(storage);
      if (path.size() >= sizeof local.sun_path) throw std::runtime_error(path + " is too long");
      local.sun_family = AF_UNIX;
      std::memcpy(local.sun_path, path.c_str(), path.size() + 1);
      size = sizeof local;
      return;
    }
    const std::size_t colon = text.rfind(':');
    auto& remote = reinterpret_cast<sockaddr_in&>(storage);
    remote.sin_family = AF_INET;
    remote.sin_port = htons(static_cast<std::uint16_t>(std::stoi(text.substr(colon + 1))));
    if (inet_pton(AF_INET, text.substr(0, colon).c_str(), &remote.sin_addr) != 1) {
      throw std::runtime_error(text + " is no numeric IPv4 address");
    }
    size = sizeof remote;
  }
  Socket socket() const {
    const int fd = ::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) throw failure("socket");
    return Socket(fd);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }

  sockaddr_storage storage{};
  socklen_t size = 0;
};

Socket listen_at(std::string& text) {
  const Address address(text);
  Socket socket = address.socket();
  if (bind(socket.fd(), address.get(), address.size) != 0 || listen(socket.fd(), 64) != 0) {
    throw failure("cannot listen at " + text);
  }
  if (!text.starts_with("unix:")) {
    sockaddr_in bound{};
    socklen_t size = sizeof bound;
    getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&bound), &size);
    text = "127.0.0.1:" + std::to_string(ntohs(bound.sin_port));
  }
  return socket;
}

// How the bytes of one direction are passed on.
struct Shape {
  std::size_t read_bytes_max = kBufferBytesMax;
  microseconds read_pause{0};       // after each read
  std::size_t write_bytes_max = 0;  // 0: whatever there is
  microseconds delay_max{0};        // before each write, at random
  std::size_t merge_bytes = 0;      // waits until there are so many,
  microseconds merge_wait{0};       // but no longer than this
};

Shape draw_shape(Random& random) {
  Shape shape;
  switch (random.below(6)) {
    case 0:
      break;
    case 1:
      shape.write_bytes_max = 1;  // a frame split at every byte
      break;
    case 2:
      shape.write_bytes_max = 1 + random.below(40);
      shape.delay_max = microseconds(random.between(0, 300));
      break;
    case 3:
      shape.merge_bytes = 100 + random.below(1500);
      shape.merge_wait = microseconds(random.between(1'000, 30'000));
      break;
    case 4:
      shape.delay_max = microseconds(random.between(1'000, 50'000));
      break;
    default:
      shape.read_bytes_max = 1 + random.below(100);
      shape.read_pause = microseconds(random.between(500, 5'000));
  }
  return shape;
}

// One direction of one connection.
class Pipe {
 public:
  enum class State { kOpen, kEnded, kBroken };

  Pipe(int from, int to, std::uint64_t seed)
      : from_(from), to_(to), random_(seed), shape_(draw_shape(random_)) {}

  State state() const { return state_; }
  std::size_t bytes_read() const { return bytes_read_; }
  bool drained() const { return buffer_.empty(); }
  void lose_everything() {
    loses_ = true;
    buffer_.clear();
  }
  void stop_reading() { reads_ = false; }
  void flush_and_end() {
    reads_ = false;
    shape_ = Shape{};
    next_write_ = Time{};
  }
  // The reader sees an end of file.
  void end() {
    lose_everything();
    shutdown(to_, SHUT_WR);
  }

  // What to wait for, and no longer than until `wake`.
  bool wants_read(Time now, Time& wake) const {
    if (!reads_ || state_ != State::kOpen || buffer_.size() >= kBufferBytesMax) return false;
    return due(next_read_, now, wake);
  }
  bool wants_write(Time now, Time& wake) const {
    if (buffer_.empty() || state_ == State::kBroken) return false;
    return due(buffer_.size() < shape_.merge_bytes ? merge_until_ : next_write_, now, wake);
  }

  void read(Time now) {
    std::uint8_t bytes[kBufferBytesMax];
    const ssize_t size = recv(from_, bytes, shape_.read_bytes_max, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) {
      state_ = size == 0 ? State::kEnded : State::kBroken;
      return;
    }
    bytes_read_ += static_cast<std::size_t>(size);
    next_read_ = now + shape_.read_pause;
    if (loses_) return;
    if (buffer_.empty()) {
      merge_until_ = now + shape_.merge_wait;
      delay(now);
    }
    buffer_.insert(buffer_.end(), bytes, bytes + size);
  }

  // Some writes in a row, so that single bytes do not take a turn of the loop each.
  void write(Time now) {
    for (int i = 0; i < 64 && !buffer_.empty(); ++i) {
      const std::size_t wanted =
          std::min(buffer_.size(), shape_.write_bytes_max == 0 ? kNoBytes : shape_.write_bytes_max);
      const std::vector<std::uint8_t> bytes(buffer_.begin(),
                                            buffer_.begin() + static_cast<std::ptrdiff_t>(wanted));
      const ssize_t size = send(to_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (size <= 0) {
        state_ = State::kBroken;
        return;
      }
      buffer_.erase(buffer_.begin(), buffer_.begin() + size);
      delay(now);
      if (shape_.delay_max.count() > 0) return;
    }
  }

 private:
  static bool due(Time at, Time now, Time& wake) {
    if (at <= now) return true;
    wake = std::min(wake, at);
    return false;
  }
  void delay(Time now) {
    next_write_ = now + microseconds(random_.between(0, shape_.delay_max.count()));
  }

  const int from_;
  const int to_;
  Random random_;
  Shape shape_;
  State state_ = State::kOpen;
  bool reads_ = true;
  bool loses_ = false;
  std::deque<std::uint8_t> buffer_;
  std::size_t bytes_read_ = 0;
  Time next_read_{};
  Time next_write_{};
  Time merge_until_{};
};

}  // namespace

class ChaosProxy::Loop {
 public:
  Loop(ChaosProxy& proxy, const ChaosProxyOptions& options, Socket listener, int wake)
      : proxy_(proxy),
        upstream_(options.upstream),
        listener_(std::move(listener)),
        wake_(wake),
        random_(options.seed) {}

  void run() {
    for (;;) {
      const Time now = Clock::now();
      Time wake = now + std::chrono::seconds(10);
      std::vector<pollfd> fds = {{wake_, POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
      std::vector<std::pair<Connection*, Pipe*>> owners = {{}, {}};
      for (Connection& connection : connections_) {
        for (Pipe* pipe : {&connection.up, &connection.down}) {
          const bool is_up = pipe == &connection.up;
          const int from = is_up ? connection.client.fd() : connection.daemon.fd();
          const int to = is_up ? connection.daemon.fd() : connection.client.fd();
          if (pipe->wants_read(now, wake)) {
            fds.push_back({from, POLLIN, 0});
            owners.emplace_back(&connection, pipe);
          }
          if (pipe->wants_write(now, wake)) {
            fds.push_back({to, POLLOUT, 0});
            owners.emplace_back(&connection, pipe);
          }
        }
      }
      // Rounded up: a wait that ends just before the time that it is for would be made again.
      const auto wait = std::chrono::ceil<std::chrono::milliseconds>(wake - now);
      if (poll(fds.data(), fds.size(), static_cast<int>(wait.count())) < 0) continue;
      if (fds[0].revents != 0) return;
      for (std::size_t i = 2; i < fds.size(); ++i) {
        if (fds[i].revents == 0) continue;
        if (fds[i].events == POLLIN) {
          owners[i].second->read(now);
        } else {
          owners[i].second->write(now);
        }
      }
      for (Connection& connection : connections_) attend(connection);
      connections_.remove_if([](const Connection& connection) { return connection.over; });
      if (fds[1].revents != 0) take();
    }
  }

 private:
  struct Connection {
    Connection(Socket client_end, Socket daemon_end, Fate given, std::size_t bytes, Random& random)
        : client(std::move(client_end)),
          daemon(std::move(daemon_end)),
          up(client.fd(), daemon.fd(), random.next()),
          down(daemon.fd(), client.fd(), random.next()),
          fate(given),
          strikes_at(bytes) {}

    Socket client;
    Socket daemon;
    Pipe up;    // from the client to the daemon
    Pipe down;  // from the daemon to the client
    Fate fate;
    std::size_t strikes_at;  // bytes of both directions together
    bool struck = false;
    bool over = false;
  };

  // Every fate once, in another order each time. The one that a client needs its whole handshake
  // timeout to notice comes once in all.
  Fate next_fate() {
    if (deck_.empty()) {
      for (std::size_t i = 0; i < kFates; ++i) {
        const Fate fate = static_cast<Fate>(i);
        if (fate != Fate::kSilent || !silent_used_) deck_.push_back(fate);
      }
      silent_used_ = true;
      random_.shuffle(deck_);
    }
    const Fate fate = deck_.back();
    deck_.pop_back();
    return fate;
  }

  void take() {
    Socket client(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client.open()) return;
    ++proxy_.connections_;
    Socket daemon = upstream_.socket();
    // The daemon is not there: nor is anybody else.
    if (connect(daemon.fd(), upstream_.get(), upstream_.size) != 0) return;
    const Fate fate = next_fate();
    // From within the handshake to some iterations on. A client that hears nothing of its Welcome
    // waits long for it: not those that are only about to be deaf.
    const bool in_handshake = fate == Fate::kCut || fate == Fate::kCutAfterwards;
    const std::size_t strikes_at =
        fate == Fate::kSilent ? 0 : (in_handshake ? 1 : 500) + random_.below(3000);
    if (fate == Fate::kRefused) {
      proxy_.struck(fate);
      return;
    }
    connections_.emplace_back(std::move(client), std::move(daemon), fate, strikes_at, random_);
    attend(connections_.back());
  }

  void attend(Connection& connection) {
    const bool broken = connection.up.state() == Pipe::State::kBroken ||
                        connection.down.state() == Pipe::State::kBroken;
    const bool ended =
        (connection.up.state() == Pipe::State::kEnded && connection.up.drained()) ||
        (connection.down.state() == Pipe::State::kEnded && connection.down.drained());
    if (broken || ended) connection.over = true;
    if (connection.struck) {
      if (connection.fate == Fate::kCutAfterwards && connection.up.drained() &&
          connection.down.drained()) {
        connection.over = true;
      }
      return;
    }
    if (connection.up.bytes_read() + connection.down.bytes_read() < connection.strikes_at) return;
    connection.struck = true;
    proxy_.struck(connection.fate);
    strike(connection);
  }

  void strike(Connection& connection) {
    switch (connection.fate) {
      case Fate::kCut:
      case Fate::kRefused:
        connection.over = true;
        return;
      case Fate::kCutAfterwards:
        connection.up.flush_and_end();
        connection.down.flush_and_end();
        return;
      case Fate::kSilent:
      case Fate::kFrozen:
        // Only the client's giving up ends it, or for a frozen one, which notices nothing, the end
        // of the test: its place is taken by another connection.
        connection.up.lose_everything();
        if (connection.fate == Fate::kFrozen) connection.up.stop_reading();
        connection.down.lose_everything();
        connection.down.stop_reading();
        return;
      case Fate::kHalfClosed:
        (random_.one_in(2) ? connection.up : connection.down).end();
        return;
      case Fate::kDeafToClients:
        return connection.up.lose_everything();
      case Fate::kDeafToDaemon:
        return connection.down.lose_everything();
      case Fate::kStalledClients:
        return connection.up.stop_reading();
      case Fate::kStalledDaemon:
        return connection.down.stop_reading();
    }
  }

  ChaosProxy& proxy_;
  const Address upstream_;
  const Socket listener_;
  const int wake_;
  Random random_;
  std::vector<Fate> deck_;
  bool silent_used_ = false;
  std::list<Connection> connections_;
};

ChaosProxy::ChaosProxy(const ChaosProxyOptions& options) : address_(options.listen) {
  Socket listener = listen_at(address_);
  if (pipe2(wake_, O_CLOEXEC) != 0) throw failure("pipe2");
  loop_ = std::make_unique<Loop>(*this, options, std::move(listener), wake_[0]);
  thread_ = std::thread([this] { loop_->run(); });
}

ChaosProxy::~ChaosProxy() {
  ::close(wake_[1]);
  thread_.join();
  ::close(wake_[0]);
}

bool ChaosProxy::all_fates_struck() const {
  return struck_.load() == (1U << kFates) - 1;
}

}  // namespace syncd::test
