// A job's history as a trace in the JSON format that Perfetto and speedscope open ("Trace
// Event Format"). Written as it comes: memory grows with the number of workers, not of records. One
// thread.
//
// A job is a process, a worker a track. A push makes a slice "iteration N", from the grant of its
// begin to the push's arrival at the daemon (so pulling, computing and sending are all in it), and,
// if its begin was held, a slice "wait" before it. In a decentralized job, where updates are there
// before they are computed with, what a worker does from its push until it asks for the next
// iteration is a slice "after push N" (if the job's creation is among the records). What else
// happened is an instant on the job's own track: joins, leaves, losses, barriers, switches of the
// policy, plans, notes. The times of re-syncs are not recorded: the push after them counts them,
// and is an instant "re-synced".
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <ostream>

#include "daemon/core/engine/record.h"

namespace syncd::ctl {

class ChromeTrace {
 public:
  // `out` must outlive it; the caller looks at its state.
  explicit ChromeTrace(std::ostream& out);
  // Records of one job in the order of their sequences.
  void add(const Record& record);
  // Call last, once.
  void finish();

 private:
  struct Track {
    Micros end_us = 0;                // of its last slice: slices of a track never overlap
    Iteration pushed = kNoIteration;  // and what came since was not told
  };

  void event(const nlohmann::json& json);
  void name_process(const Record& record);
  Track& track(const Record& record);
  void add_push(const Record& record);
  void add_instant(const Record& record, const std::string& name);

  std::ostream& out_;
  bool first_ = true;
  bool process_named_ = false;
  bool decentralized_ = false;
  std::map<std::int64_t, Track> tracks_;  // by rank
};

}  // namespace syncd::ctl
