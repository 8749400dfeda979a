// See the header.
#include "daemon/edge/net/inherited_sockets.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "proto/base/environment.h"
#include "proto/base/number.h"
#include "proto/base/text.h"

namespace syncd::net {
namespace {

constexpr int kFirst = 3;  // SD_LISTEN_FDS_START
constexpr int kMost = 64;  // more than any daemon needs

int number_of(const std::string& text) {
  int number = -1;
  return parse_number(text, number) ? number : -1;
}

int option_of(int fd, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

// Empty, or what is wrong with it.
std::string take_tcp(const sockaddr_storage& address, socklen_t length, InheritedSocket& taken) {
  if (!numeric_address(reinterpret_cast<const sockaddr*>(&address), length, taken.tcp)) {
    return "has an address that cannot be read";
  }
  taken.socket.is_tcp = true;
  taken.socket.endpoint = "tcp:" + taken.tcp.text();
  return {};
}

std::string take_unix(const sockaddr_storage& address, socklen_t length, InheritedSocket& taken) {
  const auto& unix_address = reinterpret_cast<const sockaddr_un&>(address);
  const std::size_t most = length - offsetof(sockaddr_un, sun_path);
  if (length <= offsetof(sockaddr_un, sun_path) || unix_address.sun_path[0] == '\0') {
    // An abstract name has no permissions, and no client of ours can say it.
    return "is a Unix socket without a path; allowed: one in the file system "
           "(ListenStream=/run/syncd/syncd.sock)";
  }
  taken.unix_path.assign(unix_address.sun_path, strnlen(unix_address.sun_path, most));
  taken.socket.is_tcp = false;
  taken.socket.endpoint = "unix:" + taken.unix_path;
  return {};
}

std::string take_socket(int fd, InheritedSocket& taken) {
  const int domain = option_of(fd, SO_DOMAIN);
  if (domain < 0) {
    return errno == EBADF ? "is not open: whoever started syncd has closed it"
                          : "is no socket; allowed: listening stream sockets (ListenStream=)";
  }
  if (option_of(fd, SO_TYPE) != SOCK_STREAM ||
      (domain != AF_UNIX && domain != AF_INET && domain != AF_INET6)) {
    return "is a socket of another kind; allowed: TCP and Unix stream sockets (ListenStream=)";
  }
  if (option_of(fd, SO_ACCEPTCONN) != 1) {
    return "is a socket that does not listen; allowed: one that does (Accept=no)";
  }
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  const int flags = fcntl(fd, F_GETFL);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0 || flags < 0 ||
      fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return std::string("cannot be used: ") + std::strerror(errno);
  }
  return domain == AF_UNIX ? take_unix(address, length, taken) : take_tcp(address, length, taken);
}

}  // namespace

bool take_inherited_sockets(std::vector<InheritedSocket>& sockets, std::string& error) {
  const std::string pid = take_from_environment("LISTEN_PID");
  const std::string count_text = take_from_environment("LISTEN_FDS");
  const std::string names_text = take_from_environment("LISTEN_FDNAMES");
  if (number_of(pid) != getpid() || count_text.empty()) return true;
  const int count = number_of(count_text);
  if (count < 0 || count > kMost) {
    error = "LISTEN_FDS=" + count_text + ": allowed: 0 to " + std::to_string(kMost) + " sockets";
    return false;
  }
  const std::vector<std::string_view> names = split(names_text, ':');
  for (int i = 0; i < count; ++i) {
    const int fd = kFirst + i;
    // No child inherits it, even if it is refused below.
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    const auto index = static_cast<std::size_t>(i);
    const std::string name(index < names.size() ? names[index] : "");
    const std::string called = "the socket '" + name +
                               "' that syncd was started with (descriptor " + std::to_string(fd) +
                               ", LISTEN_FDS) ";
    if (name != kWorkersSocketName && name != kControlSocketName) {
      error = called + "has no name that says what it is for; allowed: FileDescriptorName=" +
              kWorkersSocketName + " (for workers) and FileDescriptorName=" + kControlSocketName +
              " (in place of listen.control)";
      return false;
    }
    InheritedSocket taken;
    if (const std::string why = take_socket(fd, taken); !why.empty()) {
      error = called + why;
      return false;
    }
    taken.socket.fd.reset(fd);
    taken.socket.is_control = name == kControlSocketName;
    for (const InheritedSocket& other : sockets) {
      if (taken.socket.is_tcp || other.socket.is_tcp) continue;
      if (taken.socket.is_control != other.socket.is_control) continue;
      error = called + "is a second Unix socket of that name, beside " + other.unix_path +
              "; allowed: one";
      return false;
    }
    sockets.push_back(std::move(taken));
  }
  return true;
}

}  // namespace syncd::net
