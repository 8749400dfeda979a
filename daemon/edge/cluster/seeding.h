// Makes a cluster in etcd out of a store: that of a single daemon, which becomes a cluster's; or a
// member's copy, when etcd has lost its data or was set back. Any thread; blocks on disk and etcd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "daemon/edge/cluster/copy.h"
#include "daemon/edge/cluster/etcd.h"

namespace syncd::cluster {

struct Seeded {
  std::uint64_t generation = 0;
  std::size_t jobs = 0;
};

// How far the copy in the directory `path` has come. False, with a sentence in `error`: it cannot
// be read, or is no copy.
bool read_copy(const std::string& path, Stamp& stamp, std::string& error);

// Whether a cluster may begin without a store in the directory `path`, or beside it, as members of
// several shards have them. False, with a sentence in `error`: one of them is a copy of a cluster's
// history, which that cluster's members would lose; or it is not known.
bool may_begin_without(const std::string& path, std::string& error);

// The cluster begins with what the store in the directory `path` has, at the next generation, so
// that other copies are made anew. The store becomes a copy of it. If it is the copy of a shard,
// those of all shards must lie beside it, as one machine's members have them: `path`, `path`.1,
// `path`.2 and so on. `timeout`: of one call to etcd.
//
// False, with a sentence in `error`: the store cannot be read or written, or a daemon has it;
// members run; the cluster is there, and the store is not of it, or has nothing that etcd lacks;
// etcd does not answer. Another call begins anew, also after one that was cut off in between: then
// etcd has no cluster of this name, and the store may be a copy already.
bool seed_from(Etcd& etcd, const std::string& name, const std::string& path, Micros timeout,
               Seeded& seeded, std::string& error);

}  // namespace syncd::cluster
