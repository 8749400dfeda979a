// Opening the sockets that the daemon listens on. Blocking calls (a name's look-up, file system),
// made once at start, before anything is served. No state, any thread.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "daemon/edge/net/address.h"
#include "proto/base/file.h"

namespace syncd::net {

// A socket that listens already: non-blocking, closed on exec.
struct ListenSocket {
  UniqueFd fd;
  bool is_tcp = true;
  bool is_control = false;  // administrative requests are accepted over it
  std::string endpoint;  // "tcp:127.0.0.1:7117" with the port in use, "unix:/run/syncd/syncd.sock"
  // Unix sockets: which file it is, so that only this one is removed at the end.
  std::string path;
  dev_t device = 0;
  ino_t inode = 0;
};

// "127.0.0.1:7117"; "?" where the system cannot tell.
std::string address_text(const sockaddr* address, socklen_t length);

// Listens on every address that `address` stands for (a name may have an IPv4 and an IPv6 one) and
// appends one ListenSocket for each. False, with a sentence in `error` that names the address, the
// cause and what to try, if there is none or one of them is taken.
bool open_tcp_sockets(const TcpAddress& address, std::vector<ListenSocket>& sockets,
                      std::string& error);

// Listens on a Unix socket with the given permissions (0600 or 0660). Makes the parent directory
// (0700) if it is missing. A socket file without a listener is replaced; one that a
// living process listens on, or a file of another kind, is an error.
// `lock_wait_ms`: for how long another daemon may be doing the same in that directory.
bool open_unix_socket(const std::string& path, mode_t mode, ListenSocket& socket,
                      std::string& error, int lock_wait_ms = 5000);

// Removes the socket file, if it is still the one that was made.
void remove_unix_socket(const ListenSocket& socket);

}  // namespace syncd::net
