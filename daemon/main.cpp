// syncd: configuration, log, signals and exit codes around server::Server. One thread, beside those
// of the store, of libuv's pool, and of RocksDB.
#include <fcntl.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "daemon/config/config.h"
#include "daemon/server/from_config.h"
#include "daemon/server/log_text.h"
#include "daemon/server/server.h"
#include "daemon/store/store.h"

namespace {

using syncd::LogLevel;
using syncd::LogLine;
using syncd::config::Config;

enum ExitCode { kClean = 0, kOther = 1, kBadConfig = 2, kBadStore = 3, kCannotListen = 4 };

// ---- log
// ------------------------------------------------------------------------------------------

// True if standard error is the journal, which stamps lines itself.
bool logs_to_journal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat own {};
  if (stream == nullptr || fstat(STDERR_FILENO, &own) != 0) return false;
  return std::to_string(own.st_dev) + ":" + std::to_string(own.st_ino) == stream;
}

class Log {
 public:
  // Throws spdlog::spdlog_ex if the file cannot be opened.
  explicit Log(const Config& config) : journal_(config.log_file.empty() && logs_to_journal()) {
    std::shared_ptr<spdlog::sinks::sink> sink;
    if (config.log_file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(config.log_file);
    }
    logger_ = std::make_unique<spdlog::logger>("syncd", std::move(sink));
    logger_->set_level(spdlog_level(config.log_level));
    logger_->flush_on(spdlog::level::trace);  // lines are few, and the last ones matter most
    logger_->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        journal_ ? "%v" : "%Y-%m-%dT%H:%M:%S.%eZ %v", spdlog::pattern_time_type::utc));
  }

  void write(const LogLine& line) {
    if (!logger_->should_log(spdlog_level(line.level))) return;
    std::string text = to_string(line.level);
    text += ' ';
    text += syncd::server::log_text(line);
    // The journal takes the severity from such a prefix.
    if (journal_) text = "<" + std::to_string(syslog_severity(line.level)) + ">" + text;
    logger_->log(spdlog_level(line.level), spdlog::string_view_t(text));
  }

 private:
  static spdlog::level::level_enum spdlog_level(LogLevel level) {
    switch (level) {
      case LogLevel::kDebug:
        return spdlog::level::debug;
      case LogLevel::kInfo:
        return spdlog::level::info;
      case LogLevel::kWarn:
        return spdlog::level::warn;
      case LogLevel::kError:
        return spdlog::level::err;
    }
    return spdlog::level::err;
  }
  static int syslog_severity(LogLevel level) {
    switch (level) {
      case LogLevel::kDebug:
        return 7;
      case LogLevel::kInfo:
        return 6;
      case LogLevel::kWarn:
        return 4;
      case LogLevel::kError:
        return 3;
    }
    return 3;
  }
  bool journal_;
  std::unique_ptr<spdlog::logger> logger_;
};

// ---- preparing
// ------------------------------------------------------------------------------------

// One descriptor per connection: take what the system allows.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Whoever waits for the file sees it whole or not at all.
bool write_ready_file(const std::string& path, const std::vector<std::string>& endpoints,
                      std::string& error) {
  const std::string temporary = path + ".new";
  std::FILE* file = std::fopen(temporary.c_str(), "we");
  bool good = file != nullptr;
  if (good) {
    for (const std::string& endpoint : endpoints) {
      good = std::fprintf(file, "%s\n", endpoint.c_str()) > 0 && good;
    }
    good = std::fclose(file) == 0 && good;
  }
  if (good && std::rename(temporary.c_str(), path.c_str()) == 0) return true;
  error = "cannot write the ready file " + path + ": " + std::strerror(errno);
  return false;
}

// ---- running
// --------------------------------------------------------------------------------------

class Daemon {
 public:
  Daemon(const Config& config, std::string ready_file, Log& log)
      : config_(config), ready_file_(std::move(ready_file)), log_(log) {}

  int run();

 private:
  int start(std::unique_ptr<syncd::store::Store> store);
  void listen_for_signals();
  void on_signal(int number);
  void stop(const std::string& reason);
  int fail(ExitCode code, const std::string& reason);
  void info(const char* event, std::vector<std::pair<std::string, std::string>> fields = {}) {
    log_.write({LogLevel::kInfo, event, std::move(fields)});
  }

  const Config& config_;
  const std::string ready_file_;
  Log& log_;
  uv_loop_t loop_{};
  std::unique_ptr<syncd::server::Server> server_;
  uv_signal_t signals_[3]{};
  int signal_count_ = 0;
  bool stopping_ = false;
  int exit_code_ = kClean;
};

int Daemon::fail(ExitCode code, const std::string& reason) {
  log_.write(
      {LogLevel::kError, "failed", {{"reason", reason}, {"exit_code", std::to_string(code)}}});
  return code;
}

