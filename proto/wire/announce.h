// What a worker may announce of itself: the limits, and a check that the client and the daemon
// share. Thread-safe: no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace syncd {

inline constexpr std::size_t kPhaseNameBytesMax = 64;
inline constexpr std::int64_t kPhaseLeaseUsMax = std::int64_t{24} * 3600 * 1'000'000;
inline constexpr std::uint32_t kHeartbeatTimeoutMinMs = 100;
inline constexpr std::uint32_t kHeartbeatTimeoutMaxMs = 3'600'000;
inline constexpr std::size_t kMemberDataBytesMax = 1024;
// Workers whose launch is NAME/ROUND were started by this round of the job "rdzv.NAME" (torchrun).
inline constexpr std::string_view kRendezvousPrefix = "rdzv.";

// Empty, or a sentence about what is wrong with a phase's name or lease, and what is allowed.
std::string check_phase(std::string_view name, std::int64_t lease_us);

}  // namespace syncd
