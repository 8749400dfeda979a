// syncd: configuration, log, signals, the service manager and exit codes around server::Server. One
// thread, beside those of the store, of the admin pages, of libuv's pool, and of RocksDB.
#include <fcntl.h>
#include <spdlog/common.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/edge/admin/admin_server.h"
#include "daemon/edge/admin/loop_monitor.h"
#include "daemon/edge/admin/metrics.h"
#include "daemon/edge/admin/notify.h"
#include "daemon/edge/config/config.h"
#include "daemon/edge/config/named_files.h"
#include "daemon/edge/config/settings.h"
#include "daemon/edge/log/log.h"
#include "daemon/edge/net/inherited_sockets.h"
#include "daemon/edge/net/loop_guard.h"
#include "daemon/edge/server/from_config.h"
#include "daemon/edge/server/log_text.h"
#include "daemon/edge/server/server.h"
#include "daemon/edge/store/store.h"
#include "proto/base/check.h"
#include "proto/transport/tls.h"

namespace {

using syncd::Log;
using syncd::LogLevel;
using syncd::LogLine;
using syncd::Micros;
using syncd::config::Config;

enum ExitCode { kClean = 0, kOther = 1, kBadConfig = 2, kBadStore = 3, kCannotListen = 4 };

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

// At least so often while a store is read, which extends the service manager's patience.
constexpr std::uint64_t kRecoveryTellNs = 1'000'000'000;
constexpr const char* kRecoveryTold =
    "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=recovering from the store";
// What a stop may take beyond timeouts.shutdown_timeout: the store's last writes, and its closing.
constexpr Micros kStopMarginUs = 20'000'000;
// How often the service manager is told how many workers there are.
constexpr std::uint64_t kStatusMs = 10'000;

Micros wall_clock_us() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<Micros>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000;
}

class Daemon {
 public:
  Daemon(Config config, const syncd::config::Flags& flags,
         std::vector<syncd::net::ListenSocket> inherited, Log& log)
      : config_(std::move(config)), flags_(flags), inherited_(std::move(inherited)), log_(log) {}

  int run();

 private:
  int serve();
  [[noreturn]] void abort_after(const char* failure);
  int start(std::unique_ptr<syncd::store::Store> store);
  void inherit_sockets();
  int open_admin_sockets(std::vector<syncd::net::ListenSocket>& sockets);
  bool make_security(const Config& config, syncd::admin::AdminSecurity& security,
                     std::string& error) const;
  std::shared_ptr<const syncd::admin::Snapshot> snapshot();
  void listen_for_signals();
  void on_signal(int number);
  void tell_recovering();
  void reload();
  bool try_reload(std::vector<std::string>& errors);
  bool shuts_clients_out(const Config& next, const syncd::tls::ServerFacts& facts,
                         std::string& error);
  void report_reload(const Config& before, const Config& wanted);
  void audit_reload(const char* result, const std::string& changed, const std::string& files);
  std::string changes_of(const Config& wanted,
                         const std::function<bool(std::string_view)>& is_of) const;
  void keep_manager_informed();
  void tell_status(const std::string& before = "");
  void stop(const std::string& reason);
  void close_handles();
  int fail(ExitCode code, const std::string& reason);
  void info(const char* event, std::vector<std::pair<std::string, std::string>> fields = {}) {
    log_.write({LogLevel::kInfo, event, std::move(fields)});
  }

  // In force.
  Config config_;
  syncd::config::FileHashes files_ = syncd::config::hash_named_files(config_);

  const syncd::config::Flags& flags_;
  std::vector<syncd::net::ListenSocket> inherited_;  // until the server has them
  Log& log_;
  syncd::admin::ServiceManager manager_;
  uv_loop_t loop_{};
  std::unique_ptr<syncd::admin::LoopMonitor> monitor_;
  std::unique_ptr<syncd::server::Server> server_;
  std::unique_ptr<syncd::admin::AdminServer> admin_;
  syncd::admin::ReloadFigures reloads_;
  uv_signal_t signals_[3]{};
  int signal_count_ = 0;
  uv_timer_t manager_timer_{};
  bool tells_manager_ = false;
  std::uint64_t told_recovering_ns_ = 0;
  bool stopping_ = false;
  int exit_code_ = kClean;
};

