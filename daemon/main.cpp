// syncd: configuration, log, signals, the service manager and exit codes around server::Server. One
// thread, beside those of the store, of the admin pages, of libuv's pool, and of RocksDB.
#include <unistd.h>
#include <uv.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "daemon/edge/admin/manager_reports.h"
#include "daemon/edge/admin/pages.h"
#include "daemon/edge/admin/reloader.h"
#include "daemon/edge/cluster/host.h"
#include "daemon/edge/config/config.h"
#include "daemon/edge/config/duration.h"
#include "daemon/edge/log/log.h"
#include "daemon/edge/net/loop_guard.h"
#include "daemon/edge/server/from_config.h"
#include "daemon/edge/server/keep_memory.h"
#include "daemon/edge/server/ready_file.h"
#include "daemon/edge/server/server.h"
#include "daemon/edge/server/signals.h"
#include "proto/base/check.h"

namespace {

using namespace syncd;

enum ExitCode { kClean = 0, kOther = 1, kBadConfig = 2, kBadStore = 3, kCannotListen = 4 };

int tell(const std::string& problem, ExitCode code) {
  std::fprintf(stderr, "syncd: %s\n", problem.c_str());
  return code;
}

class Daemon {
 public:
  Daemon(const config::Config& config, const config::Flags& flags,
         std::vector<net::ListenSocket> inherited, Log& log)
      : flags_(flags),
        inherited_(std::move(inherited)),
        log_(log),
        reloader_(config, flags, sink_,
                  [&log](const config::Config& now) { log.set_level(now.log_level); }) {}

  int run();

 private:
  std::unique_ptr<store::Store> lead(std::string& error);
  ExitCode start(std::string& error);
  void on_signal(int number);
  void on_idle();
  void stop(const std::string& reason);
  void write(LogLevel level, const char* event,
             std::vector<std::pair<std::string, std::string>> fields = {}) {
    log_.write({level, event, std::move(fields)});
  }
  // Leaves a core file; the service manager starts another one.
  [[noreturn]] void abort_after(const char* failure) {
    write(LogLevel::kError, "server_failed", {{"reason", failure}});
    std::abort();
  }
  int fail(ExitCode code, const std::string& reason) {
    write(LogLevel::kError, "failed", {{"reason", reason}, {"exit_code", std::to_string(code)}});
    return code;
  }

