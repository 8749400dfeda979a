// The floors: servers that do nothing but what libuv must do. They run in a process of their own,
// which is this program, started again with kFloorFlag.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace syncd::bench {

inline constexpr const char* kFloorFlag = "--floor";

struct FloorOptions {
  std::string socket_path;
  // 0: an echo, which writes back what it reads. Otherwise a barrier: it keeps frames of
  // `begin_bytes` (length prefix included) until it has `workers` of them, then each goes back to
  // where it came from. Frames of any other length go back at once.
  std::uint32_t workers = 0;
  std::uint32_t begin_bytes = 0;
};

// The arguments that make main() run such a server, and the way back: true if argv has them.
std::vector<std::string> floor_arguments(const FloorOptions& options);
bool parse_floor_arguments(int argc, char** argv, FloorOptions& options);

// Serves until it is killed.
[[noreturn]] void run_floor_server(const FloorOptions& options);

}  // namespace syncd::bench
