// The daemon as an object; see the header. Loop thread.
#include "daemon/edge/server/server.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "daemon/edge/net/loop_guard.h"
#include "daemon/edge/server/certificate_lines.h"
#include "proto/base/check.h"
#include "proto/base/clock.h"
#include "proto/base/shard.h"

namespace syncd::server {
namespace {

// Descriptors kept for the store's files, the listeners, the log and the loop itself.
constexpr std::size_t kReservedDescriptors = 512;
// Of the shutdown timeout, the part that is kept for closing the store.
constexpr Micros kStoreShare = 4;

net::NetworkOptions network_options(const ServerOptions& options) {
  net::NetworkOptions network = options.network;
  network.server_version = options.version;
  network.shard = options.shard;
  network.shards = options.shards;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    const auto descriptors = static_cast<std::size_t>(limit.rlim_cur);
    const std::size_t room = descriptors > 2 * kReservedDescriptors
                                 ? descriptors - kReservedDescriptors
                                 : std::max<std::size_t>(1, descriptors / 2);
    network.connections_max = std::min(network.connections_max, room);
  }
  return network;
}

// A client that finds no daemon tries again every two seconds at most, at each of its addresses.
constexpr Micros kGraceAfterTakeOver = 10'000'000;

EngineOptions engine_options(const ServerOptions& options, bool is_shared) {
  EngineOptions engine = options.engine;
  engine.first_job = options.shards + options.shard;
  engine.job_step = options.shards;
  if (is_shared) engine.restart_grace_us = kGraceAfterTakeOver;
  engine.keeps_log = is_shared;
  return engine;
}

// Until somebody serves a shard that nobody serves.
constexpr std::uint32_t kLeaderlessRetryMs = 250;

std::uint64_t to_ms(Micros us) {
  return static_cast<std::uint64_t>(std::max<Micros>(0, us) + 999) / 1000;
}

// Appends those for workers, or those for control: the inherited ones, or else those of the
// options.
bool open_sockets(const ServerOptions& options, std::vector<net::ListenSocket>& inherited,
                  bool control, std::vector<net::ListenSocket>& sockets, std::string& error) {
  const std::size_t before = sockets.size();
  for (net::ListenSocket& socket : inherited) {
    if (socket.is_control == control) sockets.push_back(std::move(socket));
  }
  if (sockets.size() > before) return true;
  const std::string& path = control ? options.control_unix_path : options.unix_path;
  if (!path.empty()) {
    net::ListenSocket socket;
    if (!net::open_unix_socket(path, options.unix_mode, socket, error)) {
      error = (control ? "listen.control: " : "listen.unix: ") + error;
      return false;
    }
    sockets.push_back(std::move(socket));
  }
  for (const net::TcpAddress& address : control ? options.control_tcp : options.tcp) {
    if (!net::open_tcp_sockets(address, sockets, error)) {
      error = (control ? "listen.control: " : "listen.tcp: ") + error;
      return false;
    }
  }
  for (std::size_t i = before; i < sockets.size(); ++i) sockets[i].is_control = control;
  return true;
}

void remove_unix_sockets(const std::vector<net::ListenSocket>& sockets) {
  for (const net::ListenSocket& socket : sockets) net::remove_unix_socket(socket);
}

// Certificate and key, if there are any, and the rules with their tokens.
bool read_secrets(const tls::ServerSettings& tls, const net::AdmissionRules& rules,
                  std::shared_ptr<tls::Context>& context,
                  std::unique_ptr<net::Admission>& admission, std::string& error) {
  if (!tls.certificate_file.empty()) {
    context = tls::Context::server(tls, error);
    if (context == nullptr) return false;
  }
  admission = net::Admission::make(rules, error);
  return admission != nullptr;
}

}  // namespace

