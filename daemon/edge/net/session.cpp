// The rules of a session; see the header. No state, any thread.
#include "daemon/edge/net/session.h"

#include <algorithm>

#include "daemon/core/engine/request_traits.h"

namespace syncd::net {
namespace {

std::string range(std::uint16_t low, std::uint16_t high) {
  if (low == high) return "version " + std::to_string(low);
  return "versions " + std::to_string(low) + " to " + std::to_string(high);
}

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
  if (hello.shard >= 0 && static_cast<std::uint32_t>(hello.shard) >= terms.shards) {
    return wire::Error{Status::kInvalid, "there is no shard " + std::to_string(hello.shard) +
                                             " here; allowed: 0 to " +
                                             std::to_string(terms.shards - 1)};
  }
  wire::Welcome welcome;
  welcome.protocol = newest;
  welcome.session = session;
  welcome.server_version = terms.server_version;
  welcome.max_frame_bytes = terms.frame_bytes_max;
  welcome.heartbeat_interval_ms = terms.heartbeat_interval_ms;
  welcome.heartbeat_timeout_ms = terms.heartbeat_timeout_ms;
  welcome.shard = terms.shard;
  welcome.shards = terms.shards;
  return welcome;
}

Route route(const wire::Message& message, std::string& error) {
  const auto broken = [&](const char* before, const char* after) {
    error = before + std::string(wire::body_name(message.body)) + after;
    return Route::kBroken;
  };
  switch (facts_of(message.body).answerer) {
    case Answerer::kNotAllowed:
      return broken("a message of type ", " came from a client: only the daemon sends these");
    case Answerer::kNobody:
      return Route::kIgnore;
    case Answerer::kHandshake:
      return broken("a second ", ": a connection has one handshake");
    case Answerer::kHeartbeat:
      return Route::kHeartbeat;
    case Answerer::kUnsupported:
      return message.id == 0 ? Route::kIgnore : Route::kUnsupported;
    default:
      if (message.id != 0) return Route::kHandler;
      return broken("a request of type ", " came with id 0: a request needs an id from 1");
  }
}

}  // namespace syncd::net
