// The store on RocksDB (daemon/edge/store), with RocksDB itself, on a disk that loses its power.
// See run_rocks_world().
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace syncd::simulation {

// What a run came across, and how often.
using RocksCounts = std::map<std::string, std::uint64_t>;

// Opens a store again and again on one disk, submits batches of records and snapshots of several
// jobs, and lets things go wrong: power cuts at any operation, kills, failing writes and syncs, a
// full disk, slow syncs. Throws a Violation unless, after each opening,
//  - every batch that was reported committed is there: after a power cut in durable mode, after a
//    kill in either; and in durable mode also all that was there at an earlier opening (after a
//    power cut, fast mode may lose anything, and refuse the store as damaged);
//  - what is there is what was submitted, up to some batch: whole batches, in their order, each
//    record once and as it was, each job's sequence without a gap, its latest snapshot;
//  - a disk without faults opens, commits and closes, and one whose faults have passed commits.
// What goes wrong follows from the seed; RocksDB's threads and the store's take their turns as they
// will, so that a seed brings a failure back nearly always, but not always.
RocksCounts run_rocks_world(std::uint64_t seed);

}  // namespace syncd::simulation