Server::Server(uv_loop_t* loop, ServerOptions options, std::unique_ptr<store::Store> store,
               LogSink log)
    : loop_(loop),
      options_(std::move(options)),
      store_(std::move(store)),
      log_(std::move(log)),
      core_(engine_options(options_, store_->is_shared()), *store_, *this),
      access_(options_, core_.engine(), network_),
      network_(loop, network_options(options_), *this),
      audits_(network_, log_),
      quota_(core_.engine()),
      background_(loop),
      histories_(background_, *store_) {}

Server::~Server() = default;

// ---- starting
// -------------------------------------------------------------------------------------

StartError Server::start(std::string& error) {
  is_over_ = false;
  started_us_ = wall_clock_us();
  if (!recover(error)) return StartError::kStore;

  const int code = uv_async_init(loop_, &committed_, net::guarded([](uv_async_t* handle) {
                                   // What a commit sets free is sent with this turn's end.
                                   static_cast<Server*>(handle->data)->core_.settle();
                                 }));
  if (code != 0) {
    error = std::string("cannot use the event loop: ") + uv_strerror(code);
    return StartError::kListen;
  }
  uv_timer_init(loop_, &timer_);
  uv_timer_init(loop_, &drain_timer_);
  uv_timer_init(loop_, &idle_timer_);
  committed_.data = timer_.data = drain_timer_.data = idle_timer_.data = this;
  own_handles_ = 4;

  store_started_ = true;
  store_->start(
      [this, loop_thread = std::this_thread::get_id()](const store::CommitReport& report) {
        core_.report(report);
        // A store that commits within submit() needs no waking: settle() follows in the same turn.
        if (std::this_thread::get_id() != loop_thread) uv_async_send(&committed_);
      });
  for (const JobSpec& spec : options_.jobs) {
    if (std::string ignored; is_elsewhere(spec.name, ignored)) continue;
    if (!core_.declare_job(spec, error)) return StartError::kJob;
  }

  const std::size_t connections_max = network_options(options_).connections_max;
  if (connections_max < options_.network.connections_max) {
    log(LogLevel::kWarn, "connections_limited",
        {{"connections_max", std::to_string(connections_max)},
         {"wanted", std::to_string(options_.network.connections_max)},
         {"hint", "raise the limit of open files (LimitNOFILE=, ulimit -n)"}});
  }
  network_opened_ = true;
  network_.open();
  if (!listen(error)) return StartError::kListen;
  on_turn_end();
  return StartError::kNone;
}

bool Server::recover(std::string& error) {
  const std::uint64_t begun_ns = uv_hrtime();
  const auto go_on_from = [this](Micros latest) {
    started_ns_ = uv_hrtime();
    epoch_us_ = wall_clock_us();
    if (epoch_us_ >= latest) return;
    log(LogLevel::kWarn, "clock_behind_history",
        {{"behind", format_duration(latest - epoch_us_)},
         {"hint", "the machine's clock was set back; times go on from the latest one stored"}});
    epoch_us_ = latest;
  };
  Core::Recovered recovered;
  if (const auto cut = store_->cut_tail()) {
    log(LogLevel::kWarn, "store_tail_cut",
        {{"store", store_->describe()},
         {"file", cut->file},
         {"at_byte", std::to_string(cut->at)},
         {"bytes", std::to_string(cut->bytes)},
         {"of", cut->what.empty() ? "nothing that can be read" : cut->what},
         {"hint", core_.mode_text() == std::string_view("durable")
                      ? "a commit that a crash has cut off: it was never acknowledged, unless the "
                        "disk has damaged it since"
                      : "what a crash has cut off"}});
  }
  if (!core_.recover(go_on_from, recovered, error, options_.on_recovering,
                     options_.on_unreadable)) {
    return false;
  }
  for (const std::string& why : recovered.unreadable) {
    log(LogLevel::kError, "job_unreadable",
        {{"store", store_->describe()},
         {"reason", why},
         {"hint",
          "its workers are answered STORE until a member leads that can read it; the other jobs "
          "are served"}});
  }
  log(LogLevel::kInfo, "recovered",
      {{"store", store_->describe()},
       {"mode", core_.mode_text()},
       {"jobs", std::to_string(recovered.jobs)},
       {"records", std::to_string(recovered.records)},
       {"ms", std::to_string((uv_hrtime() - begun_ns) / 1'000'000)}});
  return true;
}

