// What a connection may say when: the handshake, and which messages a client may send at all. Pure
// functions over decoded messages; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "proto/wire/wire.h"

namespace syncd::net {

// What the daemon offers in a handshake.
struct SessionTerms {
  std::string server_version;
  std::uint16_t protocol_min = kProtocolMin;
  std::uint16_t protocol_max = kProtocolMax;
  std::uint32_t frame_bytes_max = kDefaultMaxFrameBytes;
  std::uint32_t heartbeat_interval_ms = 0;
  std::uint32_t heartbeat_timeout_ms = 0;
  std::uint32_t shard = 0;
  std::uint32_t shards = 1;
};

// The answer to a client's Hello: a Welcome with the newest protocol version that both speak, or an
// Error that says what is wrong. Whoever wants another shard is not answered here.
std::variant<wire::Welcome, wire::Error> negotiate(const wire::Hello& hello,
                                                   const SessionTerms& terms,
                                                   std::uint64_t session);

// What the edge does with a message that arrives after the handshake.
enum class Route {
  kHandler,      // a request: the handler answers it
  kHeartbeat,    // answer HeartbeatAck
  kIgnore,       // nothing needs to happen
  kUnsupported,  // a request of a type that this build does not know
  kBroken,       // a well-behaved client never sends this: `error` says why
};
Route route(const wire::Message& message, std::string& error);

}  // namespace syncd::net
