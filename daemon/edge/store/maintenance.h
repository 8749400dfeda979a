// What is done to a store that no daemon has open: looking at every byte of it, copying it,
// bringing a copy back, giving back space. Blocks as long as the disk takes; any thread.
//
// Functions that can fail return false and put a sentence into `error` that names the path, the
// cause, and what can be done.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/core/engine/types.h"

namespace syncd::store {

struct JobCheck {
  JobId id = 0;
  std::string name;  // empty: its creation record is missing or damaged
  std::uint64_t records = 0;
  Sequence first = 0;       // of its records; 0: it has none
  Sequence last = 0;        // likewise; of a job without records, what retention has removed
  Sequence snapshot = 0;    // the record that its snapshot stands at; 0: it has none
  std::uint64_t bytes = 0;  // of its records, as stored before compression
  std::vector<std::string> problems;
};

struct StoreCheck {
  std::vector<JobCheck> jobs;         // in order of their ids
  std::size_t kept_checkpoints = 0;   // of jobs that were removed
  std::vector<std::string> problems;  // of those
  bool sound() const {
    if (!problems.empty()) return false;
    for (const JobCheck& job : jobs) {
      if (!job.problems.empty()) return false;
    }
    return true;
  }
};

// A store with more problems than so many in a job names no more of that job's.
inline constexpr std::size_t kProblemsMax = 20;
// After so many values whoever waits is told that it goes on.
inline constexpr std::uint64_t kProgressEvery = 256;

// Reads every record and snapshot, and checks checksums, keys and the continuity of sequences. The
// store is not changed and may be open in a daemon, whose latest commits are then not looked at.
// False: it cannot be read at all; what is wrong in it is in `check`. `progress`, where it is
// given, is called every kProgressEvery values.
bool check_store(const std::string& path, StoreCheck& check, std::string& error,
                 const std::function<void()>& progress = {});

// Makes a copy in `to`, a directory that is not there yet, of the store at `path`. Files that do
// not change any more are linked, not copied, where both are on one file system.
bool backup_store(const std::string& path, const std::string& to, std::string& error);

// Makes a store at `path`, where none may be, of a backup, which must be sound. The backup stays as
// it is. A crash on the way leaves `path` without a store.
bool restore_store(const std::string& backup, const std::string& path, std::string& error);

// Rewrites the store so that it takes no more space than its records need. `before` and `after` are
// the bytes of its files.
bool compact_store(const std::string& path, std::uint64_t& before, std::uint64_t& after,
                   std::string& error);

}  // namespace syncd::store
