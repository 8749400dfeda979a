// What a member that has become a shard's leader reads at one revision, and how its copy follows
// from that. Pure functions; any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "daemon/core/cluster/format.h"
#include "daemon/core/cluster/transaction.h"

namespace syncd::cluster {

struct TakeOver {
  First there;     // the log's first entry in etcd
  First first;     // the first of `log`: the same, or a later one from which on it was read
  Tail tail;       // of what was read, as if the log ended there
  Index last = 0;  // of the log in etcd: behind `tail` where only a piece was read
  Meta meta;
  std::vector<std::pair<JobId, Pointer>> pointers;
  std::vector<Entry> log;  // from `first` to `tail`, with their records, whatever parts they lay in
};

// All of it, in one transaction; or, for a copy that has the log before `from`, what is behind; of
// that, up to `count` entries. `pointers`: of the jobs' snapshots, too.
inline constexpr Index kAllEntries = UINT64_MAX;
Transaction take_over_read(const ShardKeys& keys, Index from = 1, Index count = kAllEntries,
                           bool pointers = true);

// What is put for a shard that is new. It is led only once this is there: a tail that is missing is
// an error, never a log that begins again.
std::vector<Op> seed(const ShardKeys& keys);

// False, with a sentence in `error`: a value is damaged, or the log is not what its tail says.
// Precondition, with a `count`: the log does not begin behind `from`.
bool parse_take_over(const ShardKeys& keys, const Answer& answer, TakeOver& read,
                     std::string& error, Index from = 1, Index count = kAllEntries);

enum class CatchUp : std::uint8_t {
  kFollow,   // apply the entries behind the copy's stamp
  kRebuild,  // the copy ends before the log begins: snapshots, then the whole log
  kSetBack,  // the copy is not on the log's chain, or ahead of it: etcd has been set back
};

// `stamp`: the last entry that the copy has, of the present generation.
CatchUp how_to_catch_up(const TakeOver& read, const Tail& stamp);

}  // namespace syncd::cluster
