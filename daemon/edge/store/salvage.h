// Making a store that a daemon can start with of one that is damaged. Blocks as long as the disk
// takes; any thread. See maintenance.h for what `error` says.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/edge/store/maintenance.h"

namespace syncd::store {

struct SalvagedJob {
  JobId id = 0;
  std::string name;      // empty: not known any more
  Sequence first = 0;    // of the records that were kept; 0: none
  Sequence last = 0;     // likewise
  Sequence dropped = 0;  // records that were there, or must have been
  // What was dropped and why: "records 7 to 12: record 7: its checksum does not match".
  std::vector<std::string> what;
};

struct Salvaged {
  bool needed = false;            // false: the store is sound and was left alone
  std::vector<SalvagedJob> jobs;  // those of which something was dropped
  // What is wrong with files that are gone or cannot be opened at all, or with the list of them.
  std::vector<std::string> files;
  std::string damaged_path;  // where the store is now, as it was
};

// Looks at all of the store and, if anything is wrong in it, puts a new store in its place. A job
// keeps its history from the damage before its latest snapshot, or from its beginning, up to the
// first damage after that snapshot. Without a snapshot that is everything before the first damage.
// A job of which nothing can be recovered is dropped. Where files have gone or cannot be opened, or
// RocksDB's own list of them is damaged, whatever the others hold is collected first, of which some
// may have been removed by retention. The damaged store stays beside it under another name. Needs
// as much room on the disk as the store takes, or twice as much. A crash on the way leaves the
// damaged store or the new one at `path`; where the file system cannot exchange two names it may
// leave none there, and a start is then refused until they were put right. False: no part of it can
// be read, or something holds it open. `progress`, where it is given, is called every
// kProgressEvery records.
bool salvage_store(const std::string& path, Salvaged& salvaged, std::string& error,
                   const std::function<void()>& progress = {});

}  // namespace syncd::store