int Daemon::fail(ExitCode code, const std::string& reason) {
  log_.write(
      {LogLevel::kError, "failed", {{"reason", reason}, {"exit_code", std::to_string(code)}}});
  return code;
}

int Daemon::run() try { return serve(); } catch (const syncd::InternalError& failure) {
  abort_after(failure.what());
}

// A core file shows how it came to that, and the service manager starts another one.
void Daemon::abort_after(const char* failure) {
  log_.write({LogLevel::kError, "server_failed", {{"reason", failure}}});
  std::abort();
}

int Daemon::serve() {
  // One of a run that was killed would say that this one is ready.
  if (!flags_.ready_file.empty()) unlink(flags_.ready_file.c_str());
  info("starting", {{"version", SYNCD_VERSION}, {"pid", std::to_string(getpid())}});
  manager_.tell(kRecoveryTold);
  std::string error;
  if (flags_.store_salvage && !syncd::server::salvage_store(
                                  config_, [this](const LogLine& line) { log_.write(line); },
                                  [this] { tell_recovering(); }, error)) {
    return fail(kBadStore, error);
  }
  std::unique_ptr<syncd::store::Store> store = syncd::server::open_store(config_, error);
  if (!store) return fail(kBadStore, error);
  if (config_.store_in_memory()) {
    log_.write({LogLevel::kWarn,
                "store_in_memory",
                {{"hint", "the history ends with this process: name a directory to keep it"}}});
  }
  if (uv_loop_init(&loop_) != 0) return fail(kOther, "cannot make an event loop");
  monitor_ = std::make_unique<syncd::admin::LoopMonitor>(&loop_);
  exit_code_ = start(std::move(store));
  try {
    syncd::net::run_loop(&loop_);
  } catch (const std::exception& failure) {
    abort_after(failure.what());
  }
  SYNCD_CHECK(server_->is_over());
  admin_.reset();
  server_.reset();
  monitor_.reset();
  uv_loop_close(&loop_);
  if (!flags_.ready_file.empty()) unlink(flags_.ready_file.c_str());
  info("stopped", {{"exit_code", std::to_string(exit_code_)}});
  return exit_code_;
}

// That it goes on, for whoever waits for it to be ready.
void Daemon::tell_recovering() {
  const std::uint64_t now_ns = uv_hrtime();
  if (now_ns < told_recovering_ns_ + kRecoveryTellNs) return;
  told_recovering_ns_ = now_ns;
  manager_.tell(kRecoveryTold);
}

int Daemon::start(std::unique_ptr<syncd::store::Store> store) {
  auto options = syncd::server::server_options(config_, SYNCD_VERSION);
  options.on_recovering = [this] { tell_recovering(); };
  server_ =
      std::make_unique<syncd::server::Server>(&loop_, std::move(options), std::move(store),
                                              [this](const LogLine& line) { log_.write(line); });
  inherit_sockets();
  std::string error;
  // Before the store is read, which may take long: a port that is taken is known at once.
  std::vector<syncd::net::ListenSocket> admin_sockets;
  int code = open_admin_sockets(admin_sockets);
  if (code == kClean) {
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
  }
  reloads_.last_good_us = wall_clock_us();
  if (code == kClean && !admin_sockets.empty()) {
    syncd::admin::AdminSecurity security;
    if (make_security(config_, security, error)) {
      admin_ = syncd::admin::AdminServer::start(
          &loop_, std::move(admin_sockets), std::move(security), [this] { return snapshot(); }, {},
          error);
    }
    if (admin_ == nullptr) code = fail(kCannotListen, error);
  }
  if (code == kClean && !flags_.ready_file.empty() &&
      !write_ready_file(flags_.ready_file, server_->endpoints(), error)) {
    code = fail(kOther, error);
  }
  if (code != kClean) {
    stop("it could not start");
    return code;
  }
  listen_for_signals();
  info("ready");
  keep_manager_informed();
  return kClean;
}

