// See the header. Any thread.
#include "daemon/edge/admin/notify.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "proto/base/number.h"

namespace syncd::admin {
namespace {

std::string take_variable(const char* name) {
  const char* value = std::getenv(name);
  const std::string text = value != nullptr ? value : "";
  unsetenv(name);
  return text;
}

std::uint64_t number_of(const std::string& text) {
  std::uint64_t number = 0;
  return parse_number(text, number) ? number : 0;
}

}  // namespace

ServiceManager::ServiceManager() {
  const std::uint64_t watchdog_us = number_of(take_variable("WATCHDOG_USEC"));
  const std::string pid = take_variable("WATCHDOG_PID");
  if (pid.empty() || number_of(pid) == static_cast<std::uint64_t>(getpid())) {
    watchdog_us_ = watchdog_us;
  }
  address_ = take_variable("NOTIFY_SOCKET");
  // A path, or an abstract name, which is written with @ for its first byte.
  const bool good = address_.size() > 1 && address_.size() < sizeof(sockaddr_un::sun_path) &&
                    (address_[0] == '/' || address_[0] == '@');
  if (!good) return;
  if (address_[0] == '@') address_[0] = '\0';
  fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

ServiceManager::~ServiceManager() {
  if (fd_ >= 0) close(fd_);
}

void ServiceManager::tell(std::string_view lines) const {
  if (fd_ < 0) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  // A manager whose queue is full misses this one: better than a loop that stands still.
  (void)!sendto(fd_, lines.data(), lines.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                reinterpret_cast<const sockaddr*>(&to), length);
}

void ServiceManager::tell_reloading() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const auto us = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 +
                  static_cast<std::uint64_t>(now.tv_nsec) / 1000;
  tell(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", us));
}

}  // namespace syncd::admin
