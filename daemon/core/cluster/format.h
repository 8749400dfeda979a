// Keys and values of a cluster in etcd, and numbers that follow from names. A value is
//   u32 masked CRC-32C of the rest | u8 format | u8 kind | the kind's fields, little-endian,
// texts and lists behind a u32 length. A thing has exactly one encoding, because transactions
// compare values byte for byte. Pure functions; any thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/engine/types.h"
#include "proto/base/shard.h"

namespace syncd::cluster {

using Shard = std::uint32_t;
using Index = std::uint64_t;  // of a shard's log entries, from 1
using Revision = std::int64_t;

inline constexpr std::uint8_t kFormat = 1;
inline constexpr std::size_t kGroupBytesMax = 1 << 20;  // of records in one entry without parts
inline constexpr std::size_t kPartBytes = 512 * 1024;
inline constexpr std::size_t kPointersMax = 32;  // that go with one entry
inline constexpr std::size_t kRemovedMax = 16;   // jobs that go with one entry
inline constexpr std::size_t kOpsMax = 100;      // of a transaction; etcd takes 128
static_assert(3 + 2 * (kPointersMax + kRemovedMax) <= kOpsMax);

// Unique in the cluster: a process draws the first half when it starts, and counts in the second.
// All zero: none.
struct Nonce {
  std::uint64_t process = 0;
  std::uint64_t count = 0;
  friend bool operator==(const Nonce&, const Nonce&) = default;
};

struct Term {
  std::uint64_t generation = 0;
  Revision revision = 0;  // the leader key's create revision
  friend auto operator<=>(const Term&, const Term&) = default;
};

// ---- values

struct Config {
  std::array<std::uint8_t, 16> cluster{};  // random
  std::uint64_t generation = 1;
  Shard shards = 16;
  std::uint32_t format = kFormat;  // of records: the highest that every member reads
  friend bool operator==(const Config&, const Config&) = default;
};

struct Leader {
  Nonce process;
  std::string member;
  friend bool operator==(const Leader&, const Leader&) = default;
};

struct Member {
  Nonce process;
  std::string version;
  std::uint32_t format = kFormat;  // the highest that it reads
  std::vector<std::string> addresses;
  std::uint64_t auth_hash = 0;
  std::vector<Index> copies;  // by shard: how far the synced copy has come
  std::vector<Shard> unfit;
  bool draining = false;
  friend bool operator==(const Member&, const Member&) = default;
};

struct Tail {
  Index index = 0;
  Nonce nonce;
  friend bool operator==(const Tail&, const Tail&) = default;
};

struct First {
  Index index = 1;
  friend bool operator==(const First&, const First&) = default;
};

struct Meta {
  JobId next_counter = 1;   // of the next job's id
  Epoch removed_epoch = 0;  // the highest of removed jobs
  friend bool operator==(const Meta&, const Meta&) = default;
};

struct Entry {
  Term term;
  Nonce nonce;
  Nonce previous;
  std::uint32_t parts = 0;  // 0: the records are here
  std::string records = {};
  friend bool operator==(const Entry&, const Entry&) = default;
};

// Of an entry or of a snapshot.
struct Part {
  Nonce nonce;  // the entry's; of a snapshot none
  std::string bytes;
  friend bool operator==(const Part&, const Part&) = default;
};

struct Pointer {
  Term term;
  Sequence sequence = 0;
  std::uint32_t parts = 0;
  std::uint32_t crc = 0;  // of the parts' bytes together
  friend bool operator==(const Pointer&, const Pointer&) = default;
};

std::string encode(const Config&);
std::string encode(const Leader&);
std::string encode(const Member&);
std::string encode(const Tail&);
std::string encode(const First&);
std::string encode(const Meta&);
std::string encode(const Entry&);
std::string encode(const Part&);
std::string encode(const Pointer&);

// False for bytes that are damaged, cut off, of another kind or of a newer format.
bool decode(std::string_view bytes, Config&);
bool decode(std::string_view bytes, Leader&);
bool decode(std::string_view bytes, Member&);
bool decode(std::string_view bytes, Tail&);
bool decode(std::string_view bytes, First&);
bool decode(std::string_view bytes, Meta&);
bool decode(std::string_view bytes, Entry&);
bool decode(std::string_view bytes, Part&);
bool decode(std::string_view bytes, Pointer&);

// The checksum of a value, and the rest of it.
std::string with_checksum(std::string_view bytes);

// ---- keys

// The end of the range of keys that begin with `prefix`, which must not be empty.
std::string end_of(std::string prefix);

// Of one shard of a cluster. Numbers have a fixed width, so that etcd's order is theirs.
class ShardKeys {
 public:
  ShardKeys(std::string_view cluster, Shard shard);
  std::string leader() const { return prefix_ + "leader"; }
  // Before all members that follow or lead this shard; of one of them.
  std::string members() const { return prefix_ + "members/"; }
  std::string member(std::string_view name) const { return members() + std::string(name); }
  // The name of the member that the last leader gave the shard to.
  std::string successor() const { return prefix_ + "successor"; }
  // The name of the member that an operator wants to lead.
  std::string pin() const { return prefix_ + "pin"; }
  // Put by a member whose copy has entries that the log lacks: the generation, and its name.
  std::string set_back() const { return prefix_ + "set_back"; }
  std::string tail() const { return prefix_ + "tail"; }
  std::string first() const { return prefix_ + "first"; }
  std::string meta() const { return prefix_ + "meta"; }
  std::string log() const { return prefix_ + "log/"; }
  std::string entry(Index index) const;
  std::string part(Index index, std::uint32_t part) const;
  std::string snapshots() const { return prefix_ + "snapshot/"; }
  std::string pointer(JobId job) const;
  // Before all parts of a job's snapshots; of one snapshot. Later snapshots sort behind earlier
  // ones.
  std::string snapshot_parts(JobId job) const;
  std::string snapshot_parts(JobId job, const Term& term, Sequence sequence) const;
  std::string snapshot_part(JobId job, const Term& term, Sequence sequence,
                            std::uint32_t part) const;
  // The other way round; nothing for other keys.
  struct LogKey {
    Index index = 0;
    std::optional<std::uint32_t> part = {};
  };
  std::optional<LogKey> parse_log(std::string_view key) const;
  std::optional<JobId> parse_pointer(std::string_view key) const;

 private:
  std::string prefix_;
};

std::string config_key(std::string_view cluster);
// Before all marks by which operators drain members; of one member.
std::string draining_keys(std::string_view cluster);
std::string draining_key(std::string_view cluster, std::string_view member);

}  // namespace syncd::cluster
