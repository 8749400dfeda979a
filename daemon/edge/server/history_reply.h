// The answer to a HistoryRequest. A record that fits no frame (a plan for thousands of workers)
// travels in several answers. Pure.
#pragma once

#include <cstdint>

#include "daemon/edge/store/store.h"
#include "proto/wire/wire.h"

namespace syncd::server {

// `read`: what the store has from the request's sequence on. Begins at byte `from_byte` of its
// first record; an Error if that has fewer.
wire::Body history_reply(store::ReadResult read, std::uint64_t from_byte);

}  // namespace syncd::server
