// Host names to addresses.
#include "libclient/lookup.h"

#include <netdb.h>
#include <sys/un.h>

#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

namespace syncd::client {

std::shared_ptr<Lookup> Lookup::start(std::string host, std::uint16_t port, std::string& error) {
  auto lookup = std::make_shared<Lookup>();
  try {
    std::thread([lookup, host = std::move(host), port] { lookup->run(host, port); }).detach();
  } catch (const std::system_error& failure) {
    error = std::string("no thread to look up its name: ") + failure.what();
    return nullptr;
  }
  return lookup;
}

void Lookup::run(const std::string& host, std::uint16_t port) noexcept {
  addrinfo hints;
  std::memset(&hints, 0, sizeof(hints));
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  const std::lock_guard lock(mutex_);
  try {
    for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
      if (at->ai_addrlen > sizeof(sockaddr_storage)) continue;
      std::memcpy(&result_.addresses.emplace_back(), at->ai_addr, at->ai_addrlen);
    }
    if (code != 0) {
      result_.reason = gai_strerror(code);
    } else if (result_.addresses.empty()) {
      result_.reason = "the name has no address";
    }
  } catch (...) {  // out of memory: what was found so far is the result
  }
  if (list != nullptr) freeaddrinfo(list);
  done_ = true;
  if (wake_ != nullptr) uv_async_send(wake_);
}

void Lookup::notify(uv_async_t* wake) {
  const std::lock_guard lock(mutex_);
  wake_ = wake;
  if (done_ && wake != nullptr) uv_async_send(wake);
}

bool Lookup::take(Result& result) {
  const std::lock_guard lock(mutex_);
  if (!done_) return false;
  result = std::move(result_);
  return true;
}

void unix_address(const std::string& path, sockaddr_storage& address) {
  address = {};
  address.ss_family = AF_UNIX;
  path.copy(reinterpret_cast<sockaddr_un&>(address).sun_path, sizeof(sockaddr_un::sun_path) - 1);
}

bool numeric_address(const std::string& host, std::uint16_t port, sockaddr_storage& address) {
  std::memset(&address, 0, sizeof(address));
  return uv_ip4_addr(host.c_str(), port, reinterpret_cast<sockaddr_in*>(&address)) == 0 ||
         uv_ip6_addr(host.c_str(), port, reinterpret_cast<sockaddr_in6*>(&address)) == 0;
}

}  // namespace syncd::client
