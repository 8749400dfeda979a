// Where the daemon's lines go: standard error, the journal, or a file.
#pragma once

#include <memory>
#include <string>

#include "daemon/core/engine/effects.h"

namespace spdlog {
class logger;
}

namespace syncd {

class LogFile;

// May be used by several threads.
class Log {
 public:
  // Lines go to the end of `file`, or to standard error if it is empty.
  // Throws spdlog::spdlog_ex if the file cannot be opened.
  Log(const std::string& file, LogLevel level);
  // The same; null, with the reason in `error`, if it cannot be opened.
  static std::unique_ptr<Log> open(const std::string& file, LogLevel level, std::string& error);
  ~Log();

  void set_level(LogLevel level);

  // Opens the file anew, for whoever rotates logs has given the one of before another name. False
  // if it cannot be opened: the one of before says so, to which lines still go.
  bool reopen();

  // A file that cannot be written, as on a full disk, loses lines, and says how many once it can:
  // log_lines_lost. Audit lines go to standard error then.
  void write(const LogLine& line);

 private:
  bool journal_;
  std::shared_ptr<LogFile> file_;  // null: standard error
  std::unique_ptr<spdlog::logger> logger_;
};

}  // namespace syncd
