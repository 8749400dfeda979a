// Parsing of daemon addresses. Pure functions; any thread.
#include "libclient/endpoint.h"

#include <sys/un.h>

#include <utility>

#include "proto/base/defaults.h"
#include "proto/base/names.h"
#include "proto/base/number.h"

namespace syncd::client {
namespace {

constexpr std::string_view kAllowed =
    "allowed: unix:/path/of/socket, tls:host:port, tcp:host:port, host:port or host";

// A longer path would be cut off silently by the system's socket address.
constexpr std::size_t kUnixPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string complain(std::string_view item, std::string_view what) {
  std::string error = "address '";
  error += item;
  error += "': ";
  error += what;
  error += "; ";
  error += kAllowed;
  return error;
}

bool parse_unix(std::string_view item, std::string_view path, Endpoint& endpoint,
                std::string& error) {
  if (path.empty() || path.front() != '/') {
    error = complain(item, "the path of a Unix socket must be absolute");
    return false;
  }
  if (path.size() > kUnixPathBytesMax) {
    error =
        complain(item, "the path has " + std::to_string(path.size()) +
                           " bytes, and the system allows " + std::to_string(kUnixPathBytesMax));
    return false;
  }
  endpoint.kind = Endpoint::Kind::kUnix;
  endpoint.path = path;
  return true;
}

bool parse_port(std::string_view item, std::string_view text, Endpoint& endpoint,
                std::string& error) {
  unsigned port = 0;
  if (!parse_number(text, port) || port < 1 || port > 65535) {
    error = complain(item, "the port '" + std::string(text) + "' is not a number from 1 to 65535");
    return false;
  }
  endpoint.port = static_cast<std::uint16_t>(port);
  return true;
}

// Cuts "host", "host:port", "[v6]" or "[v6]:port" in two; `port` is empty where it is left out.
bool split_host(std::string_view item, std::string_view text, std::string_view& host,
                std::string_view& port, std::string& error) {
  std::string_view rest;
  if (!text.empty() && text.front() == '[') {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) {
      error = complain(item, "the bracket of an IPv6 address is not closed");
      return false;
    }
    host = text.substr(1, close - 1);
    rest = text.substr(close + 1);
  } else {
    const std::size_t colon = text.find(':');
    host = text.substr(0, colon);
    rest = colon == std::string_view::npos ? std::string_view{} : text.substr(colon);
    if (rest.find(':', 1) != std::string_view::npos) {
      error = complain(item, "an IPv6 address must stand in brackets, as in [::1]:7117");
      return false;
    }
  }
  if (!rest.empty() && (rest.front() != ':' || rest.size() == 1)) {
    error = complain(item, "a port must follow the host, as in host:7117");
    return false;
  }
  port = rest.empty() ? rest : rest.substr(1);
  return true;
}

bool parse_tcp(Endpoint::Kind kind, std::string_view item, std::string_view text,
               Endpoint& endpoint, std::string& error) {
  if (text.starts_with("//")) text.remove_prefix(2);  // as in a URL
  std::string_view host;
  std::string_view port;
  if (!split_host(item, text, host, port, error)) return false;
  if (host.empty()) {
    error = complain(item, "the host is missing");
    return false;
  }
  const bool bracketed = text.front() == '[';
  if (bracketed ? !is_ipv6_address(host) : !is_host_name(host)) {
    error = complain(item, "'" + std::string(host) + "' is not " +
                               (bracketed ? "an IPv6 address" : "the name or address of a host"));
    return false;
  }
  endpoint.kind = kind;
  endpoint.host = host;
  endpoint.port = kDefaultPort;
  return port.empty() || parse_port(item, port, endpoint, error);
}

bool parse_one(std::string_view item, Endpoint& endpoint, std::string& error) {
  if (item.empty()) {
    error = complain(item, "an address is empty");
    return false;
  }
  if (item.starts_with("unix:")) return parse_unix(item, item.substr(5), endpoint, error);
  using Kind = Endpoint::Kind;
  if (item.starts_with("tls:")) return parse_tcp(Kind::kTls, item, item.substr(4), endpoint, error);
  if (item.starts_with("tcp:")) return parse_tcp(Kind::kTcp, item, item.substr(4), endpoint, error);
  return parse_tcp(Kind::kTcp, item, item, endpoint, error);
}

}  // namespace

std::string Endpoint::text() const {
  if (kind == Kind::kUnix) return "unix:" + path;
  const bool numeric_v6 = host.find(':') != std::string::npos;
  const std::string scheme = kind == Kind::kTls ? "tls:" : "tcp:";
  return scheme + (numeric_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool parse_endpoints(std::string_view list, std::vector<Endpoint>& endpoints, std::string& error) {
  std::vector<Endpoint> parsed;
  std::size_t at = 0;
  while (true) {
    const std::size_t comma = list.find(',', at);
    const std::size_t end = comma == std::string_view::npos ? list.size() : comma;
    Endpoint endpoint;
    if (!parse_one(trim(list.substr(at, end - at)), endpoint, error)) return false;
    parsed.push_back(std::move(endpoint));
    if (comma == std::string_view::npos) break;
    at = comma + 1;
  }
  endpoints = std::move(parsed);
  return true;
}

std::vector<Endpoint> default_endpoints() {
  Endpoint local;
  local.kind = Endpoint::Kind::kUnix;
  local.path = default_unix_socket_path();
  Endpoint tcp;
  tcp.host = "127.0.0.1";
  tcp.port = kDefaultPort;
  return {local, tcp};
}

}  // namespace syncd::client
