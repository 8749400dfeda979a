// How much of it clients may use; what of a network may change while it runs. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/core/engine/limits.h"
#include "proto/base/defaults.h"

namespace syncd::net {

struct NetworkLimits {
  std::size_t connections_max = limits::kConnectionsMax;
  std::size_t connections_per_machine_max = limits::kConnectionsMax;  // over TCP
  // Of one identity that is neither unknown nor the daemon's own user.
  std::size_t connections_per_identity_max = limits::kConnectionsMax;
  // That one machine may begin with TLS; 0: any number.
  std::uint32_t handshakes_per_machine_per_s = 0;
  // Beyond it, the one that has waited longest without a Hello makes room for the next: a client
  // that means it has said one long before.
  std::size_t unintroduced_max = 1024;
  std::size_t outbound_bytes_max = limits::kOutboundBytesMax;
  // Of the buffers of all connections together. Beyond it, a connection whose own hold more than
  // kBufferedFloorBytes and grow is cut off.
  std::size_t buffered_bytes_max = limits::kBufferedBytesMax;
};

// Of one connection.
struct ConnectionLimits {
  std::size_t frame_bytes_max = kDefaultMaxFrameBytes;
  // Of the first frame, from a client of whom nothing is known: a Hello with the longest token and
  // names needs less.
  std::size_t hello_bytes_max = 8 * 1024;
  std::uint64_t handshake_timeout_ms = 5'000;
  std::uint64_t idle_timeout_ms = 5'000;
  std::uint64_t write_timeout_ms = 10'000;
  std::uint64_t linger_ms = 1'000;  // for the peer to read a last message and close
};

}  // namespace syncd::net
