// Where a server listens: "unix:/path" or "tcp:127.0.0.1:7117". Plain data.
#pragma once

#include <cstdint>
#include <string>

namespace syncd::bench {

struct Endpoint {
  std::string unix_path;  // empty: TCP on 127.0.0.1
  std::uint16_t port = 0;

  static Endpoint parse(const std::string& text);  // ends the benchmark if it is neither
  std::string text() const;
  const char* transport() const { return unix_path.empty() ? "tcp" : "unix"; }
};

// A connected, non-blocking socket (TCP_NODELAY on TCP), or -1 if nobody listens there yet.
int connect_to(const Endpoint& endpoint);

}  // namespace syncd::bench
