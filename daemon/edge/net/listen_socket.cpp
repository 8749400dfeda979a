// Opening listening sockets; see the header. Any thread.
#include "daemon/edge/net/listen_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>

namespace syncd::net {
namespace {

// The kernel lowers it to net.core.somaxconn; a thousand workers may connect in the same moment.
constexpr int kBacklog = 4096;

std::string reason(int code) {
  return std::strerror(code);
}

// Addresses of a kind that this machine does not have: no IPv6, or a name that lists a foreign one.
bool is_missing_family(int code) {
  return code == EAFNOSUPPORT || code == EADDRNOTAVAIL;
}

std::string explain_bind(const std::string& endpoint, int code) {
  std::string text = "cannot listen on " + endpoint + ": " + reason(code);
  if (code == EADDRINUSE) {
    text += "; another process (perhaps another syncd) has this port: stop it, or choose another";
  } else if (code == EACCES) {
    text += "; ports below 1024 need a privilege: choose a higher one";
  } else if (code == EADDRNOTAVAIL) {
    text += "; this machine has no such address: see 'ip address'";
  }
  return text;
}

// 0, or the errno of the step that failed.
int listen_on(const addrinfo& info, ListenSocket& socket) {
  UniqueFd fd(::socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (fd.get() < 0) return errno;
  const int on = 1;
  // So that a restart need not wait for the connections of the previous run to be forgotten.
  if (setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) return errno;
  // So that 0.0.0.0 and [::] can both be listed.
  if (info.ai_family == AF_INET6 &&
      setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) != 0) {
    return errno;
  }
  if (bind(fd.get(), info.ai_addr, info.ai_addrlen) != 0) return errno;
  if (listen(fd.get(), kBacklog) != 0) return errno;
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) return errno;
  socket.fd = std::move(fd);
  socket.is_tcp = true;
  socket.endpoint = "tcp:" + address_text(reinterpret_cast<const sockaddr*>(&bound), length);
  return 0;
}

// In a directory such as /tmp any user may make the parent first and so take the socket's place.
bool check_parent_owner(const std::string& parent, const std::string& path, std::string& error) {
  struct stat grandparent {};
  struct stat own {};
  if (stat(parent_of(parent).c_str(), &grandparent) != 0 || stat(parent.c_str(), &own) != 0) {
    error = "cannot look at " + parent + ", where " + path + " should be: " + reason(errno);
    return false;
  }
  const bool shared = (grandparent.st_mode & S_ISVTX) != 0 && (grandparent.st_mode & S_IWOTH) != 0;
  if (!shared || own.st_uid == geteuid() || own.st_uid == 0) return true;
  error = "the directory " + parent + " belongs to user " + std::to_string(own.st_uid) +
          ", who could take the place of the socket in it: choose another path (listen.unix, "
          "--unix PATH)";
  return false;
}

bool prepare_parent(const std::string& path, std::string& error) {
  const std::string parent = parent_of(path);
  if (mkdir(parent.c_str(), 0700) != 0 && errno != EEXIST) {
    error = "cannot make the directory " + parent + " for the Unix socket " + path + ": " +
            reason(errno) + "; make it, or choose another path (listen.unix, --unix PATH)";
    return false;
  }
  return check_parent_owner(parent, path, error);
}

// Removes a socket file without a listener. False: it is in use, or no socket at all.
bool clear_path(const sockaddr_un& address, const std::string& path, std::string& error) {
  const auto fail = [&](const std::string& what) {
    error = what;
    return false;
  };
  struct stat existing {};
  if (lstat(path.c_str(), &existing) != 0) {
    return errno == ENOENT || fail("cannot look at " + path + ": " + reason(errno));
  }
  if (!S_ISSOCK(existing.st_mode)) {
    return fail(path +
                " exists and is not a socket: remove it, or choose another path (listen.unix, "
                "--unix PATH)");
  }
  UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return fail("cannot make a socket: " + reason(errno));
  // EAGAIN means a full backlog, so there is a listener as well.
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno == EAGAIN || errno == EINPROGRESS) {
    return fail("another process listens on " + path +
                " already (perhaps another syncd): stop it, or choose another path (listen.unix, "
                "--unix PATH)");
  }
  if (errno == ENOENT) return true;
  if (errno != ECONNREFUSED) {
    return fail("cannot tell whether " + path + " is in use: " + reason(errno));
  }
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return true;
  return fail("cannot remove the left-over socket " + path + ": " + reason(errno));
}