void Daemon::inherit_sockets() {
  if (inherited_.empty()) return;
  const syncd::config::InheritedSockets& found = flags_.inherited;
  const char* in_place_of = !found.control   ? "listen.tcp and listen.unix"
                            : !found.workers ? "listen.control"
                                             : "listen.tcp, listen.unix and listen.control";
  info("sockets_inherited",
       {{"sockets", std::to_string(inherited_.size())}, {"in_place_of", in_place_of}});
  server_->inherit(std::move(inherited_));
}

// ---- the admin pages
// -------------------------------------------------------------------------------------------

// A port that nobody asked for and somebody else has is no reason not to serve workers.
int Daemon::open_admin_sockets(std::vector<syncd::net::ListenSocket>& sockets) {
  if (!config_.admin) return kClean;
  std::string error;
  if (!syncd::net::open_tcp_sockets(*config_.admin, sockets, error)) {
    sockets.clear();
    if (!config_.admin_is_default) return fail(kCannotListen, "listen.admin: " + error);
    log_.write(
        {LogLevel::kWarn,
         "no_admin_pages",
         {{"reason", error}, {"hint", "choose another port, or none: listen.admin (--admin)"}}});
    return kClean;
  }
  for (syncd::net::ListenSocket& socket : sockets) {
    socket.endpoint.replace(0, socket.endpoint.find(':'), config_.has_tls() ? "https" : "http");
    info("listening", {{"endpoint", socket.endpoint}, {"for", "admin"}});
  }
  if (!config_.admin->is_loopback() && !(config_.has_tls() && config_.has_auth())) {
    log_.write({LogLevel::kWarn,
                "admin_open_to_anybody",
                {{"hint",
                  "whoever reaches this machine may read what jobs run: listen.insecure is "
                  "set, and TLS or authentication (auth.token_file, tls.client_ca) is not"}}});
  }
  return kClean;
}

bool Daemon::make_security(const Config& config, syncd::admin::AdminSecurity& security,
                           std::string& error) const {
  if (config.has_tls()) {
    syncd::tls::ServerSettings settings = config.tls;
    settings.http = true;
    // Whoever asks for /healthz need not show one; for the other pages it is asked for below.
    security.wants_certificate = std::exchange(settings.require_client_certificate, false);
    security.handshakes_per_machine_per_s = config.network.handshakes_per_machine_per_s;
    security.tls = syncd::tls::Context::server(settings, error);
    if (security.tls == nullptr) return false;
  }
  // Every rule holds for the pages, too; without any, whoever comes may read them.
  security.admission = syncd::net::Admission::make(config.auth, error);
  return security.admission != nullptr;
}

std::shared_ptr<const syncd::admin::Snapshot> Daemon::snapshot() {
  auto made = std::make_shared<syncd::admin::Snapshot>();
  made->server = server_->view(syncd::admin::kJobsExportedMax);
  made->loop = monitor_->figures();
  made->reload = reloads_;
  return made;
}

// ---- the service manager
// ---------------------------------------------------------------------------------------

// The watchdog is fed from the loop, so that one that stands still is noticed.
void Daemon::keep_manager_informed() {
  if (!manager_.is_there()) return;
  tell_status("READY=1\n");
  tells_manager_ = true;
  uv_timer_init(&loop_, &manager_timer_);
  manager_timer_.data = this;
  const std::uint64_t watchdog_ms = manager_.watchdog_us() / 1000;
  const std::uint64_t every_ms =
      watchdog_ms == 0 ? kStatusMs : std::clamp<std::uint64_t>(watchdog_ms / 2, 1, kStatusMs);
  uv_timer_start(&manager_timer_, syncd::net::guarded([](uv_timer_t* timer) {
    auto* self = static_cast<Daemon*>(timer->data);
    self->tell_status(self->manager_.watchdog_us() != 0 ? "WATCHDOG=1\n" : "");
  }),
                 every_ms, every_ms);
}

