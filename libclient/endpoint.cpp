// Parsing of daemon addresses. Pure functions; any thread.
#include "libclient/endpoint.h"

#include <sys/un.h>

#include <algorithm>
#include <utility>

#include "proto/base/defaults.h"
#include "proto/base/names.h"
#include "proto/base/number.h"
#include "proto/base/text.h"

namespace syncd::client {
namespace {

constexpr const char* kAllowed =
    "allowed: unix:/path/of/socket, tls:host:port, tcp:host:port, host:port or host";

// A longer path would be cut off silently by the system's socket address.
constexpr std::size_t kUnixPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;

// What is wrong with an address.
struct Wrong {
  std::string what;
};

Endpoint parse_unix(std::string_view path) {
  if (path.empty() || path.front() != '/') {
    throw Wrong{"the path of a Unix socket must be absolute"};
  }
  if (path.size() > kUnixPathBytesMax) {
    throw Wrong{"the path has " + std::to_string(path.size()) + " bytes, and the system allows " +
                std::to_string(kUnixPathBytesMax)};
  }
  return {Endpoint::Kind::kUnix, std::string(path), {}, 0};
}

std::uint16_t parse_port(std::string_view text) {
  unsigned port = 0;
  if (!parse_number(text, port) || port < 1 || port > 65535) {
    throw Wrong{"the port '" + std::string(text) + "' is not a number from 1 to 65535"};
  }
  return static_cast<std::uint16_t>(port);
}

// "host", "host:port", "[v6]" or "[v6]:port".
Endpoint parse_tcp(Endpoint::Kind kind, std::string_view text) {
  if (text.starts_with("//")) text.remove_prefix(2);  // as in a URL
  const bool bracketed = text.starts_with('[');
  const std::size_t end = text.find(bracketed ? ']' : ':');
  if (bracketed && end == std::string_view::npos) {
    throw Wrong{"the bracket of an IPv6 address is not closed"};
  }
  const std::string_view host = text.substr(0, end).substr(bracketed ? 1 : 0);
  std::string_view rest;  // with the colon
  if (end != std::string_view::npos) rest = text.substr(bracketed ? end + 1 : end);
  if (!bracketed && (rest.find(':', 1) != std::string_view::npos || rest.starts_with(":/"))) {
    if (!host.empty() && !is_ipv6_address(text)) {
      throw Wrong{"'" + std::string(host) + ":' is not a scheme"};
    }
    throw Wrong{"an IPv6 address must stand in brackets, as in [::1]:7117"};
  }
  if (!rest.empty() && (rest.front() != ':' || rest.size() == 1)) {
    throw Wrong{"a port must follow the host, as in host:7117"};
  }
  if (host.empty()) throw Wrong{"the host is missing"};
  if (bracketed ? !is_ipv6_address(host) : !is_host_name(host)) {
    throw Wrong{"'" + std::string(host) + "' is not " +
                (bracketed ? "an IPv6 address" : "the name or address of a host")};
  }
  return {kind, {}, std::string(host), rest.empty() ? kDefaultPort : parse_port(rest.substr(1))};
}

Endpoint parse_one(std::string_view item) {
  using Kind = Endpoint::Kind;
  if (item.starts_with("unix:")) return parse_unix(item.substr(5));
  if (item.starts_with("tls:")) return parse_tcp(Kind::kTls, item.substr(4));
  return parse_tcp(Kind::kTcp, item.starts_with("tcp:") ? item.substr(4) : item);
}

// Whoever asks for TLS must not end up in the clear because another daemon of the list answered.
const Endpoint* find_unencrypted(const std::vector<Endpoint>& endpoints) {
  const auto is_of = [](Endpoint::Kind kind) {
    return [kind](const Endpoint& endpoint) { return endpoint.kind == kind; };
  };
  if (std::none_of(endpoints.begin(), endpoints.end(), is_of(Endpoint::Kind::kTls))) return nullptr;
  const auto found = std::find_if(endpoints.begin(), endpoints.end(), is_of(Endpoint::Kind::kTcp));
  return found != endpoints.end() ? &*found : nullptr;
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
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string_view item = trimmed(list.substr(at, end - at));
    if (parsed.size() == kEndpointsMax) {
      error = "address '" + std::string(item) + "' is one too many; allowed: at most " +
              std::to_string(kEndpointsMax);
      return false;
    }
    if (item.empty()) {
      error = "address " + std::to_string(parsed.size() + 1) + " is empty; " + kAllowed;
      return false;
    }
    try {
      parsed.push_back(parse_one(item));
    } catch (const Wrong& wrong) {
      error = "address '" + std::string(item) + "': " + wrong.what + "; " + kAllowed;
      return false;
    }
    at = end + 1;
  }
  if (const Endpoint* wrong = find_unencrypted(parsed)) {
    error = "address '" + wrong->text() +
            "' has no TLS, but another one of the list has; allowed beside tls: addresses: tls: "
            "and unix: addresses";
    return false;
  }
  endpoints = std::move(parsed);
  return true;
}

std::vector<Endpoint> default_endpoints() {
  return {{Endpoint::Kind::kUnix, default_unix_socket_path(), {}, 0},
          {Endpoint::Kind::kTcp, {}, "127.0.0.1", kDefaultPort}};
}

}  // namespace syncd::client