// False: errno is EWOULDBLOCK if another process has it.
bool lock_in_time(int fd, int wait_ms) {
  constexpr int kPauseMs = 20;
  constexpr timespec kPause{0, kPauseMs * 1'000'000};
  for (int left_ms = wait_ms; flock(fd, LOCK_EX | LOCK_NB) != 0; left_ms -= kPauseMs) {
    if (errno != EWOULDBLOCK || left_ms <= 0) return false;
    nanosleep(&kPause, nullptr);
  }
  return true;
}

}  // namespace

std::string address_text(const sockaddr* address, socklen_t length) {
  TcpAddress numeric;
  return numeric_address(address, length, numeric) ? numeric.text() : "?";
}

bool open_tcp_sockets(const TcpAddress& address, std::vector<ListenSocket>& sockets,
                      std::string& error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (code != 0) {
    error = "cannot listen on " + address.text() + ": " +
            (code == EAI_SYSTEM ? reason(errno) : gai_strerror(code));
    return false;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> guard(found, freeaddrinfo);

  std::vector<ListenSocket> opened;
  int missing = 0;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    ListenSocket socket;
    const int failed = listen_on(*info, socket);
    if (failed == 0) {
      opened.push_back(std::move(socket));
    } else if (is_missing_family(failed)) {
      missing = failed;
    } else {
      error = explain_bind("tcp:" + address_text(info->ai_addr, info->ai_addrlen), failed);
      return false;
    }
  }
  if (opened.empty()) {
    error = explain_bind(address.text(), missing != 0 ? missing : EADDRNOTAVAIL);
    return false;
  }
  for (ListenSocket& socket : opened) sockets.push_back(std::move(socket));
  return true;
}

bool open_unix_socket(const std::string& path, mode_t mode, ListenSocket& socket,
                      std::string& error, int lock_wait_ms) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    error = "the Unix socket path '" + path + "' is " + std::to_string(path.size()) +
            " bytes long: 1 to " + std::to_string(sizeof address.sun_path - 1) + " are allowed";
    return false;
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  if (!prepare_parent(path, error)) return false;

  // Two daemons that start in the same moment must not remove each other's socket: the look, the
  // removal and the bind happen under a lock on the directory, which leaves no file behind.
  // Every process that may read the directory can hold that lock, so the wait for it is short.
  const UniqueFd directory(open(parent_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || !lock_in_time(directory.get(), lock_wait_ms)) {
    error = "cannot lock the directory of " + path + ": " +
            (errno == EWOULDBLOCK ? "another process has it locked (see lslocks)" : reason(errno));
    return false;
  }
  if (!clear_path(address, path, error)) return false;

  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  struct stat made {};
  // Until listen() no client can connect, so the permissions are in force before the first client.
  if (fd.get() < 0 || bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ||
      chmod(path.c_str(), mode) != 0 || listen(fd.get(), kBacklog) != 0 ||
      lstat(path.c_str(), &made) != 0) {
    error = "cannot listen on unix:" + path + ": " + reason(errno);
    return false;
  }
  socket.fd = std::move(fd);
  socket.is_tcp = false;
  socket.endpoint = "unix:" + path;
  socket.path = path;
  socket.device = made.st_dev;
  socket.inode = made.st_ino;
  return true;
}

void remove_unix_socket(const ListenSocket& socket) {
  struct stat now {};
  if (socket.path.empty() || lstat(socket.path.c_str(), &now) != 0) return;
  if (now.st_dev == socket.device && now.st_ino == socket.inode) unlink(socket.path.c_str());
}

}  // namespace syncd::net