bool Server::can_listen(const ServerOptions& options, std::string& error) {
  std::shared_ptr<tls::Context> context;
  std::unique_ptr<net::Admission> admission;
  std::vector<net::ListenSocket> none;
  std::vector<net::ListenSocket> closed_at_once;
  const bool can = read_secrets(options.tls, options.admission, context, admission, error) &&
                   open_sockets(options, none, false, closed_at_once, error) &&
                   open_sockets(options, none, true, closed_at_once, error);
  remove_unix_sockets(closed_at_once);
  return can;
}

bool Server::listen(std::string& error) {
  if (!secure(options_.tls, options_.admission, error)) return false;
  if (options_.open_to_anybody) {
    log(LogLevel::kWarn, "open_to_anybody",
        {{"hint",
          "whoever reaches this machine may join, push and stop jobs: listen.insecure is set, and "
          "TLS or authentication is not"}});
  }
  std::vector<net::ListenSocket> sockets;
  if (!open_sockets(options_, inherited_, false, sockets, error) ||
      !open_sockets(options_, inherited_, true, sockets, error)) {
    remove_unix_sockets(sockets);
    return false;
  }
  for (net::ListenSocket& socket : sockets) {
    if (socket.is_tcp && !options_.tls.certificate_file.empty()) {
      socket.endpoint.replace(0, socket.endpoint.find(':'), "tls");
    }
    if (!network_.listen(std::move(socket), error)) return false;
  }
  for (const std::string& endpoint : network_.endpoints()) {
    log(LogLevel::kInfo, "listening", {{"endpoint", endpoint}});
  }
  for (const std::string& endpoint : network_.endpoints(true)) {
    log(LogLevel::kInfo, "listening", {{"endpoint", endpoint}, {"for", "control"}});
  }
  listening_ = true;
  return true;
}

// ---- the engine
// -------------------------------------------------------------------------------------

Micros Server::now() const {
  return at(uv_hrtime());
}

void Server::send(ConnectionId connection, RequestId id, wire::Body&& body) {
  const bool is_usual = audits_.empty() && !std::holds_alternative<wire::Error>(body) &&
                        !std::holds_alternative<wire::Joined>(body);
  if (!is_usual) [[unlikely]]
    look_at(connection, id, body);
  network_.send(connection, id, body);
}

// At an answer that ends an audit, that names a reason, or with which a worker is in its job.
void Server::look_at(ConnectionId connection, RequestId id, wire::Body& body) {
  if (!audits_.empty()) audits_.end({connection, id}, body);
  if (auto* error = std::get_if<wire::Error>(&body)) add_store_reason(connection, *error);
  if (const auto* joined = std::get_if<wire::Joined>(&body);
      joined != nullptr && joined->heartbeat_timeout_ms != 0) {
    network_.lower_idle_timeout(connection, joined->heartbeat_timeout_ms);
  }
}

void Server::add_store_reason(ConnectionId connection, wire::Error& error) const {
  if (error.status != Status::kStore || !access_.may_see_paths(connection)) return;
  const std::string reason = core_.store_reason();
  if (!reason.empty()) error.message += " (" + reason + ")";
}

bool Server::reconfigure(const ServerOptions& options, std::string& error) {
  if (!secure(options.tls, options.admission, error)) return false;
  options_.tls = options.tls;
  options_.admission = options.admission;
  options_.engine = options.engine;
  options_.network = options.network;
  options_.jobs_per_identity_max = options.jobs_per_identity_max;
  options_.shutdown_timeout_us = options.shutdown_timeout_us;
  core_.set_options(engine_options(options_, store_->is_shared()));
  network_.set_limits(network_options(options_));
  return true;
}

