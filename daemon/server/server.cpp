// The daemon as an object; see the header. Loop thread.
#include "daemon/server/server.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "daemon/engine/limits.h"
#include "daemon/policies/graph_file.h"
#include "daemon/server/history_reply.h"

namespace syncd::server {
namespace {

// A reply must fit a frame with what surrounds each record in it.
constexpr std::size_t kHistoryRecordsMax = 384;
// Reads of history that may wait for the disk at once; each holds one reply's bytes.
constexpr std::size_t kHistoriesMax = 256;
// Descriptors kept for the store's files, the listeners, the log and the loop itself.
constexpr std::size_t kReservedDescriptors = 512;
// Of the shutdown timeout, the part that is kept for closing the store.
constexpr Micros kStoreShare = 4;

Micros wall_clock_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

EngineOptions engine_options(const ServerOptions& options, const store::Store& store) {
  EngineOptions engine = options.engine;
  engine.durable = store.mode() == store::Mode::kDurable;
  return engine;
}

net::NetworkOptions network_options(const ServerOptions& options) {
  net::NetworkOptions network = options.network;
  network.server_version = options.version;
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

std::uint64_t to_ms(Micros us) {
  return static_cast<std::uint64_t>(std::max<Micros>(0, us) + 999) / 1000;
}

}  // namespace

Server::Server(uv_loop_t* loop, ServerOptions options, std::unique_ptr<store::Store> store,
               LogSink log)
    : loop_(loop),
      options_(std::move(options)),
      store_(std::move(store)),
      log_(std::move(log)),
      engine_(engine_options(options_, *store_)),
      network_(loop, network_options(options_), *this),
      gate_(*store_, [this](Reply&& reply) { send(reply.to, std::move(reply.body)); }),
      background_(loop) {
  mode_text_ = store_->mode() == store::Mode::kDurable ? "durable" : "fast";
}

Server::~Server() = default;

// ---- starting
// -------------------------------------------------------------------------------------

StartError Server::start(std::string& error) {
  started_us_ = wall_clock_us();
  if (!recover(error)) return StartError::kStore;

  const int code = uv_async_init(loop_, &committed_, [](uv_async_t* handle) {
    // What a commit sets free is sent with this turn's end.
    static_cast<Server*>(handle->data)->gate_.settle();
  });
  if (code != 0) {
    error = std::string("cannot use the event loop: ") + uv_strerror(code);
    return StartError::kListen;
  }
  uv_timer_init(loop_, &timer_);
  uv_timer_init(loop_, &drain_timer_);
  committed_.data = timer_.data = drain_timer_.data = this;
  own_handles_ = 3;

  store_started_ = true;
  store_->start(
      [this, loop_thread = std::this_thread::get_id()](const store::CommitReport& report) {
        gate_.report(report);
        // A store that commits within submit() needs no waking: settle() follows in the same turn.
        if (std::this_thread::get_id() != loop_thread) uv_async_send(&committed_);
      });
  if (!declare_jobs(error)) return StartError::kJob;

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
  std::size_t jobs = 0;
  std::size_t records = 0;
  const auto restore = [&](store::RecoveredJob&& job, std::string& wrong) {
    ++jobs;
    records += job.records.size();
    if (engine_.restore(job.snapshot ? &*job.snapshot : nullptr, job.records, wrong)) return true;
    wrong = "store " + store_->describe() + ": " + wrong;
    return false;
  };
  if (!store_->load_each(restore, error)) return false;
  started_ns_ = uv_hrtime();
  epoch_us_ = wall_clock_us();
  if (epoch_us_ < engine_.last_time()) {
    log(LogLevel::kWarn, "clock_behind_history",
        {{"behind", format_duration(engine_.last_time() - epoch_us_)},
         {"hint", "the machine's clock was set back; times go on from the latest one stored"}});
    epoch_us_ = engine_.last_time();
  }
  engine_.finish_restore(now());
  log(LogLevel::kInfo, "recovered",
      {{"store", store_->describe()},
       {"mode", mode_text_},
       {"jobs", std::to_string(jobs)},
       {"records", std::to_string(records)},
       {"ms", std::to_string((uv_hrtime() - begun_ns) / 1'000'000)}});
  return true;
}

bool Server::declare_jobs(std::string& error) {
  for (const JobSpec& spec : options_.jobs) {
    if (!engine_.declare_job(spec, now(), effects_, error)) {
      error = "job '" + spec.name + "': " + error;
      return false;
    }
    apply();
  }
  return true;
}

bool Server::listen(std::string& error) {
  std::vector<net::ListenSocket> sockets;
  if (!options_.unix_path.empty()) {
    net::ListenSocket socket;
    if (!net::open_unix_socket(options_.unix_path, options_.unix_mode, socket, error)) return false;
    sockets.push_back(std::move(socket));
  }
  for (const net::TcpAddress& address : options_.tcp) {
    if (net::open_tcp_sockets(address, sockets, error)) continue;
    for (const net::ListenSocket& socket : sockets) net::remove_unix_socket(socket);
    return false;
  }
  for (net::ListenSocket& socket : sockets) {
    if (!network_.listen(std::move(socket), error)) return false;
  }
  for (const std::string& endpoint : network_.endpoints()) {
    log(LogLevel::kInfo, "listening", {{"endpoint", endpoint}});
  }
  return true;
}

// ---- the engine
// -------------------------------------------------------------------------------------

Micros Server::now() const {
  return epoch_us_ + static_cast<Micros>((uv_hrtime() - started_ns_) / 1000);
}

void Server::step(Event event) {
  const Micros at = now();
  fire_timers(at);
  engine_.step(std::move(event), at, effects_);
  apply();
}

void Server::fire_timers(Micros at) {
  if (engine_.next_deadline() > at) return;
  engine_.tick(at, effects_);
  apply();
}

// In the order that effects.h asks for. Records reach the store at the turn's end, which comes
// before any of the answers queued here is written.
void Server::apply() {
  gate_.take(effects_);
  for (Reply& reply : effects_.replies) gate_.pass(std::move(reply));
  for (Notification& notice : effects_.notifications) {
    network_.send(notice.connection, {0, std::move(notice.body)});
  }
  for (const Plan& plan : effects_.plans) start_plan(plan);
  for (const LogLine& line : effects_.log) log_(line);
  effects_.clear();
}

void Server::start_plan(const Plan& plan) {
  auto ready = std::make_shared<PlanReady>();
  ready->job = plan.job;
  ready->plan = plan.id;
  background_.run([ready, work = plan.work] { ready->result = work->run(); },
                  [this, ready] {
                    if (phase_ != Phase::kClosing) step(std::move(*ready));
                    close_store_if_idle();
                  });
}

void Server::arm_timer() {
  const Micros next = engine_.next_deadline();
  if (next == armed_us_) return;
  armed_us_ = next;
  if (next == kNever) {
    uv_timer_stop(&timer_);
    return;
  }
  uv_timer_start(
      &timer_,
      [](uv_timer_t* timer) {
        auto* self = static_cast<Server*>(timer->data);
        self->armed_us_ = kNever;
        self->fire_timers(self->now());
      },
      to_ms(next - now()), 0);
}

void Server::on_message(ConnectionId connection, wire::Message&& message) {
  const Caller caller{connection, message.id};
  if (std::holds_alternative<wire::StatusRequest>(message.body)) {
    answer_status(caller);
  } else if (const auto* history = std::get_if<wire::HistoryRequest>(&message.body)) {
    answer_history(caller, *history);
  } else {
    Request request{caller, std::move(message.body)};
    if (const std::string* policy = engine_.policy_to_make(request.body)) {
      request.graph_file = read_graph_file(*policy);
    }
    step(std::move(request));
  }
}

void Server::on_closed(ConnectionId connection) {
  if (phase_ != Phase::kClosing) step(Disconnected{connection});
}

void Server::on_turn_end() {
  if (phase_ == Phase::kClosing) return;
  do {
    gate_.submit();
    gate_.settle();  // a store that commits at once has done so already
  } while (tell_store_state());
  arm_timer();
  stop_network_if_drained();
}

// True if the engine was told something, and may have answered.
bool Server::tell_store_state() {
  if (gate_.writable() == told_writable_) return false;
  told_writable_ = gate_.writable();
  if (told_writable_) {
    log(LogLevel::kInfo, "store_writable", {{"store", store_->describe()}});
  } else {
    log(LogLevel::kError, "store_not_writable",
        {{"store", store_->describe()}, {"reason", gate_.reason()}});
  }
  step(StoreState{told_writable_, gate_.reason()});
  return true;
}

// ---- what the edge answers itself
// ---------------------------------------------------------------------

void Server::send(const Caller& caller, wire::Body body) {
  network_.send(caller.connection, {caller.request, std::move(body)});
}

void Server::answer_status(const Caller& caller) {
  const EngineStats engine = engine_.stats();
  const net::NetworkStats network = network_.stats();
  wire::StatusReply reply;
  reply.server_version = options_.version;
  reply.pid = static_cast<std::uint32_t>(getpid());
  reply.started_us = started_us_;
  reply.now_us = now();
  reply.store = store_->describe();
  reply.mode = mode_text_;
  reply.sessions = network.sessions;
  reply.jobs = engine.jobs;
  reply.workers = engine.workers;
  reply.pushes = engine.pushes;
  reply.frames_in = network.frames_in;
  reply.frames_out = network.frames_out;
  reply.read_only = !told_writable_;
  send(caller, std::move(reply));
}

void Server::answer_history(const Caller& caller, const wire::HistoryRequest& request) {
  // Answers repeat the job's name, and must fit a frame.
  if (std::string wrong = job_name_too_long(request.job); !wrong.empty()) {
    send(caller, wire::Error{Status::kInvalid, std::move(wrong)});
    return;
  }
  const JobId job = engine_.find_job(request.job);
  if (job == 0) {
    send(caller, wire::Error{Status::kUnknownJob, "there is no job '" + request.job + "'"});
    return;
  }
  if (histories_ >= kHistoriesMax) {
    send(caller, wire::Error{Status::kLimit, "this daemon reads " + std::to_string(histories_) +
                                                 " histories already: try again"});
    return;
  }
  struct Reading {
    store::ReadResult result;
    std::string error;
    bool ok = false;
  };
  auto reading = std::make_shared<Reading>();
  const std::size_t records_max =
      request.records_max == 0 ? kHistoryRecordsMax
                               : std::min<std::size_t>(request.records_max, kHistoryRecordsMax);
  ++histories_;
  background_.run(
      [reading, job, records_max, from = request.from_sequence, store = store_.get()] {
        reading->ok = store->read(job, from, records_max, limits::kHistoryReplyBytesMax,
                                  reading->result, reading->error);
      },
      [this, reading, caller, from_byte = request.from_byte] {
        --histories_;
        if (!reading->ok) {
          send(caller, wire::Error{Status::kStore, reading->error});
        } else {
          send(caller, history_reply(std::move(reading->result), from_byte));
        }
        close_store_if_idle();
      });
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
    gate_.submit();
    close_store_if_idle();
    return;
  }
  network_.stop_accepting();
  step(Shutdown{reason});
  const Micros drain_us = options_.shutdown_timeout_us - options_.shutdown_timeout_us / kStoreShare;
  uv_timer_start(
      &drain_timer_,
      [](uv_timer_t* timer) {
        auto* self = static_cast<Server*>(timer->data);
        if (self->phase_ == Phase::kDraining) self->stop_network();
      },
      to_ms(drain_us / 2), 0);
  on_turn_end();
}

void Server::stop_network_if_drained() {
  if (phase_ == Phase::kDraining && gate_.idle() && background_.outstanding() == 0) stop_network();
}

void Server::stop_network() {
  gate_.submit();
  phase_ = Phase::kClosing;
  const Micros share_us = options_.shutdown_timeout_us / kStoreShare;
  const Micros left_us = std::max<Micros>(0, left_until_deadline() - share_us);
  network_.shutdown("the daemon is shutting down: " + stop_reason_, to_ms(left_us), [this] {
    network_down_ = true;
    close_store_if_idle();
  });
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
  if (own_handles_ == 0) {
    // Start failed before there was anything to close: nothing of the loop is needed to say so.
    const auto done = std::move(on_stopped_);
    if (done) done(problem_);
    return;
  }
  const auto close = [](auto& handle) {
    uv_close(reinterpret_cast<uv_handle_t*>(&handle), [](uv_handle_t* closed) {
      auto* self = static_cast<Server*>(closed->data);
      if (--self->own_handles_ > 0) return;
      const auto done = std::move(self->on_stopped_);
      if (done) done(self->problem_);
    });
  };
  close(committed_);
  close(timer_);
  close(drain_timer_);
}

void Server::log(LogLevel level, std::string event,
                 std::vector<std::pair<std::string, std::string>> fields) {
  log_({level, std::move(event), std::move(fields)});
}

}  // namespace syncd::server
