// One look-up of a host name. The system cannot interrupt one, and it may take half a minute, so it
// runs on a detached thread of its own: whoever gives up waiting leaves it behind, and whoever asks
// again takes up where it is. Each function says which thread it belongs to.
#pragma once

#include <sys/socket.h>
#include <uv.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace syncd::client {

class Lookup {
 public:
  struct Result {
    std::vector<sockaddr_storage> addresses;
    std::string reason;  // why there are none
  };

  // Starts the thread. Null, with the reason in `error`, if that fails.
  static std::shared_ptr<Lookup> start(std::string host, std::uint16_t port, std::string& error);

  // Loop thread: `wake` is sent when the look-up has ended, also if it has already; null: not any
  // more. The handle must not be closed before that has been said.
  void notify(uv_async_t* wake);
  // Loop thread: takes the result. False if there is none yet.
  bool take(Result& result);

 private:
  void run(const std::string& host, std::uint16_t port) noexcept;

  std::mutex mutex_;
  uv_async_t* wake_ = nullptr;
  bool done_ = false;
  Result result_;
};

// A Unix socket's, whose path is short enough, and a numeric one need no look-up. False if `host`
// is no numeric address.
void unix_address(const std::string& path, sockaddr_storage& address);
bool numeric_address(const std::string& host, std::uint16_t port, sockaddr_storage& address);

}  // namespace syncd::client
