// Where the daemon's lines go: standard error, the journal, or a file. While a file cannot be
// written, lines are lost, but never quietly.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "daemon/core/engine/effects.h"
#include "proto/base/file.h"

namespace syncd {

// May be used by several threads.
class Log {
 public:
  // Lines go to the end of `file`, or to standard error if it is empty. Null, with the reason in
  // `error`, if it cannot be opened.
  static std::unique_ptr<Log> open(const std::string& file, LogLevel level, std::string& error);

  void set_level(LogLevel level) { level_ = level; }

  // Opens the file again after log rotation has renamed it. False if that fails: lines still go to
  // the previous file, and one of them says so.
  bool reopen();

  // A file that cannot be written, as on a full disk, loses lines, and says how many once it can:
  // log_lines_lost. Audit lines go to standard error then.
  void write(const LogLine& line);

 private:
  Log(const std::string& file, LogLevel level);
  bool open_file(std::string& error);
  std::string formatted(const LogLine& line) const;
  bool catch_up();
  bool append(std::string_view text);

  const std::string path_;  // empty: standard error
  const bool journal_;
  std::atomic<LogLevel> level_;

  std::mutex mutex_;  // guards what follows
  UniqueFd fd_;
  bool torn_ = false;            // the file ends within a line
  int reason_ = 0;               // errno of the last write that failed
  std::uint64_t lost_ = 0;       // lines that it lacks, and does not say so yet
  std::uint64_t on_stderr_ = 0;  // of these, those that standard error got
};

}  // namespace syncd
