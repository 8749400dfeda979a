// Datagrams to the service manager (sd_notify(3)); net/inherited_sockets.h takes its sockets
// (sd_listen_fds(3)). Own code, since both are a documented, stable protocol of a few
// lines, and a network daemon need not load libsystemd with its compressors for them: so that the
// same code also runs in a build without that library. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/base/file.h"

namespace syncd::admin {

class ServiceManager {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and takes them out of the environment.
  ServiceManager();

  bool is_there() const { return static_cast<bool>(fd_); }
  // How often at least it wants to hear WATCHDOG=1; 0: never.
  std::uint64_t watchdog_us() const { return watchdog_us_; }

  // Lines such as "READY=1\nSTATUS=...". Does nothing without a manager; never blocks.
  void tell(std::string_view lines) const;
  // RELOADING=1 with the time that it must carry.
  void tell_reloading() const;

 private:
  UniqueFd fd_;
  std::string address_;  // of a sockaddr_un, abstract ones with their first byte 0
  std::uint64_t watchdog_us_ = 0;
};

}  // namespace syncd::admin
