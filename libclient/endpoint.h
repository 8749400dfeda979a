// Addresses of daemons as people write them: "unix:/run/syncd/syncd.sock", "tls:host:7117",
// "tcp:host:7117", "host:7117", "[::1]:7117", "host". Pure functions over plain data; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace syncd::client {

struct Endpoint {
  enum class Kind { kUnix, kTcp, kTls };

  Kind kind = Kind::kTcp;
  std::string path;        // kUnix
  std::string host;        // kTcp, kTls: a name or a numeric address, without brackets
  std::uint16_t port = 0;  // kTcp, kTls

  // As it is shown to people: "unix:/run/syncd/syncd.sock", "tls:[::1]:7117".
  std::string text() const;
  bool operator==(const Endpoint&) const = default;
};

inline constexpr std::size_t kEndpointsMax = 16;

// Parses a comma-separated list, in order of preference; "tls://host" is "tls:host". A port that is
// left out is kDefaultPort. Returns false, with a sentence in `error` that names the wrong item and
// what is allowed, if the list is empty or longer than kEndpointsMax, an item cannot be parsed, or
// a TCP address without TLS lies beside one with TLS; `endpoints` is then untouched.
bool parse_endpoints(std::string_view list, std::vector<Endpoint>& endpoints, std::string& error);

// The default Unix socket, then 127.0.0.1 at the default port.
std::vector<Endpoint> default_endpoints();

}  // namespace syncd::client
