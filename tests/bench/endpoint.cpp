// Endpoints of the benchmark's servers and the client's sockets. One thread.
#include "tests/bench/endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "tests/bench/measure.h"

namespace syncd::bench {
namespace {

constexpr const char* kUnixPrefix = "unix:";
constexpr const char* kTcpPrefix = "tcp:127.0.0.1:";

int connect_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) fail(path + ": too long for a Unix socket");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail(std::string("no socket: ") + std::strerror(errno));
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

int connect_tcp(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail(std::string("no socket: ") + std::strerror(errno));
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

}  // namespace

Endpoint Endpoint::parse(const std::string& text) {
  Endpoint endpoint;
  if (text.starts_with(kUnixPrefix)) {
    endpoint.unix_path = text.substr(std::strlen(kUnixPrefix));
  } else if (text.starts_with(kTcpPrefix)) {
    endpoint.port = static_cast<std::uint16_t>(std::stoi(text.substr(std::strlen(kTcpPrefix))));
  } else {
    fail("'" + text + "' is no endpoint: allowed are unix:PATH and tcp:127.0.0.1:PORT");
  }
  return endpoint;
}

std::string Endpoint::text() const {
  return unix_path.empty() ? kTcpPrefix + std::to_string(port) : kUnixPrefix + unix_path;
}

int connect_to(const Endpoint& endpoint) {
  const int fd =
      endpoint.unix_path.empty() ? connect_tcp(endpoint.port) : connect_unix(endpoint.unix_path);
  if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return fd;
}

}  // namespace syncd::bench
