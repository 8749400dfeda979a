// See daemon.h.
#include "daemon/daemon.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "daemon/edge/config/duration.h"
#include "daemon/edge/net/loop_guard.h"
#include "daemon/edge/server/from_config.h"
#include "proto/base/check.h"

namespace syncd {

int Daemon::run() try {
  write(LogLevel::kInfo, "starting",
        {{"version", SYNCD_VERSION}, {"pid", std::to_string(getpid())}});
  if (uv_loop_init(&loop_) != 0) return fail(kOther, "cannot make an event loop");
  pages_ = std::make_unique<admin::Pages>(
      &loop_, [this](std::size_t jobs_max, auto& member) { return view(jobs_max, member); }, sink_);
  std::string error;
  const ExitCode code = reloader_.config().is_member() ? follow(error) : serve_alone(error);
  if (code != kClean) give_up(code, error);
  try {
    net::run_loop(&loop_);
  } catch (const std::exception& failure) {
    abort_after(failure.what());
  }
  SYNCD_CHECK(server_ == nullptr || server_->is_over());
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

// As a member of a cluster, until it leads: what it shows of itself, and how it is stopped.
ExitCode Daemon::follow(std::string& error) {
  if (flags_.store_salvage) {
    error = "--store-salvage: a member's store is a copy: move it away, and syncd makes another";
    return kBadStore;
  }
  const config::Config& config = reloader_.config();
  if (!server::make_store_parents(config, error)) return kBadStore;
  // Where a member could not serve, it must not lead.
  if (!server::Server::can_listen(server::server_options(config, SYNCD_VERSION), error)) {
    return kCannotListen;
  }
  if (!pages_->listen(config, error) || !pages_->serve(config, error)) return kCannotListen;
  signals_.listen(&loop_, {SIGTERM, SIGINT, SIGHUP});
  cluster::Host::Options options;
  options.version = SYNCD_VERSION;
  options.store = server::store_options(config);
  options.log = sink_;
  options.on_restart = [this] { ready_file_.remove(); };
  options.on_hand_over = [this](const std::string& member) { hand_over(member); };
  host_ = std::make_unique<cluster::Host>(config, std::move(options));
  const auto on_end = [this](auto store, const std::string& why) {
    on_followed(std::move(store), why);
  };
  if (!host_->follow(&loop_, on_end, error)) return kBadStore;
  manager_.ready(&loop_);
  return kClean;
}

void Daemon::on_followed(std::unique_ptr<store::Store> store, std::string error) {
  if (stopping_) return close();
  const ExitCode code = store != nullptr            ? serve(std::move(store), error)
                        : host_->is_misconfigured() ? kBadConfig
                                                    : kBadStore;
  if (code != kClean) give_up(code, error);
}

ExitCode Daemon::serve_alone(std::string& error) {
  auto store = server::prepare_store(
      reloader_.config(), flags_.store_salvage, sink_, [this] { manager_.recovering(); }, error);
  if (store == nullptr) return kBadStore;
  if (!inherited_.empty()) {
    log_.write(server::inherited_line(flags_.inherited, inherited_.size()));
  }
  // Before the store is read, which may take long: a port that is taken is known at once.
  if (!pages_->listen(reloader_.config(), error)) return kCannotListen;
  return serve(std::move(store), error);
}

ExitCode Daemon::serve(std::unique_ptr<store::Store> store, std::string& error) {
  auto options = server::server_options(reloader_.config(), SYNCD_VERSION);
  options.on_recovering = [this] {
    manager_.recovering();
    if (host_) host_->recovering();
  };
  options.on_idle = [this] { on_idle(); };
  if (host_) {
    options.before_sending = [this] { host_->check(); };
    options.on_unreadable = [this](const std::string& why) { host_->cannot_read(why); };
    const config::Config::Cluster& cluster = reloader_.config().cluster;
    options.shard = cluster.shard;
    // It does not lead any more then, and another member may.
    options.network.silence_max_ms = static_cast<std::uint64_t>(cluster.lease_us / 1000);
    options.shards = host_->shards();
    options.whereabouts = [this](std::uint32_t shard) { return host_->whereabouts(shard); };
  }
  server_ = std::make_unique<server::Server>(&loop_, std::move(options), std::move(store), sink_);
  if (!inherited_.empty()) server_->inherit(std::move(inherited_));
  constexpr ExitCode kCodes[] = {kClean, kBadStore, kBadConfig, kCannotListen};  // of StartError
  const ExitCode code = kCodes[static_cast<std::size_t>(server_->start(error))];
  if (code != kClean) return code;
  if (host_) {
    if (!host_->watch(error)) return kOther;
  } else {
    if (!pages_->serve(reloader_.config(), error)) return kCannotListen;
    // Before anybody is told that it is ready: a signal that comes earlier ends the process.
    signals_.listen(&loop_, {SIGTERM, SIGINT, SIGHUP});
  }
  if (!ready_file_.write(server_->endpoints(), error)) return kOther;
  write(LogLevel::kInfo, "ready");
  manager_.ready(&loop_);
  return kClean;
}

server::ServerView Daemon::view(std::size_t jobs_max, std::optional<cluster::MemberView>& member) {
  if (host_) member = host_->view();
  if (server_) return server_->view(jobs_max);
  server::ServerView view;
  view.version = SYNCD_VERSION;
  view.started_us = started_us_;
  view.now_us = wall_clock_us();
  view.wall_clock_s = view.now_us / 1'000'000;
  view.store = reloader_.config().store_path;
  view.mode = "durable";
  view.not_ready = stopping_ ? "it is stopping" : member ? member->problem : "it is starting";
  return view;
}

std::string Daemon::status() {
  std::optional<cluster::MemberView> member;
  const server::ServerView now = view(0, member);
  if (stopping_) return "stopping";
  if (server_ == nullptr && now.not_ready.empty()) {
    return "following " + (member->leader.empty() ? "nobody" : member->leader) + " in cluster '" +
           member->cluster + "'";
  }
  return fmt::format("{}: {} jobs, {} workers", now.not_ready.empty() ? "serving" : now.not_ready,
                     now.engine.jobs, now.engine.workers);
}

void Daemon::on_signal(int number) {
  if (number == SIGHUP) {
#ifdef SYNCD_TEST_FAILING_CHECK
    SYNCD_CHECK(stopping_);  // the test's way to a check that fails
#endif
    if (stopping_ || handing_over_) return;
    manager_.reloading();
    log_.reopen();  // whatever becomes of the configuration: log rotation sends SIGHUP, too
    if (server_ != nullptr) reloader_.reload(*server_, *pages_);
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

// To another member. Then the program starts anew, and follows.
void Daemon::hand_over(const std::string& member) {
  if (stopping_) return stop_serving();
  handing_over_ = true;
  server_->stop(fmt::format("member '{}' takes over", member), [this](const std::string& problem) {
    if (!problem.empty()) write(LogLevel::kWarn, "hands_over_late", {{"reason", problem}});
    if (!stopping_) host_->follow_again();
    close();
  });
}

void Daemon::stop(const std::string& reason) {
  stopping_ = true;
  stop_reason_ = reason;
  // A leader serves until its successor is known; hand_over() then stops it.
  const bool leads = host_ && host_->is_watching() && !handing_over_;
  if (server_ != nullptr && !leads && !handing_over_) return stop_serving();
  manager_.stopping(reloader_.config().shutdown_timeout_us, reason);
  if (leads) return host_->give_away(exit_code_);
  if (host_) host_->stop(exit_code_);
  if (handing_over_) return;  // which ends the process now
  if (host_ == nullptr || !host_->is_following()) close();
}

void Daemon::stop_serving() {
  if (host_) host_->stop(exit_code_);
  manager_.stopping(reloader_.config().shutdown_timeout_us, stop_reason_);
  server_->stop(stop_reason_, [this](const std::string& problem) {
    if (!problem.empty()) exit_code_ = fail(kBadStore, problem);
    close();
  });
}

void Daemon::close() {
  signals_.close();
  manager_.close();
  pages_->close();
  if (host_) host_->close();
}

}  // namespace syncd