bool Server::secure(const tls::ServerSettings& tls, const net::AdmissionRules& rules,
                    std::string& error) {
  std::shared_ptr<tls::Context> context;
  std::unique_ptr<net::Admission> admission;
  if (!read_secrets(tls, rules, context, admission, error)) return false;
  network_.set_admission(admission.get());
  access_.set_admission(std::move(admission));
  if (context != nullptr) {
    for (const LogLine& line :
         certificate_lines(tls, context->facts(), wall_clock_us() / 1'000'000)) {
      log_(line);
    }
  }
  network_.set_tls(std::move(context));
  return true;
}

wire::Redirect Server::whereabouts(std::uint32_t shard) {
  wire::Redirect redirect{shard, {}, kLeaderlessRetryMs};
  if (options_.whereabouts) redirect.addresses = options_.whereabouts(shard);
  return redirect;
}

// Whether the job is of another shard; only a client too old to know of shards asks for it here.
bool Server::is_elsewhere(const std::string& job, std::string& why) const {
  const std::uint32_t shard = shard_of(job, options_.shards);
  if (job.empty() || shard == options_.shard) return false;
  why = fmt::format(
      "job '{}' is of shard {} of this cluster, and this daemon serves shard {}: the client must "
      "be of version {} or later to find it",
      job, shard, options_.shard, options_.version);
  return true;
}

void Server::start_plan(Plan&& plan) {
  auto ready = std::make_shared<PlanReady>();
  ready->job = plan.job;
  ready->plan = plan.id;
  background_.run([ready, work = plan.work] { ready->result = work->run(); },
                  [this, ready] {
                    if (phase_ != Phase::kClosing) core_.on_plan(std::move(*ready));
                    close_store_if_idle();
                  });
}

void Server::arm_timer() {
  const Micros next = core_.next_deadline();
  if (next == armed_us_) return;
  armed_us_ = next;
  if (next == kNever) {
    uv_timer_stop(&timer_);
    return;
  }
  uv_timer_start(&timer_, net::guarded([](uv_timer_t* timer) {
    auto* self = static_cast<Server*>(timer->data);
    self->armed_us_ = kNever;
    self->core_.fire_timers();
  }),
                 to_ms(next - now()), 0);
}

void Server::watch_idleness() {
  if (options_.exit_when_idle_us == 0 || phase_ != Phase::kServing || !listening_) return;
  uv_handle_t* timer = reinterpret_cast<uv_handle_t*>(&idle_timer_);
  const bool is_idle = network_.stats().connections == 0;
  if (is_idle == (uv_is_active(timer) != 0)) return;
  if (!is_idle) {
    uv_timer_stop(&idle_timer_);
    return;
  }
  uv_timer_start(&idle_timer_, net::guarded([](uv_timer_t* fired) {
    auto* self = static_cast<Server*>(fired->data);
    if (self->phase_ == Phase::kServing && self->options_.on_idle) self->options_.on_idle();
  }),
                 to_ms(options_.exit_when_idle_us), 0);
}

void Server::on_closed(ConnectionId connection, const std::string& reason, bool by_peer) {
  audits_.on_closed(connection);
  if (phase_ != Phase::kClosing) core_.on_closed(connection, reason, by_peer);
}

void Server::on_turn_end() {
  if (options_.before_sending) options_.before_sending();
  if (phase_ == Phase::kClosing) return;
  core_.end_turn();
  arm_timer();
  watch_idleness();
  stop_network_if_drained();
}

