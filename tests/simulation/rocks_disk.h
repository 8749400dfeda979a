// A disk in memory for RocksDB, with what real ones do: what was not synced is lost in a power cut,
// or half of it is; errors; too little room; syncs that take long. Any thread, as RocksDB asks.
//
// What a power cut leaves of a file: what was synced, and any part of the beginning of the rest.
// What it leaves of a directory: what was synced, and any of the later changes to it; but a sync of
// any file keeps that file's name and the deletions before it, as the journals of ext4 and XFS do
// (RocksDB relies on the former, and the search for damage in its log, rocks_log.h, on the latter).
// A sync that failed leaves its file in doubt for ever: what was written until then may be gone,
// even if a later sync succeeds (as Linux does, whose page cache forgets what it could not write).
#pragma once

#include <rocksdb/env.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "tests/support/random.h"

namespace syncd::simulation {

class RocksDisk {
 public:
  // What goes wrong until the next power cut. Operations that write or sync are counted, from 1.
  struct Faults {
    std::uint64_t cut_at = 0;  // the operation at which the power goes; 0: none
    std::uint64_t fail_from = 0;
    std::uint64_t fail_until = 0;  // one in `fail_one_in` of those from fail_from on fails
    std::uint64_t fail_one_in = 1;
    std::uint64_t full_from = 0;
    std::uint64_t full_until = 0;  // there is no room meanwhile
  };

  // `on_cut` is called, on the thread that was writing and with the disk locked, when the power
  // goes.
  RocksDisk(std::uint64_t seed, std::function<void()> on_cut);
  ~RocksDisk();

  rocksdb::Env* env();

  // Nobody may use the disk during these. The power comes back after a cut, with what that left;
  // the process begins anew, and the disk has kept everything.
  void power_on(const Faults& faults);
  void restart(const Faults& faults);

  bool is_cut() const;
  void cut();                    // now, without a word to `on_cut`
  std::uint64_t errors() const;  // that operations have failed with since it was switched on
  // While it is held, syncs do not return unless the power goes.
  void hold_syncs(bool held);

  const std::map<std::string, std::uint64_t>& counts() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
  std::unique_ptr<rocksdb::Env> env_;
};

}  // namespace syncd::simulation