void Daemon::tell_status(const std::string& before) {
  if (!manager_.is_there()) return;
  const syncd::server::ServerView view = server_->view(0);
  std::string status = stopping_ ? "stopping" : view.not_ready.empty() ? "serving" : view.not_ready;
  for (char& c : status) {
    if (c == '\n') c = ' ';
  }
  manager_.tell(before + "STATUS=" + status + ": " + std::to_string(view.engine.jobs) + " jobs, " +
                std::to_string(view.engine.workers) + " workers");
}

// ---- signals
// -----------------------------------------------------------------------------------------

void Daemon::listen_for_signals() {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    uv_signal_t& handle = signals_[signal_count_++];
    uv_signal_init(&loop_, &handle);
    handle.data = this;
    uv_signal_start(&handle, syncd::net::guarded([](uv_signal_t* signal, int which) {
      static_cast<Daemon*>(signal->data)->on_signal(which);
    }),
                    number);
  }
}

void Daemon::on_signal(int number) {
  if (number == SIGHUP) {
    reload();
    return;
  }
  const char* name = number == SIGTERM ? "SIGTERM" : "SIGINT";
  if (stopping_) {
    log_.write({LogLevel::kError,
                "stopped_at_once",
                {{"signal", name}, {"exit_code", std::to_string(kOther)}}});
    if (!flags_.ready_file.empty()) unlink(flags_.ready_file.c_str());
    _exit(kOther);
  }
  info("stopping", {{"signal", name}});
  stop(std::string("it got ") + name);
}

void Daemon::reload() {
#ifdef SYNCD_TEST_FAILING_CHECK
  SYNCD_CHECK(stopping_);  // the test's way to a check that fails
#endif
  if (stopping_) return;
  manager_.tell_reloading();
  // Whatever becomes of the configuration: it is a signal of those who rotate logs, too.
  if (std::string error; !log_.reopen(error)) {
    log_.write({LogLevel::kError,
                "log_not_reopened",
                {{"reason", error}, {"hint", "lines go into the file of before"}}});
  }
  std::vector<std::string> errors;
  reloads_.last_good = try_reload(errors);
  if (reloads_.last_good) {
    ++reloads_.good;
    reloads_.last_good_us = wall_clock_us();
  } else {
    ++reloads_.failed;
    std::string reason;
    for (const std::string& error : errors) reason += (reason.empty() ? "" : "; ") + error;
    log_.write({LogLevel::kError,
                "not_reloaded",
                {{"signal", "SIGHUP"},
                 {"reason", reason},
                 {"hint", "everything stays as it was, certificates, keys and tokens too"}}});
    audit_reload("refused", {}, {});
  }
  tell_status("READY=1\n");
}

// The settings of a kind that differ from those in force: "auth.admin, auth.allow".
std::string Daemon::changes_of(const Config& wanted,
                               const std::function<bool(std::string_view)>& is_of) const {
  std::string changed;
  for (const syncd::config::Setting& setting : syncd::config::settings()) {
    if (!is_of(setting.key) || setting.show(wanted) == setting.show(config_)) continue;
    changed += (changed.empty() ? "" : ", ") + std::string(setting.key);
  }
  return changed;
}

// Whether a certificate that is in force would give way to one that is not. Where those of before
// are no better, other settings are not to wait for new ones.
bool Daemon::shuts_clients_out(const Config& next, const syncd::tls::ServerFacts& facts,
                               std::string& error) {
  const syncd::tls::ServerFacts before = server_->view(0).certificates;
  const std::int64_t now_s = wall_clock_us() / 1'000'000;
  const auto worse = [&](const syncd::tls::Validity& was, const syncd::tls::Validity& is,
                         const std::string& what) {
    const std::string why = is.until_s == 0 ? "" : syncd::tls::why_not_in_force(is, now_s);
    const bool was_good = was.until_s == 0 || syncd::tls::why_not_in_force(was, now_s).empty();
    if (why.empty() || !was_good) return false;
    error = what + " " + why;
    return true;
  };
  return worse(before.certificate, facts.certificate, "certificate " + next.tls.certificate_file) ||
         worse(syncd::tls::best_of(before.authorities, now_s),
               syncd::tls::best_of(facts.authorities, now_s),
               "certificate authority " + next.tls.client_ca_file);
}

