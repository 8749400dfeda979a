// A daemon's process from its start to its end: alone, or as a member of a cluster that follows
// until it leads. Store, server, admin pages, signals and the service manager on one loop. One
// thread, beside those of the store, of the admin pages, of a member of a cluster, of libuv's pool,
// and of RocksDB.
#pragma once

#include <uv.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/edge/admin/manager_reports.h"
#include "daemon/edge/admin/pages.h"
#include "daemon/edge/admin/reloader.h"
#include "daemon/edge/cluster/host.h"
#include "daemon/edge/config/config.h"
#include "daemon/edge/log/log.h"
#include "daemon/edge/server/ready_file.h"
#include "daemon/edge/server/server.h"
#include "daemon/edge/server/signals.h"
#include "proto/base/clock.h"

namespace syncd {

enum ExitCode { kClean = 0, kOther = 1, kBadConfig = 2, kBadStore = 3, kCannotListen = 4 };

class Daemon {
 public:
  Daemon(const config::Config& config, const config::Flags& flags,
         std::vector<net::ListenSocket> inherited, Log& log)
      : flags_(flags),
        inherited_(std::move(inherited)),
        log_(log),
        reloader_(config, flags, sink_, [this](const config::Config& now) {
          log_.set_level(now.log_level);
          if (host_) host_->reloaded(now);
        }) {}

  int run();

 private:
  ExitCode follow(std::string& error);
  void on_followed(std::unique_ptr<store::Store> store, std::string error);
  ExitCode serve_alone(std::string& error);
  ExitCode serve(std::unique_ptr<store::Store> store, std::string& error);
  server::ServerView view(std::size_t jobs_max, std::optional<cluster::MemberView>& member);
  std::string status();
  void on_signal(int number);
  void on_idle();
  void hand_over(const std::string& member);
  void stop(const std::string& reason);
  void stop_serving();
  void close();
  void write(LogLevel level, const char* event,
             std::vector<std::pair<std::string, std::string>> fields = {}) {
    log_.write({level, event, std::move(fields)});
  }
  // Leaves a core file; the service manager starts another one.
  [[noreturn]] void abort_after(const char* failure) {
    write(LogLevel::kError, "server_failed", {{"reason", failure}});
    std::abort();
  }
  void give_up(ExitCode code, const std::string& reason) {
    exit_code_ = fail(code, reason);
    stop("it could not start");
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
  std::unique_ptr<cluster::Host> host_;     // null: this daemon is no member of a cluster
  std::unique_ptr<server::Server> server_;  // null: it is a member that follows
  std::unique_ptr<admin::Pages> pages_;
  admin::ManagerReports manager_{[this] { return status(); }};
  server::Signals signals_{[this](int number) { on_signal(number); }};
  const Micros started_us_ = wall_clock_us();
  bool stopping_ = false;
  std::string stop_reason_;
  bool handing_over_ = false;
  int exit_code_ = kClean;
};

}  // namespace syncd
