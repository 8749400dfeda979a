// What is wrong with a store's files, and with its write-ahead log, found by reading it as it lies
// on the disk (format: RocksDB, db/log_format.h and db/write_batch.cc). RocksDB itself cannot tell
// a commit that a crash has cut off from damage in the midst of what was acknowledged: both are a
// wrong checksum to it. Blocks on the disk; any thread.
//
// The format is that of RocksDB 7.8 to 9.11 (10.10 adds nothing); the tests were run with 7.8 and
// 9.10. It asks for no version: what an unknown one writes is read as long as it is of
// known types. The store turns on nothing that needs another type than 1 to 4; the others are read
// in case a default changes.
#pragma once

#include <rocksdb/env.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/edge/store/store.h"

namespace syncd::store {

enum class LogState {
  kWhole,
  kCutOff,   // the last entry of the last file is not all there
  kDamaged,  // whole entries follow what cannot be read, or the store was closed in good order
};

// Bytes of a log that no whole entry lies in.
struct Stretch {
  std::string file;
  std::uint64_t at = 0;
  std::uint64_t bytes = 0;
};

struct LogReport {
  LogState state = LogState::kWhole;
  CutTail cut;                      // where what cannot be read begins, and how much that is
  std::uint64_t entries_after = 0;  // whole ones: each a commit
  bool was_whole = false;           // when the store was closed in good order
  std::vector<Stretch> unreadable;  // the first one begins with `cut`
  // The latest record of each job that is written of from there on, as far as that can be read.
  std::map<JobId, Sequence> latest;
};

// Notes, when all was committed and the store is closed (or is a copy that nobody has opened), its
// files, and of its log files those that are whole as they are: what is wrong in those later is
// damage and not a commit that a crash has cut off. Names are never given again. False: the disk
// did not take it.
bool note_files(rocksdb::Env* env, const std::string& path);

// Notes for a store that is open how long the manifest is, RocksDB's list of the files that count,
// and which log is the latest (it goes when there is a later one): called when the manifest has
// grown. A crash keeps what was synced of it, so that a shorter one later is damage, by which
// RocksDB would forget files in silence. One call at a time; false: the disk did not take it, and
// the note before it is still right.
bool note_while_open(rocksdb::Env* env, const std::string& path);

// What is missing of a store, each as the end of a sentence ("is damaged: its file ... is
// missing"). Looks at names, sizes and the manifest's content: RocksDB's own list of files tells
// nothing of those it has forgotten, and without CURRENT it would begin an empty store and delete
// the files of this one. What was noted counts until the store is opened again, and of an open one
// until it has a new manifest, which the name of the manifest tells.
std::vector<std::string> missing_files(rocksdb::Env* env, const std::string& path);

// Removes the empty logs that a first start leaves which a crash has cut off, and with which
// RocksDB would begin no store. Removes nothing where something of a store is there without its
// CURRENT.
void clear_for_first_start(rocksdb::Env* env, const std::string& path);

// A write that stands in a log.
struct LoggedWrite {
  enum class Kind { kPut, kDelete, kDeleteRange };
  Kind kind = Kind::kPut;
  std::uint32_t family = 0;
  std::string key;
  std::string value;  // of a range: its end
};

// Calls `take` for every write of every commit that is whole, in order, whatever is damaged around
// it. Files that cannot be read are passed over, and named in `unreadable`.
void read_log(rocksdb::Env* env, const std::string& path,
              const std::function<void(const LoggedWrite&)>& take,
              std::vector<std::string>& unreadable);

// The table files of the store in `path`, by their numbers.
std::vector<std::string> table_files(rocksdb::Env* env, const std::string& path);

// Reads the log files of the store in `path`, O(their size). False, with a sentence in `error`: one
// cannot be read at all or has an entry of an unknown type, or they are not all of this store,
// which RocksDB does not notice or, where two have the same writes, ends the process for.
bool examine_log(rocksdb::Env* env, const std::string& path, LogReport& report, std::string& error);

}  // namespace syncd::store
