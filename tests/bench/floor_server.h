// The floors: servers that do nothing but what libuv must do. They run in a process of their own
// (this program, started again with kFloorFlag), as syncd does.
#pragma once

#include <cstdint>
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
};

// The command line that makes main() run such a server, and the way back: true if argv is one.
std::vector<std::string> floor_command(const FloorOptions& options);
bool parse_floor_command(int argc, char** argv, FloorOptions& options);

// Serves until it is killed.
[[noreturn]] void run_floor_server(const FloorOptions& options);

}  // namespace syncd::bench
