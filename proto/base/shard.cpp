// See shard.h.
#include "proto/base/shard.h"

#include "proto/base/number.h"

namespace syncd {

// FNV-1a, and the last step of splitmix64, without which names that differ in their last letter
// would lie in neighbouring shards.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3;
  }
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

std::uint32_t shard_of(std::string_view job, std::uint32_t shards) {
  std::uint32_t id = 0;
  if (job.starts_with('#') && parse_number(job.substr(1), id)) return id % shards;
  return static_cast<std::uint32_t>(hash_of(job) % shards);
}

}  // namespace syncd
