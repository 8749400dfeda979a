// Iteration times taken from a recorded run. No thread.
#pragma once

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

// Reads what `syncctl history export` writes, CSV (with its line of column names) or JSON lines,
// whichever it looks like: the span_us of every push. Other records, and pushes whose span is not
// known, are left out. Null: `error` says what is wrong, with `name` and the line.
std::shared_ptr<const Trace> read_trace(std::istream& in, const std::string& name,
                                        std::string& error);

// The same from a file.
std::shared_ptr<const Trace> read_trace_file(const std::string& path, std::string& error);

}  // namespace syncd::sim
