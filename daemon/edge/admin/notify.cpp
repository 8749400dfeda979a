// See the header. Any thread.
#include "daemon/edge/admin/notify.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "proto/base/clock.h"
#include "proto/base/environment.h"
#include "proto/base/number.h"

namespace syncd::admin {
namespace {

std::uint64_t number_of(const std::string& text) {
  std::uint64_t number = 0;
  return parse_number(text, number) ? number : 0;
}

}  // namespace

ServiceManager::ServiceManager() {
  const std::uint64_t watchdog_us = number_of(take_from_environment("WATCHDOG_USEC"));
  const std::string pid = take_from_environment("WATCHDOG_PID");
  if (pid.empty() || number_of(pid) == static_cast<std::uint64_t>(getpid())) {
    watchdog_us_ = watchdog_us;
  }
  address_ = take_from_environment("NOTIFY_SOCKET");
  // A path, or an abstract name, which is written with @ for its first byte.
  const bool good = address_.size() > 1 && address_.size() < sizeof(sockaddr_un::sun_path) &&
                    (address_[0] == '/' || address_[0] == '@');
  if (!good) return;
  if (address_[0] == '@') address_[0] = '\0';
  fd_.reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

void ServiceManager::tell(std::string_view lines) const {
  if (!fd_) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  // A manager whose queue is full misses this one: better than a stalled loop.
  (void)!sendto(fd_.get(), lines.data(), lines.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                reinterpret_cast<const sockaddr*>(&to), length);
}

void ServiceManager::tell_reloading() const {
  tell(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", clock_ns(CLOCK_MONOTONIC) / 1000));
}

}  // namespace syncd::admin