  const config::Flags& flags_;
  std::vector<net::ListenSocket> inherited_;  // until the server has them
  Log& log_;
  const server::Server::LogSink sink_ = [this](const LogLine& line) { log_.write(line); };
  admin::Reloader reloader_;
  const server::ReadyFile ready_file_{flags_.ready_file};
  uv_loop_t loop_{};
  std::unique_ptr<cluster::Host> host_;  // null: this daemon is no member of a cluster
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<admin::Pages> pages_;
  admin::ManagerReports manager_{[this] { return server_->view(0); }};
  server::Signals signals_{[this](int number) { on_signal(number); }};
  bool stopping_ = false;
  int exit_code_ = kClean;
};

int Daemon::run() try {
  write(LogLevel::kInfo, "starting",
        {{"version", SYNCD_VERSION}, {"pid", std::to_string(getpid())}});
  std::string error;
  const auto progress = [this] { manager_.recovering(); };
  auto store =
      reloader_.config().is_member()
          ? lead(error)
          : server::prepare_store(reloader_.config(), flags_.store_salvage, sink_, progress, error);
  if (!store && error.empty())
    return write(LogLevel::kInfo, "stopped", {{"exit_code", "0"}}), kClean;
  if (!store) return fail(kBadStore, error);
  if (uv_loop_init(&loop_) != 0) return fail(kOther, "cannot make an event loop");
  auto options = server::server_options(reloader_.config(), SYNCD_VERSION);
  options.on_recovering = progress;
  options.on_idle = [this] { on_idle(); };
  if (host_) options.before_sending = [this] { host_->check(); };
  server_ = std::make_unique<server::Server>(&loop_, std::move(options), std::move(store), sink_);
  pages_ = std::make_unique<admin::Pages>(&loop_, *server_, sink_);
  if (const ExitCode code = start(error); code != kClean) {
    exit_code_ = fail(code, error);
    stop("it could not start");
  }
  try {
    net::run_loop(&loop_);
  } catch (const std::exception& failure) {
    abort_after(failure.what());
  }
  SYNCD_CHECK(server_->is_over());
  pages_.reset();
  server_.reset();
  uv_loop_close(&loop_);
  if (host_) host_->leave();
  ready_file_.remove();
  write(LogLevel::kInfo, "stopped", {{"exit_code", std::to_string(exit_code_)}});
  return exit_code_;
} catch (const InternalError& failure) {
  abort_after(failure.what());
}

// Waits until this member leads its cluster.
std::unique_ptr<store::Store> Daemon::lead(std::string& error) {
  if (flags_.store_salvage) {
    error = "--store-salvage: a member's store is a copy: move it away, and syncd makes another";
    return nullptr;
  }
  if (!server::make_store_parents(reloader_.config(), error)) return nullptr;
  cluster::Host::Options options;
  options.version = SYNCD_VERSION;
  options.store = server::store_options(reloader_.config());
  options.log = sink_;
  options.on_waiting = [this](const std::string& status) { manager_.waiting(status); };
  options.on_hangup = [this] { log_.reopen(); };
  options.on_restart = [this] { ready_file_.remove(); };
  host_ = std::make_unique<cluster::Host>(reloader_.config(), std::move(options));
  return host_->lead(error);
}

ExitCode Daemon::start(std::string& error) {
  if (!inherited_.empty()) {
    log_.write(server::inherited_line(flags_.inherited, inherited_.size()));
    server_->inherit(std::move(inherited_));
  }
  // Before the store is read, which may take long: a port that is taken is known at once.
  if (!pages_->listen(reloader_.config(), error)) return kCannotListen;
  constexpr ExitCode kCodes[] = {kClean, kBadStore, kBadConfig, kCannotListen};  // of StartError
  const ExitCode code = kCodes[static_cast<std::size_t>(server_->start(error))];
  if (code != kClean) return code;
  if (host_) host_->watch(&loop_);
  if (!pages_->serve(reloader_.config(), error)) return kCannotListen;
  // Before anybody is told that it is ready: a signal that comes earlier ends the process.
  signals_.listen(&loop_, {SIGTERM, SIGINT, SIGHUP});
  if (host_) host_->raise_signals();
  if (!ready_file_.write(server_->endpoints(), error)) return kOther;
  write(LogLevel::kInfo, "ready");
  manager_.ready(&loop_);
  return kClean;
}

void Daemon::on_signal(int number) {
  if (number == SIGHUP) {
#ifdef SYNCD_TEST_FAILING_CHECK
    SYNCD_CHECK(stopping_);  // the test's way to a check that fails
#endif
    if (stopping_) return;
    manager_.reloading();
    log_.reopen();  // whatever becomes of the configuration: log rotation sends SIGHUP, too
    reloader_.reload(*server_, *pages_);
    manager_.reloaded();
    return;
  }
  const char* name = number == SIGTERM ? "SIGTERM" : "SIGINT";
  if (stopping_) {
    write(LogLevel::kError, "stopped_at_once",
          {{"signal", name}, {"exit_code", std::to_string(kOther)}});
    ready_file_.remove();
    _exit(kOther);
  }
  write(LogLevel::kInfo, "stopping", {{"signal", name}});
  stop(std::string("it got ") + name);
}

void Daemon::on_idle() {
  if (stopping_) return;
  const std::string idle = config::show_duration(reloader_.config().exit_when_idle_us);
  write(LogLevel::kInfo, "stopping", {{"idle", idle}});
  stop("it had no connection for " + idle);
}

void Daemon::stop(const std::string& reason) {
  stopping_ = true;
  if (host_) host_->stopping();
  manager_.stopping(reloader_.config().shutdown_timeout_us, reason);
  server_->stop(reason, [this](const std::string& problem) {
    if (!problem.empty()) exit_code_ = fail(kBadStore, problem);
    signals_.close();
    manager_.close();
    pages_->close();
    if (host_) host_->close();
  });
}

int check_config(const config::Loaded& loaded) {
  for (const std::string& warning : loaded.warnings) tell("warning: " + warning, kClean);
  // A daemon starts all the same, and says so in its log: it serves those on its Unix socket.
  if (!loaded.certificate_problem.empty()) return tell(loaded.certificate_problem, kBadConfig);
  return std::fputs(loaded.effective.c_str(), stdout), kClean;
}

}  // namespace

int main(int argc, char** argv) try {
  cluster::keep_command_line(argv, environ);
  server::keep_freed_memory();
  config::Flags flags;
  std::string text;
  const auto command = config::parse_command_line(argc, argv, SYNCD_VERSION, flags, text);
  if (command == config::Command::kUsage) return tell(text, kBadConfig);
  if (command == config::Command::kPrint) return std::fputs(text.c_str(), stdout), kClean;
  std::vector<net::ListenSocket> inherited;
  if (!server::take_sockets(flags.inherited, inherited, text)) return tell(text, kCannotListen);
  config::Loaded loaded;
  std::vector<std::string> errors;
  const bool good = config::load(flags, config::environment_of(environ), loaded, errors);
  if (!loaded.store_problem.empty()) errors.push_back(loaded.store_problem);
  for (const std::string& error : errors) tell(error, kBadConfig);
  if (!errors.empty()) return good ? kBadStore : kBadConfig;
  if (flags.check_config) return check_config(loaded);
  server::prepare_process();
  const auto log = Log::open(loaded.config.log_file, loaded.config.log_level, text);
  if (!log) return tell("log.file = \"" + loaded.config.log_file + "\": " + text, kBadConfig);
  for (const LogLine& line : config::warning_lines(loaded)) log->write(line);
  return Daemon(loaded.config, flags, std::move(inherited), *log).run();
} catch (const InternalError& error) {
  tell(error.what(), kOther);
  std::abort();
} catch (const std::exception& error) {
  return tell(error.what(), kOther);
}
