// Datagrams for a service manager, read by a socket that stands for it.
#include "daemon/edge/admin/notify.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace syncd::admin {
namespace {

// An abstract name, so that nothing is left behind.
class Manager {
 public:
  Manager() : name_("@syncd-notify-" + std::to_string(getpid())) {
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name_.data() + 1, name_.size() - 1);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size())),
              0);
  }
  ~Manager() { close(fd_); }
  const std::string& name() const { return name_; }
  std::string received() const {
    char text[512];
    const ssize_t bytes = recv(fd_, text, sizeof text, 0);
    return bytes < 0 ? std::string("nothing") : std::string(text, static_cast<std::size_t>(bytes));
  }

 private:
  std::string name_;
  int fd_ = -1;
};

TEST(NotifyTest, TellsWhoeverTheEnvironmentNames) {
  const Manager manager;
  setenv("NOTIFY_SOCKET", manager.name().c_str(), 1);
  setenv("WATCHDOG_USEC", "3000000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  const ServiceManager service;
  EXPECT_TRUE(service.is_there());
  EXPECT_EQ(service.watchdog_us(), 3'000'000U);
  EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr) << "children must not inherit it";
  service.tell("READY=1\nSTATUS=serving");
  EXPECT_EQ(manager.received(), "READY=1\nSTATUS=serving");
  service.tell_reloading();
  EXPECT_TRUE(manager.received().starts_with("RELOADING=1\nMONOTONIC_USEC="));
  EXPECT_EQ(manager.received(), "nothing");
}

TEST(NotifyTest, TellsNobodyWhereNobodyListens) {
  unsetenv("NOTIFY_SOCKET");
  setenv("WATCHDOG_USEC", "3000000", 1);
  setenv("WATCHDOG_PID", "1", 1);
  const ServiceManager service;
  EXPECT_FALSE(service.is_there());
  EXPECT_EQ(service.watchdog_us(), 0U) << "it was meant for another process";
  service.tell("READY=1");
  setenv("NOTIFY_SOCKET", "relative", 1);
  EXPECT_FALSE(ServiceManager().is_there());
}

}  // namespace
}  // namespace syncd::admin
