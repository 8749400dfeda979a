// The rules of a session; see the header. No state, any thread.
#include "daemon/edge/net/session.h"

#include <algorithm>
#include <type_traits>

namespace syncd::net {
namespace {

std::string range(std::uint16_t low, std::uint16_t high) {
  if (low == high) return "version " + std::to_string(low);
  return "versions " + std::to_string(low) + " to " + std::to_string(high);
}

// Types that only the daemon sends.
template <typename T>
constexpr bool kFromDaemon =
    std::is_same_v<T, wire::Welcome> || std::is_same_v<T, wire::Error> ||
    std::is_same_v<T, wire::Ok> || std::is_same_v<T, wire::Joined> ||
    std::is_same_v<T, wire::Granted> || std::is_same_v<T, wire::Pushed> ||
    std::is_same_v<T, Explanation> || std::is_same_v<T, wire::StopNotice> ||
    std::is_same_v<T, wire::FencedNotice> || std::is_same_v<T, wire::ResyncNotice> ||
    std::is_same_v<T, wire::ShutdownNotice> || std::is_same_v<T, wire::StatusReply> ||
    std::is_same_v<T, wire::JobsReply> || std::is_same_v<T, wire::WorkersReply> ||
    std::is_same_v<T, wire::HistoryReply> || std::is_same_v<T, wire::TargetsReply> ||
    std::is_same_v<T, wire::CollectReply>;

}  // namespace

std::variant<wire::Welcome, wire::Error> negotiate(const wire::Hello& hello,
                                                   const SessionTerms& terms,
                                                   std::uint64_t session) {
  const std::uint16_t newest = std::min(hello.protocol_max, terms.protocol_max);
  if (newest < std::max(hello.protocol_min, terms.protocol_min)) {
    return wire::Error{Status::kProtocol, "this daemon (" + terms.server_version +
                                              ") speaks protocol " +
                                              range(terms.protocol_min, terms.protocol_max) +
                                              ", the client asks for " +
                                              range(hello.protocol_min, hello.protocol_max) +
                                              ": use a client and a daemon of the same release"};
  }
  wire::Welcome welcome;
  welcome.protocol = newest;
  welcome.session = session;
  welcome.server_version = terms.server_version;
  welcome.max_frame_bytes = terms.frame_bytes_max;
  welcome.heartbeat_interval_ms = terms.heartbeat_interval_ms;
  welcome.heartbeat_timeout_ms = terms.heartbeat_timeout_ms;
  return welcome;
}

Route route(const wire::Message& message, std::string& error) {
  return std::visit(
      [&](const auto& body) {
        using T = std::decay_t<decltype(body)>;
        if constexpr (std::is_same_v<T, wire::Unknown>) {
          return message.id == 0 ? Route::kIgnore : Route::kUnsupported;
        } else if constexpr (std::is_same_v<T, wire::Heartbeat>) {
          return Route::kHeartbeat;
        } else if constexpr (std::is_same_v<T, wire::HeartbeatAck>) {
          return Route::kIgnore;
        } else if constexpr (std::is_same_v<T, wire::Hello>) {
          error = "a second Hello: a connection has one handshake";
          return Route::kBroken;
        } else if constexpr (kFromDaemon<T>) {
          error = "a message of type " + std::string(wire::body_name(message.body)) +
                  " came from a client: only the daemon sends these";
          return Route::kBroken;
        } else {
          if (message.id != 0) return Route::kHandler;
          error = "a request of type " + std::string(wire::body_name(message.body)) +
                  " came with id 0: a request needs an id from 1";
          return Route::kBroken;
        }
      },
      message.body);
}

}  // namespace syncd::net