// All of it, or nothing: whatever can fail is made before anything is put into force.
bool Daemon::try_reload(std::vector<std::string>& errors) {
  syncd::config::Loaded loaded;
  if (!syncd::config::load(flags_, syncd::config::environment_of(environ), loaded, errors)) {
    return false;
  }
  for (const LogLine& line : syncd::config::warning_lines(loaded)) log_.write(line);
  // What cannot change while it runs keeps its value.
  Config next = config_;
  const Config& wanted = loaded.config;
  // Half of it could leave what stays open to whoever the other half was to keep out.
  const std::string rules =
      changes_of(wanted, [](std::string_view key) { return key.starts_with("auth."); });
  const std::string doors = changes_of(wanted, [&](std::string_view key) {
    return (key.starts_with("listen.") && key != "listen.auto_create" &&
            key != "listen.insecure") ||
           (key.starts_with("tls.") && wanted.has_tls() != config_.has_tls());
  });
  if (!rules.empty() && !doors.empty()) {
    errors.push_back(rules + " cannot be taken on without " + doors +
                     ", for which it must be restarted: restart it, or change one at a time");
    return false;
  }
  for (const syncd::config::Setting& setting : syncd::config::settings()) {
    // TLS cannot be switched on or off under a listener's clients.
    if (std::string_view(setting.key).starts_with("tls.") &&
        wanted.has_tls() != config_.has_tls()) {
      continue;
    }
    if (setting.reloadable) setting.copy(wanted, next);
  }
  // The new rules may only be good together with new addresses, which are not taken on.
  const bool pages_open = next.admin && !next.admin->is_loopback() && !next.has_auth();
  if (!next.insecure && (next.open_to_anybody() || pages_open)) {
    errors.emplace_back(
        "it listens beyond this machine until it is restarted, where without authentication "
        "([auth], tls.client_ca) anybody could use it: restart it instead");
    return false;
  }
  std::string error;
  syncd::admin::AdminSecurity security;
  if (!make_security(next, security, error) ||
      (security.tls != nullptr && shuts_clients_out(next, security.tls->facts(), error)) ||
      !server_->reconfigure(syncd::server::server_options(next, SYNCD_VERSION), error)) {
    errors.push_back(error);
    return false;
  }
  if (admin_ != nullptr) admin_->secure(std::move(security));
  const Config before = std::exchange(config_, std::move(next));
  log_.set_level(config_.log_level);
  report_reload(before, wanted);
  return true;
}

// A signal does not say whose it is: who may send one is root or the daemon's own user.
void Daemon::audit_reload(const char* result, const std::string& changed,
                          const std::string& files) {
  info("audit", {{"action", "reload"},
                 {"signal", "SIGHUP"},
                 {"changed", changed.empty() ? "no setting" : changed},
                 {"files", files.empty() ? "none" : files},
                 {"result", result}});
}

void Daemon::report_reload(const Config& before, const Config& wanted) {
  std::string changed;
  std::string waiting;
  const auto append = [](std::string& list, const std::string& item) {
    list += (list.empty() ? "" : ", ") + item;
  };
  for (const syncd::config::Setting& setting : syncd::config::settings()) {
    const std::string old = setting.show(before);
    if (const std::string now = setting.show(config_); now != old) {
      append(changed, std::string(setting.key) + ": " + old + " -> " + now);
    } else if (setting.show(wanted) != now) {
      append(waiting, setting.key);
    }
  }
  const auto jobs_of = [](const Config& config) {
    std::string text;
    for (const syncd::JobSpec& job : config.jobs) {
      for (const syncd::config::JobSetting& setting : syncd::config::job_settings()) {
        text += setting.show(job) + "\n";
      }
    }
    return text;
  };
  if (jobs_of(wanted) != jobs_of(config_)) append(waiting, "[[job]]");
  // Read a moment after they were put into force, for the log alone.
  const auto read = syncd::config::hash_named_files(config_);
  const std::string files = syncd::config::differing_files(files_, read);
  files_ = read;
  audit_reload("done", changed, files);
  info("reloaded", {{"signal", "SIGHUP"},
                    {"what", "configuration, certificates, keys and tokens"},
                    {"changed", changed.empty() ? "no setting" : changed},
                    {"files", files.empty() ? "none" : files},
                    {"needs_restart", waiting.empty() ? "nothing" : waiting}});
}

