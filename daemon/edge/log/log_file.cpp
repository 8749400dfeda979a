// See log_file.h.
#include "daemon/edge/log/log_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/details/os.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/edge/server/log_text.h"

namespace syncd {
namespace {

// How much of `text` went out; less than all of it: errno says why.
std::size_t written(int fd, std::string_view text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

// Whether a file ends within a line, as a disk that was full leaves it. False for what cannot be
// read, such as a pipe.
bool ends_within_line(const std::string& path, int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return false;
  const int reader = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (reader < 0) return false;
  char last = '\n';
  const bool read = pread(reader, &last, 1, info.st_size - 1) == 1;
  close(reader);
  return read && last != '\n';
}

std::string text_of(const LogLine& line) {
  return fmt::format("{} {}", to_string(line.level), server::log_text(line));
}

}  // namespace

LogFile::LogFile(std::string path) : path_(std::move(path)) {
  fd_ = opened(torn_);
}

LogFile::~LogFile() {
  close(fd_);
}

void LogFile::reopen() {
  bool torn = false;
  const int fresh = opened(torn);
  const std::lock_guard lock(mutex_);
  close(std::exchange(fd_, fresh));
  torn_ = torn;
}

int LogFile::opened(bool& torn) const {
  spdlog::details::os::create_dir(spdlog::details::os::dir_name(path_));
  const int fd = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) spdlog::throw_spdlog_ex(path_ + " cannot be opened for writing", errno);
  torn = ends_within_line(path_, fd);
  return fd;
}

void LogFile::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t buffer;
  formatter_->format(message, buffer);
  const std::string_view text(buffer.data(), buffer.size());
  if (!catch_up() || !append(text)) lose(text, message.level == spdlog::level::critical);
}

// Ends a line that was torn, and tells how many lines are missing where they are.
bool LogFile::catch_up() {
  if (torn_ && !append("\n")) return false;
  if (lost_ == 0) return true;
  const LogLine line = {LogLevel::kWarn,
                        "log_lines_lost",
                        {{"count", fmt::to_string(lost_)},
                         {"on_standard_error", fmt::to_string(on_stderr_)},
                         {"reason", std::strerror(reason_)}}};
  if (!append(formatted(spdlog::level::warn, text_of(line)))) return false;
  lost_ = on_stderr_ = 0;
  return true;
}

// False, and the reason is kept, if the file does not take all of `text`.
bool LogFile::append(std::string_view text) {
  const std::size_t done = written(fd_, text);
  if (done == text.size()) {
    torn_ = false;
    return true;
  }
  reason_ = errno;
  torn_ = torn_ || done > 0;
  return false;
}

// The first of several is told of on standard error, where nobody may look, but somebody might.
void LogFile::lose(std::string_view text, bool precious) {
  if (lost_++ == 0) {
    const LogLine line = {
        LogLevel::kError,
        "log_not_written",
        {{"file", path_},
         {"reason", std::strerror(reason_)},
         {"hint", "until syncd can write it, audit lines go to stderr and others are lost"}}};
    written(STDERR_FILENO, formatted(spdlog::level::err, text_of(line)));
  }
  if (precious && written(STDERR_FILENO, text) == text.size()) ++on_stderr_;
}

std::string LogFile::formatted(spdlog::level::level_enum level, const std::string& text) {
  spdlog::memory_buf_t buffer;
  formatter_->format(spdlog::details::log_msg(spdlog::string_view_t{}, level, text), buffer);
  return {buffer.data(), buffer.size()};
}

}  // namespace syncd
