// Listening sockets that the daemon's parent made for it: the protocol of sd_listen_fds(3)
// (LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES), by which systemd hands over what a .socket unit listens
// on. Own code for the reason that daemon/edge/admin/notify.h gives. No state; once at start,
// before there is a second thread.
#pragma once

#include <string>
#include <vector>

#include "daemon/edge/net/address.h"
#include "daemon/edge/net/listen_socket.h"

namespace syncd::net {

// What a socket is for is said by its name (FileDescriptorName= of the unit).
inline constexpr const char* kWorkersSocketName = "syncd";
inline constexpr const char* kControlSocketName = "control";

struct InheritedSocket {
  ListenSocket socket;  // its file, of a Unix socket, is not the daemon's to remove: no `path`
  TcpAddress tcp;       // of TCP: where it listens
  std::string unix_path;
};

// Takes over what the environment announces, and takes the announcement out of the environment, so
// that no child believes it is meant. Nothing is taken if it names another process, or there is
// none. False, with a sentence in `error` that names the descriptor, what is wrong and what is
// allowed, if one of them is no listening TCP or Unix stream socket, or has another name.
bool take_inherited_sockets(std::vector<InheritedSocket>& sockets, std::string& error);

}  // namespace syncd::net