ServerView Server::view(std::size_t jobs_max) {
  ServerView view;
  view.version = options_.version;
  view.started_us = started_us_;
  view.now_us = now();
  view.store = store_->describe();
  view.mode = core_.mode_text();
  view.writable = core_.writable();
  if (phase_ != Phase::kServing) {
    view.not_ready = "it is stopping: " + stop_reason_;
  } else if (!listening_) {
    view.not_ready = "it is starting";
  } else if (!view.writable) {
    view.not_ready = "the store cannot be written";
  }
  if (!view.writable) view.store_reason = core_.store_reason();
  view.endpoints = network_.endpoints();
  view.network = network_.stats();
  view.engine = core_.engine().stats();
  view.store_figures = core_.store_figures();
  if (const tls::Context* tls = network_.tls()) view.certificates = tls->facts();
  view.wall_clock_s = wall_clock_us() / 1'000'000;
  view.jobs_left_out = core_.engine().figures(jobs_max, view.jobs);
  return view;
}

// ---- stopping
// -------------------------------------------------------------------------------------------

Micros Server::left_until_deadline() const {
  return std::max<Micros>(0, stop_at_us_ - now());
}

void Server::stop(const std::string& reason,
                  std::function<void(const std::string& problem)> on_stopped) {
  on_stopped_ = std::move(on_stopped);
  stop_reason_ = reason;
  stop_at_us_ = now() + options_.shutdown_timeout_us;
  phase_ = Phase::kDraining;
  if (!network_opened_) {
    network_down_ = true;
    phase_ = Phase::kClosing;
    core_.submit_rest();
    close_store_if_idle();
    return;
  }
  network_.stop_accepting();
  core_.shutdown(reason);
  const Micros drain_us = options_.shutdown_timeout_us - options_.shutdown_timeout_us / kStoreShare;
  uv_timer_start(&drain_timer_, net::guarded([](uv_timer_t* timer) {
    auto* self = static_cast<Server*>(timer->data);
    if (self->phase_ == Phase::kDraining) self->stop_network();
  }),
                 to_ms(drain_us / 2), 0);
  on_turn_end();
}

void Server::stop_network_if_drained() {
  if (phase_ == Phase::kDraining && core_.idle() && background_.outstanding() == 0) stop_network();
}

void Server::stop_network() {
  core_.submit_rest();
  phase_ = Phase::kClosing;
  const Micros share_us = options_.shutdown_timeout_us / kStoreShare;
  const Micros left_us = std::max<Micros>(0, left_until_deadline() - share_us);
  network_.shutdown("the daemon is shutting down: " + stop_reason_, to_ms(left_us), [this] {
    network_down_ = true;
    close_store_if_idle();
  });
}

void Server::close_store_after_failure(Micros timeout_us) {
  std::string ignored;  // what has failed is told already
  if (store_started_) store_->close(timeout_us, ignored);
  store_.reset();
}

// Last, when nobody can use the store any more: the network is down and no pool thread reads it.
void Server::close_store_if_idle() {
  if (phase_ != Phase::kClosing || !network_down_ || background_.outstanding() != 0) return;
  if (store_started_) {
    store_->close(left_until_deadline(), problem_);
    store_started_ = false;
  }
  close_own_handles();
}

void Server::close_own_handles() {
  SYNCD_CHECK(network_down_ && background_.outstanding() == 0);
  if (own_handles_ == 0) {
    is_over_ = true;
    // Start failed before there was anything to close: nothing of the loop is needed to say so.
    const auto done = std::move(on_stopped_);
    if (done) done(problem_);
    return;
  }
  const auto close = [](auto& handle) {
    uv_close(reinterpret_cast<uv_handle_t*>(&handle), net::guarded([](uv_handle_t* closed) {
               auto* self = static_cast<Server*>(closed->data);
               if (--self->own_handles_ > 0) return;
               self->is_over_ = true;
               const auto done = std::move(self->on_stopped_);
               if (done) done(self->problem_);
             }));
  };
  close(committed_);
  close(timer_);
  close(idle_timer_);
  close(drain_timer_);
}

void Server::log(LogLevel level, std::string event,
                 std::vector<std::pair<std::string, std::string>> fields) {
  log_({level, std::move(event), std::move(fields)});
}

}  // namespace syncd::server
