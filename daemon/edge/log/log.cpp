#include "daemon/edge/log/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "daemon/edge/log/log_file.h"
#include "daemon/edge/server/log_text.h"

namespace syncd {
namespace {

// True if standard error is the journal, which stamps lines itself.
bool logs_to_journal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat own {};
  if (stream == nullptr || fstat(STDERR_FILENO, &own) != 0) return false;
  return fmt::format("{}:{}", own.st_dev, own.st_ino) == stream;
}

struct LevelNames {
  spdlog::level::level_enum spdlog;
  int syslog;
};
LevelNames names_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return {spdlog::level::debug, 7};
    case LogLevel::kInfo:
      return {spdlog::level::info, 6};
    case LogLevel::kWarn:
      return {spdlog::level::warn, 4};
    case LogLevel::kError:
      break;
  }
  return {spdlog::level::err, 3};
}

}  // namespace

Log::Log(const std::string& file, LogLevel level) : journal_(file.empty() && logs_to_journal()) {
  spdlog::sink_ptr sink;
  if (file.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    sink = file_ = std::make_shared<LogFile>(file);
  }
  logger_ = std::make_unique<spdlog::logger>("syncd", std::move(sink));
  set_level(level);
  logger_->flush_on(spdlog::level::trace);  // lines are few, and the last ones matter most
  logger_->set_formatter(std::make_unique<spdlog::pattern_formatter>(
      journal_ ? "%v" : "%Y-%m-%dT%H:%M:%S.%eZ %v", spdlog::pattern_time_type::utc));
}

std::unique_ptr<Log> Log::open(const std::string& file, LogLevel level, std::string& error) try {
  return std::make_unique<Log>(file, level);
} catch (const spdlog::spdlog_ex& problem) {
  error = problem.what();
  return nullptr;
}

Log::~Log() = default;

void Log::set_level(LogLevel level) {
  logger_->set_level(names_of(level).spdlog);
}

bool Log::reopen() try {
  if (file_) file_->reopen();
  return true;
} catch (const spdlog::spdlog_ex& problem) {
  write({LogLevel::kError,
         "log_not_reopened",
         {{"reason", problem.what()}, {"hint", "lines still go to the previous file"}}});
  return false;
}

void Log::write(const LogLine& line) {
  // Audit lines stay information, which a higher level would otherwise hold back. No other line is
  // critical, which LogFile does not lose.
  const LevelNames names = names_of(line.level);
  const auto level = server::is_audit(line) ? spdlog::level::critical : names.spdlog;
  if (!logger_->should_log(level)) return;
  std::string text = fmt::format("{} {}", to_string(line.level), server::log_text(line));
  // The journal takes the severity from such a prefix.
  if (journal_) text = fmt::format("<{}>{}", names.syslog, text);
  logger_->log(level, spdlog::string_view_t(text));
}

}  // namespace syncd
