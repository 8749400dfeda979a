// See the header.
#include "daemon/edge/log/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "daemon/edge/server/log_text.h"
#include "proto/base/clock.h"
#include "proto/base/environment.h"

namespace syncd {
namespace {

// True if standard error is the journal, which stamps lines itself.
bool logs_to_journal() {
  struct stat own {};
  return fstat(STDERR_FILENO, &own) == 0 &&
         fmt::format("{}:{}", own.st_dev, own.st_ino) == environment("JOURNAL_STREAM");
}

// Whether a file ends within a line, as a disk that was full leaves it. False for what cannot be
// read, such as a pipe.
bool ends_within_line(const std::string& path, int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return false;
  const UniqueFd reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  char last = '\n';
  return reader && pread(reader.get(), &last, 1, info.st_size - 1) == 1 && last != '\n';
}

}  // namespace

Log::Log(const std::string& file, LogLevel level)
    : path_(file), journal_(file.empty() && logs_to_journal()), level_(level) {}

std::unique_ptr<Log> Log::open(const std::string& file, LogLevel level, std::string& error) {
  std::unique_ptr<Log> log(new Log(file, level));
  return log->open_file(error) ? std::move(log) : nullptr;
}

bool Log::open_file(std::string& error) {
  if (path_.empty()) return true;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  UniqueFd fd(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) {
    error = fmt::format("{} cannot be opened for writing: {}", path_, std::strerror(errno));
    return false;
  }
  const std::lock_guard lock(mutex_);
  fd_ = std::move(fd);
  torn_ = ends_within_line(path_, fd_.get());
  return true;
}

bool Log::reopen() {
  std::string error;
  if (open_file(error)) return true;
  write({LogLevel::kError,
         "log_not_reopened",
         {{"reason", error}, {"hint", "lines still go to the previous file"}}});
  return false;
}

void Log::write(const LogLine& line) {
  const bool is_audit = server::is_audit(line);
  if (line.level < level_ && !is_audit) return;
  const std::lock_guard lock(mutex_);
  const std::string text = formatted(line);
  if (path_.empty()) {
    write_all(STDERR_FILENO, text);
    return;
  }
  if (catch_up() && append(text)) return;
  // Reports the first of several lost lines on standard error, where a person may look.
  if (lost_++ == 0) {
    const LogLine first = {
        LogLevel::kError,
        "log_not_written",
        {{"file", path_},
         {"reason", std::strerror(reason_)},
         {"hint", "until syncd can write it, audit lines go to stderr and others are lost"}}};
    write_all(STDERR_FILENO, formatted(first));
  }
  if (is_audit && write_all(STDERR_FILENO, text) == text.size()) ++on_stderr_;
}

std::string Log::formatted(const LogLine& line) const {
  const std::string text = fmt::format("{} {}\n", to_string(line.level), server::log_text(line));
  if (!journal_) return fmt::format("{} {}", utc_text(wall_clock_us(), 3), text);
  // The journal takes the severity from such a prefix.
  constexpr int kSyslog[] = {7, 6, 4, 3};  // by level
  return fmt::format("<{}>{}", kSyslog[static_cast<std::size_t>(line.level)], text);
}

// Ends a line that was torn, and tells how many lines are missing where they are.
bool Log::catch_up() {
  if (torn_ && !append("\n")) return false;
  if (lost_ == 0) return true;
  const LogLine line = {LogLevel::kWarn,
                        "log_lines_lost",
                        {{"count", fmt::to_string(lost_)},
                         {"on_standard_error", fmt::to_string(on_stderr_)},
                         {"reason", std::strerror(reason_)}}};
  if (!append(formatted(line))) return false;
  lost_ = on_stderr_ = 0;
  return true;
}

// False, and the reason is kept, if the file does not take all of `text`.
bool Log::append(std::string_view text) {
  const std::size_t done = write_all(fd_.get(), text);
  if (done == text.size()) {
    torn_ = false;
    return true;
  }
  reason_ = errno;
  torn_ = torn_ || done > 0;
  return false;
}

}  // namespace syncd
