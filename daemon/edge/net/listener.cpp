// Accepting connections; see the header. Loop thread.
#include "daemon/edge/net/listener.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "daemon/edge/net/loop_guard.h"

namespace syncd::net {
namespace {

// So that a storm of newcomers does not keep the loop from those who are connected.
constexpr int kAcceptsPerTurn = 64;

std::string machine_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    constexpr std::size_t kPrefixBytes = 8;
    const auto& bytes = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr.s6_addr;
    return {reinterpret_cast<const char*>(bytes), kPrefixBytes};
  }
  const auto& bytes = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  return {reinterpret_cast<const char*>(&bytes), sizeof bytes};
}

// A socket that takes both families shows IPv4 addresses as ::ffff:127.0.0.1: here they are what
// they are on a socket of IPv4, to be counted and known by.
void unmap(sockaddr_storage& address, socklen_t& length) {
  const auto& mapped = reinterpret_cast<const sockaddr_in6&>(address);
  if (address.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&mapped.sin6_addr)) return;
  sockaddr_in plain{};
  plain.sin_family = AF_INET;
  plain.sin_port = mapped.sin6_port;
  std::memcpy(&plain.sin_addr, &mapped.sin6_addr.s6_addr[12], sizeof plain.sin_addr);
  address = {};
  std::memcpy(&address, &plain, sizeof plain);
  length = sizeof plain;
}

#ifdef SO_PEERGROUPS
// Those of the process when it connected; an older kernel (before Linux 4.13) does not tell.
std::vector<gid_t> groups_of_peer(int fd) {
  std::vector<gid_t> groups(64);
  for (int tries = 0; tries < 2; ++tries) {
    auto length = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    const bool good = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &length) == 0;
    if (!good && errno != ERANGE) return {};
    groups.resize(length / sizeof(gid_t));  // or as many as there must be room for
    if (good) return groups;
  }
  return {};
}
#else
std::vector<gid_t> groups_of_peer(int) {
  return {};
}
#endif

void describe_unix_peer(int fd, Accepted& accepted) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    accepted.peer = "unix:?";
    return;
  }
  accepted.peer = "unix:pid=" + std::to_string(peer.pid) + ",uid=" + std::to_string(peer.uid);
  accepted.uid = peer.uid;
  accepted.gid = peer.gid;
  accepted.groups = groups_of_peer(fd);
}

}  // namespace

bool accept_one(const ListenSocket& socket, Accepted& accepted) {
  sockaddr_storage address{};
  socklen_t length = 0;
  do {
    length = sizeof address;
    accepted.fd.reset(accept4(socket.fd.get(), reinterpret_cast<sockaddr*>(&address), &length,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
  } while (!accepted.fd && (errno == EINTR || errno == ECONNABORTED));
  if (!accepted.fd) return false;
  accepted.is_tcp = socket.is_tcp;
  accepted.is_control = socket.is_control;
  if (socket.is_tcp) {
    unmap(address, length);
    accepted.peer = address_text(reinterpret_cast<const sockaddr*>(&address), length);
    accepted.machine = machine_of(address);
  } else {
    describe_unix_peer(accepted.fd.get(), accepted);
  }
  return true;
}

Listener::Listener(ListenSocket socket, OnAccept on_accept, OnShortage on_shortage)
    : socket_(std::move(socket)),
      on_accept_(std::move(on_accept)),
      on_shortage_(std::move(on_shortage)) {}

Listener* Listener::open(uv_loop_t* loop, ListenSocket socket, OnAccept on_accept,
                         OnShortage on_shortage, std::string& error) {
  auto* listener = new Listener(std::move(socket), std::move(on_accept), std::move(on_shortage));
  const int code = uv_poll_init(loop, &listener->poll_, listener->socket_.fd.get());
  if (code != 0) {
    error = "cannot poll " + listener->socket_.endpoint + ": " + uv_strerror(code);
    remove_unix_socket(listener->socket_);
    delete listener;
    return nullptr;
  }
  listener->poll_.data = listener;
  listener->resume();
  return listener;
}

void Listener::resume() {
  uv_poll_start(&poll_, UV_READABLE, on_readable);
}

void Listener::pause() {
  uv_poll_stop(&poll_);
}

void Listener::close(std::function<void()> on_gone) {
  on_gone_ = std::move(on_gone);
  remove_unix_socket(socket_);
  uv_close(reinterpret_cast<uv_handle_t*>(&poll_), guarded([](uv_handle_t* handle) {
             auto* listener = static_cast<Listener*>(handle->data);
             const std::function<void()> gone = std::move(listener->on_gone_);
             delete listener;
             if (gone) gone();
           }));
}

void Listener::on_readable(uv_poll_t* poll, int, int) {
  run_guarded(poll->loop, [&] { static_cast<Listener*>(poll->data)->accept_some(); });
}

void Listener::accept_some() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    Accepted accepted;
    if (!accept_one(socket_, accepted)) {
      if (errno != EAGAIN) on_shortage_(errno);
      return;
    }
    on_accept_(std::move(accepted));
  }
}

}  // namespace syncd::net
