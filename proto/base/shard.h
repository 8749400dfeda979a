// Jobs of a cluster are spread over its shards by their names. Fixed for ever: clients, daemons and
// what is stored agree on it. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace syncd {

inline constexpr std::uint32_t kShardsMax = 64;  // of a cluster

std::uint64_t hash_of(std::string_view text);

// The shard of the job that is named so, "#NUMBER" included. Precondition: shards > 0.
std::uint32_t shard_of(std::string_view job, std::uint32_t shards);

}  // namespace syncd
