// See daemon_link.h.
#include "daemon/tools/ctl/daemon_link.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "proto/base/defaults.h"

namespace syncd::ctl {
namespace {

// Waits until `fd` is ready for `events`. False: the time is up (errno ETIMEDOUT) or poll failed.
bool wait_for(int fd, short events, std::int64_t timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready > 0) return true;
    if (ready == 0) {
      errno = ETIMEDOUT;
      return false;
    }
    if (errno != EINTR) return false;
  }
}

// A connected non-blocking socket, or -1 with errno set.
int connect_socket(int family, const sockaddr* address, socklen_t length, std::int64_t timeout_ms) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  int code = connect(fd, address, length) == 0 ? 0 : errno;
  if (code == EINPROGRESS) {
    socklen_t size = sizeof code;
    code = wait_for(fd, POLLOUT, timeout_ms) ? 0 : errno;
    if (code == 0) getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size);
  }
  if (code == 0) return fd;
  close(fd);
  errno = code;
  return -1;
}

int connect_unix(const std::string& path, std::int64_t timeout_ms) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return connect_socket(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof address,
                        timeout_ms);
}

int connect_tcp(const client::Endpoint& endpoint, std::int64_t timeout_ms, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (code != 0) {
    why = gai_strerror(code);
    return -1;
  }
  int fd = -1;
  for (const addrinfo* at = found; at != nullptr && fd < 0; at = at->ai_next) {
    fd = connect_socket(at->ai_family, at->ai_addr, at->ai_addrlen, timeout_ms);
    if (fd < 0) why = std::strerror(errno);
  }
  freeaddrinfo(found);
  return fd;
}

}  // namespace

DaemonLink::~DaemonLink() {
  disconnect();
}

void DaemonLink::disconnect() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  tls_.reset();
  splitter_ = wire::FrameSplitter();
}

bool DaemonLink::fail(Failure failure, std::string error) {
  failure_ = failure;
  error_ = std::move(error);
  return false;
}

bool DaemonLink::connect_to(const client::Endpoint& endpoint, std::string& why) {
  if (endpoint.kind == client::Endpoint::Kind::kUnix) {
    fd_ = connect_unix(endpoint.path, timeout_ms_);
    if (fd_ < 0) why = std::strerror(errno);
  } else {
    fd_ = connect_tcp(endpoint, timeout_ms_, why);
  }
  return fd_ >= 0;
}

bool DaemonLink::open(const std::vector<client::Endpoint>& endpoints, Credentials credentials,
                      std::int64_t timeout_ms) {
  endpoints_ = endpoints;
  credentials_ = std::move(credentials);
  timeout_ms_ = timeout_ms;
  return reopen();
}

bool DaemonLink::reopen() {
  disconnect();
  std::string tried;
  for (const client::Endpoint& endpoint : endpoints_) {
    std::string why;
    if (!connect_to(endpoint, why)) {
      tried += (tried.empty() ? "" : "; ") + endpoint.text() + ": " + why;
      continue;
    }
    endpoint_ = endpoint.text();
    if (endpoint.kind == client::Endpoint::Kind::kTls && !begin_tls(endpoint)) return false;
    wire::Welcome welcome;
    return call(
        wire::Hello{kProtocolMin, kProtocolMax, "syncctl", SYNCD_VERSION, credentials_.token},
        welcome);
  }
  return fail(Failure::kUnreachable,
              "no daemon answered (" + tried + "): is syncd running? Name its address with --addr");
}

bool DaemonLink::begin_tls(const client::Endpoint& endpoint) {
  const std::string& name =
      credentials_.server_name.empty() ? endpoint.host : credentials_.server_name;
  std::vector<std::uint8_t> first;
  tls_ = tls::Channel::connect(credentials_.tls, name, endpoint_, first);
  return tls_ != nullptr ? send_raw(first) : fail(Failure::kUnreachable, "memory ran out");
}

// Under TLS nothing leaves before the handshake is over, which receive() brings about.
bool DaemonLink::send_all(std::span<const std::uint8_t> bytes) {
  if (tls_ == nullptr) return send_raw(bytes);
  std::vector<std::uint8_t> sealed;
  if (!tls_->send(bytes, sealed)) return fail(Failure::kRefused, endpoint_ + ": " + tls_->error());
  return send_raw(sealed);
}

// What came over the socket. False: TLS failed, and nothing of what the daemon said is left.
bool DaemonLink::take(std::span<const std::uint8_t> bytes) {
  if (tls_ == nullptr) {
    splitter_.append(bytes);
    return true;
  }
  std::vector<std::uint8_t> plain;
  std::vector<std::uint8_t> out;
  const bool good = tls_->receive(bytes, plain, out);
  if (!good && plain.empty()) {
    return fail(tls_->status() == Status::kAuth ? Failure::kRefused : Failure::kUnreachable,
                endpoint_ + ": " + tls_->error());
  }
  splitter_.append(plain);
  return send_raw(out);
}

bool DaemonLink::send_raw(std::span<const std::uint8_t> bytes) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count > 0) {
      sent += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      if (!wait_for(fd_, POLLOUT, timeout_ms_)) break;
    } else if (errno != EINTR) {
      break;
    }
  }
  return sent == bytes.size() || fail(Failure::kUnreachable, "the connection to " + endpoint_ +
                                                                 " broke: " + std::strerror(errno));
}

bool DaemonLink::receive(wire::Message& message) {
  while (true) {
    std::span<const std::uint8_t> payload;
    std::string why;
    const auto result = splitter_.next(payload, why);
    if (result == wire::FrameSplitter::Result::kFrame && wire::decode(payload, message, why)) {
      return true;
    }
    if (result != wire::FrameSplitter::Result::kNeedMore) {
      return fail(Failure::kUnreachable, endpoint_ + " does not speak syncd's protocol: " + why);
    }
    std::array<std::uint8_t, 16384> buffer;
    const ssize_t count = recv(fd_, buffer.data(), buffer.size(), 0);
    if (count > 0) {
      if (!take(std::span(buffer).first(static_cast<std::size_t>(count)))) return false;
    } else if (count == 0) {
      return fail(Failure::kUnreachable, endpoint_ + " closed the connection");
    } else if (errno == EAGAIN) {
      if (wait_for(fd_, POLLIN, timeout_ms_)) continue;
      return fail(Failure::kUnreachable,
                  endpoint_ + " did not answer within " + std::to_string(timeout_ms_) + " ms");
    } else if (errno != EINTR) {
      return fail(Failure::kUnreachable,
                  "the connection to " + endpoint_ + " broke: " + std::strerror(errno));
    }
  }
}

bool DaemonLink::exchange(wire::Body request, wire::Body& answer) {
  const bool hello = std::holds_alternative<wire::Hello>(request);
  const std::uint64_t id = next_id_++;
  std::vector<std::uint8_t> bytes;
  encoder_.append({id, std::move(request)}, bytes);
  if (!send_all(bytes)) return false;
  wire::Message message;
  while (receive(message)) {
    if (const auto* error = std::get_if<wire::Error>(&message.body);
        error != nullptr && (message.id == id || message.id == 0)) {
      // Without an id it is about the connection, which ends with it.
      return fail(message.id == id || hello ? Failure::kRefused : Failure::kUnreachable,
                  error->message + " (" + std::string(status_name(error->status)) + ")");
    }
    if (message.id == id || (hello && std::holds_alternative<wire::Welcome>(message.body))) {
      answer = std::move(message.body);
      return true;
    }
  }
  return false;
}

}  // namespace syncd::ctl
