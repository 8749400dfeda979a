// The file that the daemon's lines are appended to, and what becomes of them while it cannot be
// written: a full disk loses lines, but never quietly.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace syncd {

// May be used by several threads. A line of level critical is one that must not be lost: if the
// file does not take it, it goes to standard error.
class LogFile : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // Throws spdlog::spdlog_ex if it cannot be opened.
  explicit LogFile(std::string path);
  ~LogFile() override;
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // Opens the path anew. Throws spdlog::spdlog_ex, and then goes on with the file of before.
  void reopen();

 private:
  // Its descriptor, and in `torn` whether its last line has no end.
  int opened(bool& torn) const;
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}  // nothing is kept back
  bool catch_up();
  bool append(std::string_view text);
  void lose(std::string_view text, bool precious);
  std::string formatted(spdlog::level::level_enum level, const std::string& text);

  const std::string path_;
  int fd_ = -1;
  bool torn_ = false;            // the file ends within a line
  int reason_ = 0;               // errno of the last write that failed
  std::uint64_t lost_ = 0;       // lines that it lacks, and does not say so yet
  std::uint64_t on_stderr_ = 0;  // of these, those that standard error got
};

}  // namespace syncd