// ---- stopping
// ----------------------------------------------------------------------------------------

void Daemon::stop(const std::string& reason) {
  stopping_ = true;
  // The service manager's own patience may be shorter than the time that a user has set.
  manager_.tell("STOPPING=1\nEXTEND_TIMEOUT_USEC=" +
                std::to_string(config_.shutdown_timeout_us + kStopMarginUs) +
                "\nSTATUS=stopping: " + reason);
  server_->stop(reason, [this](const std::string& problem) {
    if (!problem.empty()) exit_code_ = fail(kBadStore, problem);
    close_handles();
  });
}

void Daemon::close_handles() {
  for (int i = 0; i < signal_count_; ++i) {
    uv_close(reinterpret_cast<uv_handle_t*>(&signals_[i]), nullptr);
  }
  if (tells_manager_) uv_close(reinterpret_cast<uv_handle_t*>(&manager_timer_), nullptr);
  monitor_->close();
  if (admin_ != nullptr) admin_->stop([] {});
}

// What whoever started the daemon listens on for it, for the configuration and for the server.
bool take_sockets(syncd::config::InheritedSockets& found,
                  std::vector<syncd::net::ListenSocket>& sockets, std::string& error) {
  std::vector<syncd::net::InheritedSocket> taken;
  if (!syncd::net::take_inherited_sockets(taken, error)) return false;
  for (syncd::net::InheritedSocket& one : taken) {
    std::optional<syncd::config::Addresses>& addresses =
        one.socket.is_control ? found.control : found.workers;
    if (!addresses) addresses.emplace();
    if (one.socket.is_tcp) {
      addresses->tcp.push_back(std::move(one.tcp));
    } else {
      addresses->unix_path = std::move(one.unix_path);
    }
    sockets.push_back(std::move(one.socket));
  }
  return true;
}

int run_daemon(const syncd::config::Loaded& loaded, const syncd::config::Flags& flags,
               std::vector<syncd::net::ListenSocket> inherited) {
  std::signal(SIGPIPE, SIG_IGN);
  // A limit on the size of files is then an error of a write, like a full disk, which the store
  // outlives.
  std::signal(SIGXFSZ, SIG_IGN);
  raise_descriptor_limit();
  const Config& config = loaded.config;
  std::unique_ptr<Log> log;
  try {
    log = std::make_unique<Log>(config.log_file, config.log_level);
  } catch (const spdlog::spdlog_ex& error) {
    std::fprintf(stderr, "syncd: log.file = \"%s\": %s\n", config.log_file.c_str(), error.what());
    return kBadConfig;
  }
  for (const LogLine& line : syncd::config::warning_lines(loaded)) log->write(line);
  return Daemon(config, flags, std::move(inherited), *log).run();
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
  std::vector<syncd::net::ListenSocket> inherited;
  if (!take_sockets(flags.inherited, inherited, text)) {
    std::fprintf(stderr, "syncd: %s\n", text.c_str());
    return kCannotListen;
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
    for (const std::string& warning : loaded.warnings) {
      std::fprintf(stderr, "syncd: warning: %s\n", warning.c_str());
    }
    // A daemon starts all the same, and says so in its log: it serves those on its Unix socket.
    if (!loaded.certificate_problem.empty()) {
      std::fprintf(stderr, "syncd: %s\n", loaded.certificate_problem.c_str());
      return kBadConfig;
    }
    std::fputs(loaded.effective.c_str(), stdout);
    return kClean;
  }
  return run_daemon(loaded, flags, std::move(inherited));
} catch (const syncd::InternalError& error) {
  std::fprintf(stderr, "syncd: %s\n", error.what());
  std::abort();
} catch (const std::exception& error) {
  std::fprintf(stderr, "syncd: %s\n", error.what());
  return kOther;
}
