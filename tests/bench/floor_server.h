// The floors: servers that do nothing but what libuv must do. They run in a process of their own
// (this program, started again with kFloorFlag), as syncd does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/bench/endpoint.h"

namespace syncd::bench {

inline constexpr const char* kFloorFlag = "--floor";

struct FloorOptions {
  Endpoint endpoint;
  // 0: an echo, which writes back what it reads. Otherwise a barrier: a frame of `begin_bytes`
  // (length prefix included) is kept until `workers` of them are there, then each goes back to
  // where it came from; frames of any other length go back at once.
  std::uint32_t workers = 0;
  std::uint32_t begin_bytes = 0;
  // Not empty: no barrier, but frames of `begin_bytes` go back at once, and all others once a
  // record of `record_bytes` for each is in the store that run_floor_server()'s caller has there.
  std::string store = {};
  std::uint32_t record_bytes = 0;
};

// The command line that makes main() run such a server, and the way back: true if argv is one.
std::vector<std::string> floor_command(const FloorOptions& options);
bool parse_floor_command(int argc, char** argv, FloorOptions& options);

// Serves until it is killed. With a store, `commit` makes so many records durable, in one batch; a
// thread of its own calls it, again and again with all that have come meanwhile.
[[noreturn]] void run_floor_server(const FloorOptions& options,
                                   const std::function<void(std::size_t records)>& commit = {});

}  // namespace syncd::bench