int Daemon::run() {
  // One of a run that was killed would say that this one is ready.
  if (!ready_file_.empty()) unlink(ready_file_.c_str());
  info("starting", {{"version", SYNCD_VERSION}, {"pid", std::to_string(getpid())}});
  std::string error;
  std::unique_ptr<syncd::store::Store> store = syncd::server::open_store(config_, error);
  if (!store) return fail(kBadStore, error);
  if (config_.store_in_memory()) {
    log_.write({LogLevel::kWarn,
                "store_in_memory",
                {{"hint", "the history ends with this process: name a directory to keep it"}}});
  }
  if (uv_loop_init(&loop_) != 0) return fail(kOther, "cannot make an event loop");
  exit_code_ = start(std::move(store));
  uv_run(&loop_, UV_RUN_DEFAULT);
  server_.reset();
  uv_loop_close(&loop_);
  if (!ready_file_.empty()) unlink(ready_file_.c_str());
  info("stopped", {{"exit_code", std::to_string(exit_code_)}});
  return exit_code_;
}

int Daemon::start(std::unique_ptr<syncd::store::Store> store) {
  server_ = std::make_unique<syncd::server::Server>(
      &loop_, syncd::server::server_options(config_, SYNCD_VERSION), std::move(store),
      [this](const LogLine& line) { log_.write(line); });
  std::string error;
  int code = kClean;
  switch (server_->start(error)) {
    case syncd::server::StartError::kNone:
      break;
    case syncd::server::StartError::kStore:
      code = fail(kBadStore, error);
      break;
    case syncd::server::StartError::kJob:
      code = fail(kBadConfig, error);
      break;
    case syncd::server::StartError::kListen:
      code = fail(kCannotListen, error);
      break;
  }
  if (code == kClean && !ready_file_.empty() &&
      !write_ready_file(ready_file_, server_->endpoints(), error)) {
    code = fail(kOther, error);
  }
  if (code != kClean) {
    stop("it could not start");
    return code;
  }
  listen_for_signals();
  info("ready");
  return kClean;
}

void Daemon::listen_for_signals() {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    uv_signal_t& handle = signals_[signal_count_++];
    uv_signal_init(&loop_, &handle);
    handle.data = this;
    uv_signal_start(
        &handle,
        [](uv_signal_t* signal, int which) {
          static_cast<Daemon*>(signal->data)->on_signal(which);
        },
        number);
  }
}

void Daemon::on_signal(int number) {
  if (number == SIGHUP) {
    log_.write({LogLevel::kWarn,
                "not_reloaded",
                {{"signal", "SIGHUP"},
                 {"hint", "this version changes no setting while it runs: restart it"}}});
    return;
  }
  const char* name = number == SIGTERM ? "SIGTERM" : "SIGINT";
  if (stopping_) {
    log_.write({LogLevel::kError,
                "stopped_at_once",
                {{"signal", name}, {"exit_code", std::to_string(kOther)}}});
    if (!ready_file_.empty()) unlink(ready_file_.c_str());
    _exit(kOther);
  }
  info("stopping", {{"signal", name}});
  stop(std::string("it got ") + name);
}

void Daemon::stop(const std::string& reason) {
  stopping_ = true;
  server_->stop(reason, [this](const std::string& problem) {
    for (int i = 0; i < signal_count_; ++i) {
      uv_close(reinterpret_cast<uv_handle_t*>(&signals_[i]), nullptr);
    }
    if (!problem.empty()) exit_code_ = fail(kBadStore, problem);
  });
}

int run_daemon(const Config& config, const std::string& ready_file) {
  std::signal(SIGPIPE, SIG_IGN);
  // A limit on the size of files is then an error of a write, like a full disk, which the store
  // outlives.
  std::signal(SIGXFSZ, SIG_IGN);
  raise_descriptor_limit();
  std::unique_ptr<Log> log;
  try {
    log = std::make_unique<Log>(config);
  } catch (const spdlog::spdlog_ex& error) {
    std::fprintf(stderr, "syncd: log.file = \"%s\": %s\n", config.log_file.c_str(), error.what());
    return kBadConfig;
  }
  return Daemon(config, ready_file, *log).run();
}

}  // namespace

int main(int argc, char** argv) try {
  syncd::config::Flags flags;
  std::string text;
  switch (syncd::config::parse_command_line(argc, argv, SYNCD_VERSION, flags, text)) {
    case syncd::config::Command::kPrint:
      std::fputs(text.c_str(), stdout);
      return kClean;
    case syncd::config::Command::kUsage:
      std::fprintf(stderr, "syncd: %s\n", text.c_str());
      return kBadConfig;
    case syncd::config::Command::kRun:
      break;
  }
  syncd::config::Loaded loaded;
  std::vector<std::string> errors;
  const bool good =
      syncd::config::load(flags, syncd::config::environment_of(environ), loaded, errors);
  if (!loaded.store_problem.empty()) errors.push_back(loaded.store_problem);
  for (const std::string& error : errors) std::fprintf(stderr, "syncd: %s\n", error.c_str());
  if (!good) return kBadConfig;
  if (!loaded.store_problem.empty()) return kBadStore;
  if (flags.check_config) {
    std::fputs(loaded.effective.c_str(), stdout);
    return kClean;
  }
  return run_daemon(loaded.config, flags.ready_file);
} catch (const std::exception& error) {
  std::fprintf(stderr, "syncd: %s\n", error.what());
  return kOther;
}
