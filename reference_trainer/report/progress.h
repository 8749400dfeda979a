// A line on a terminal that shows how far a run has come, drawn over itself. Nothing is written
// anywhere but to a terminal. Used on the parent's main thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "reference_trainer/run/run.h"

namespace syncd::trainer {

// "[1/3] bsp  [######......]  42%  101.2 it/s  loss 0.6123  3 s left", in at most `columns` columns
// (what does not fit is left out: the bar first, then figures from the right). Without a limit on
// iterations or time there is no share and no time left.
std::string progress_line(std::string_view label, const RunProgress& progress, std::size_t columns);

class ProgressLine {
 public:
  // Draws to `fd` if `wanted` and it is a terminal that can erase a line.
  ProgressLine(int fd, bool wanted);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool is_shown() const { return is_terminal_; }

  // Draws, but not more often than about ten times a second.
  void show(std::string_view label, const RunProgress& progress);

  // Erases the line, so that something else can be written there.
  void clear();

 private:
  void write(std::string_view text) const;

  int fd_;
  bool is_terminal_ = false;
  bool is_drawn_ = false;
  std::int64_t next_us_ = 0;
};

}  // namespace syncd::trainer
