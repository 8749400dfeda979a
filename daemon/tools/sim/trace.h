// Iteration times taken from a recorded run. No thread.
#pragma once

#include <functional>
#include <istream>
#include <memory>
#include <string>
#include <vector>

#include "daemon/core/engine/types.h"

namespace syncd::sim {

// What each recorded worker's iterations took, in the order of its pushes; workers in rank order.
// None is empty.
struct Trace {
  std::vector<std::vector<Micros>> spans;
};

struct RecordedPush {
  std::int64_t rank = 0;
  std::int64_t iteration = 0;  // as recorded, or else how many pushes of this rank came before
  Micros span_us = 0;          // 1 at least
  Micros computed_us = -1;     // of it, until the worker's mark; -1: not marked
  bool in_phase = false;       // it says nothing of the worker's speed

  // What the worker's own speed is told by.
  Micros own_span_us() const { return computed_us >= 0 ? computed_us : span_us; }
};

// Reads what `syncctl history export` writes, CSV (with its line of column names) or JSON lines,
// whichever it looks like, and hands over every push in the file's order. Other records, and pushes
// whose span is not known, are left out. False: `error` says what is wrong, with the file's `name`
// and the line.
bool read_pushes(std::istream& in, const std::string& name,
                 const std::function<void(const RecordedPush&)>& on_push, std::string& error);

// The same from a file.
bool read_pushes_file(const std::string& path,
                      const std::function<void(const RecordedPush&)>& on_push, std::string& error);

// Likewise each worker's spans. Null: see above.
std::shared_ptr<const Trace> read_trace(std::istream& in, const std::string& name,
                                        std::string& error);

// The same from a file.
std::shared_ptr<const Trace> read_trace_file(const std::string& path, std::string& error);

}  // namespace syncd::sim
