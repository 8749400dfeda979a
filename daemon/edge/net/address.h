// TCP addresses as people write them: "127.0.0.1:7117", "[::1]:7117", "localhost:7117". Pure
// functions over plain data; any thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace syncd::net {

struct TcpAddress {
  std::string host;        // a name or a numeric address, without brackets
  std::uint16_t port = 0;  // 0: any free one

  // "127.0.0.1:7117", "[::1]:7117".
  std::string text() const;
  // True if only this machine can reach it: 127.0.0.0/8, ::1, or the name "localhost". Any other
  // name counts as reachable from outside, because only a look-up could tell.
  bool is_loopback() const;
  // True for 0.0.0.0 and ::, which listen on all addresses of a machine.
  bool is_wildcard() const;

  bool operator==(const TcpAddress&) const = default;
};

// Parses "HOST:PORT"; an IPv6 address is in brackets. False, with a sentence in `error` that
// names the text and what is allowed, if it is anything else; `address` is then untouched.
bool parse_tcp_address(std::string_view text, TcpAddress& address, std::string& error);

// The numeric host and port of a socket's address. False if the system cannot tell.
bool numeric_address(const sockaddr* address, socklen_t length, TcpAddress& numeric);

}  // namespace syncd::net
