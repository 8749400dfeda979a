// Parsing and classifying TCP addresses. No state, any thread.
#include "daemon/edge/net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include "proto/base/names.h"
#include "proto/base/number.h"

namespace syncd::net {

std::string TcpAddress::text() const {
  const bool bracket = host.find(':') != std::string::npos;
  return (bracket ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool TcpAddress::is_loopback() const {
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return false;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return v6.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&v6);
}

bool TcpAddress::is_wildcard() const {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return v4.s_addr == INADDR_ANY;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

bool numeric_address(const sockaddr* address, socklen_t length, TcpAddress& numeric) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(address, length, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return false;
  }
  numeric.host = host;
  return parse_number(port, numeric.port);
}

bool parse_tcp_address(std::string_view text, TcpAddress& address, std::string& error) {
  const auto complain = [&](const std::string& what) {
    error = "'" + std::string(text) + "': " + what +
            "; expected HOST:PORT, such as 127.0.0.1:7117 or [::1]:7117";
    return false;
  };
  TcpAddress parsed;
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return complain("the closing ] is missing");
    parsed.host = text.substr(1, close - 1);
    if (!is_ipv6_address(parsed.host)) {
      return complain("'" + parsed.host + "' is not an IPv6 address");
    }
    port = text.substr(close + 1);
    if (!port.starts_with(':')) return complain("the port is missing");
    port.remove_prefix(1);
  } else {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return complain("the port is missing");
    parsed.host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (parsed.host.find(':') != std::string::npos) {
      return complain("an IPv6 address stands in brackets");
    }
    if (!is_host_name(parsed.host)) {
      return complain("'" + parsed.host + "' is not a host name or address");
    }
    if (parsed.host.empty()) return complain("the host is missing");
  }
  unsigned number = 0;
  if (!parse_number(port, number) || number > 65535) {
    return complain("'" + std::string(port) + "' is not a port (0 to 65535)");
  }
  parsed.port = static_cast<std::uint16_t>(number);
  address = std::move(parsed);
  return true;
}

}  // namespace syncd::net
