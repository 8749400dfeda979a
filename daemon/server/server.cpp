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
#include "daemon/server/certificate_lines.h"

namespace syncd::server {
namespace {

// Descriptors kept for the store's files, the listeners, the log and the loop itself.
constexpr std::size_t kReservedDescriptors = 512;
// Of the shutdown timeout, the part that is kept for closing the store.
constexpr Micros kStoreShare = 4;

Micros wall_clock_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
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

// The job that a join or a request of its own would make.
std::string job_made_by(const wire::Body& body) {
  if (const auto* join = std::get_if<wire::Join>(&body)) return join->job;
  if (const auto* create = std::get_if<wire::CreateJobRequest>(&body)) return create->name;
  return {};
}

// What a client sends stands in the log no longer than the engine would take it.
constexpr std::size_t kPathShownMax = 1024;
constexpr std::size_t kRefusalShownMax = 1024;

std::string shown(const std::string& text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // of UTF-8
  return text.substr(0, end) + "... (" + std::to_string(text.size()) + " bytes)";
}

// What changes a job, or the daemon, for everybody.
bool is_administrative(const wire::Body& body) {
  return std::holds_alternative<wire::CreateJobRequest>(body) ||
         std::holds_alternative<wire::StopJobRequest>(body) ||
         std::holds_alternative<wire::SetPolicyRequest>(body) ||
         std::holds_alternative<wire::ManageWorkerRequest>(body) ||
         std::holds_alternative<wire::CheckpointRequest>(body);
}

std::string job_shown(const std::string& name) {
  return shown(name, limits::kJobNameBytesMax);
}

// What a request that the log tells of is answered with, but for an error.
template <class T>
std::size_t kind_of() {
  static const std::size_t index = wire::Body(T{}).index();
  return index;
}

std::string audit_name(wire::WorkerAction action) {
  switch (action) {
    case wire::WorkerAction::kDrain:
      return "drain_worker";
    case wire::WorkerAction::kKick:
      return "kick_worker";
    case wire::WorkerAction::kLease:
      return "lease_worker";
  }
  return "unknown_worker_action_" + std::to_string(static_cast<int>(action));  // a newer syncctl's
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
      core_(options_.engine, *store_, *this),
      network_(loop, network_options(options_), *this),
      background_(loop),
      histories_(background_, *store_) {}

Server::~Server() = default;

// ---- starting
// -------------------------------------------------------------------------------------

StartError Server::start(std::string& error) {
  started_us_ = wall_clock_us();
  if (!recover(error)) return StartError::kStore;

  const int code = uv_async_init(loop_, &committed_, [](uv_async_t* handle) {
    // What a commit sets free is sent with this turn's end.
    static_cast<Server*>(handle->data)->core_.settle();
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
        core_.report(report);
        // A store that commits within submit() needs no waking: settle() follows in the same turn.
        if (std::this_thread::get_id() != loop_thread) uv_async_send(&committed_);
      });
  for (const JobSpec& spec : options_.jobs) {
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
  if (!core_.recover(go_on_from, recovered, error, options_.on_recovering)) return false;
  log(LogLevel::kInfo, "recovered",
      {{"store", store_->describe()},
       {"mode", core_.mode_text()},
       {"jobs", std::to_string(recovered.jobs)},
       {"records", std::to_string(recovered.records)},
       {"ms", std::to_string((uv_hrtime() - begun_ns) / 1'000'000)}});
  return true;
}

// Appends those for workers, or those for control: the inherited ones, or else those of the
// options.
bool Server::open_sockets(bool control, std::vector<net::ListenSocket>& sockets,
                          std::string& error) {
  const std::size_t before = sockets.size();
  for (net::ListenSocket& socket : inherited_) {
    if (socket.is_control == control) sockets.push_back(std::move(socket));
  }
  if (sockets.size() > before) return true;
  const std::string& path = control ? options_.control_unix_path : options_.unix_path;
  if (!path.empty()) {
    net::ListenSocket socket;
    if (!net::open_unix_socket(path, options_.unix_mode, socket, error)) {
      error = (control ? "listen.control: " : "listen.unix: ") + error;
      return false;
    }
    sockets.push_back(std::move(socket));
  }
  for (const net::TcpAddress& address : control ? options_.control_tcp : options_.tcp) {
    if (!net::open_tcp_sockets(address, sockets, error)) {
      error = (control ? "listen.control: " : "listen.tcp: ") + error;
      return false;
    }
  }
  for (std::size_t i = before; i < sockets.size(); ++i) sockets[i].is_control = control;
  return true;
}

bool Server::listen(std::string& error) {
  if (!reload(error)) return false;
  if (options_.open_to_anybody) {
    log(LogLevel::kWarn, "open_to_anybody",
        {{"hint",
          "whoever reaches this machine may join, push and stop jobs: listen.insecure is set, and "
          "TLS or authentication is not"}});
  }
  std::vector<net::ListenSocket> sockets;
  if (!open_sockets(false, sockets, error) || !open_sockets(true, sockets, error)) {
    for (const net::ListenSocket& socket : sockets) net::remove_unix_socket(socket);
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
  return epoch_us_ + static_cast<Micros>((uv_hrtime() - started_ns_) / 1000);
}

void Server::send(ConnectionId connection, wire::Message&& message) {
  end_audit({connection, message.id}, message.body);
  network_.send(connection, message);
}

bool Server::reload(std::string& error) {
  return secure(options_.tls, options_.admission, error);
}

bool Server::reconfigure(const ServerOptions& options, std::string& error) {
  if (!secure(options.tls, options.admission, error)) return false;
  options_.tls = options.tls;
  options_.admission = options.admission;
  options_.engine = options.engine;
  options_.network = options.network;
  options_.jobs_per_identity_max = options.jobs_per_identity_max;
  options_.shutdown_timeout_us = options.shutdown_timeout_us;
  core_.set_options(options_.engine);
  network_.set_limits(network_options(options_));
  return true;
}

bool Server::secure(const tls::ServerSettings& tls, const net::AdmissionRules& rules,
                    std::string& error) {
  std::shared_ptr<tls::Context> context;
  if (!tls.certificate_file.empty()) {
    context = tls::Context::server(tls, error);
    if (context == nullptr) return false;
  }
  std::unique_ptr<net::Admission> admission = net::Admission::make(rules, error);
  if (admission == nullptr) return false;
  network_.set_admission(admission.get());
  admission_ = std::move(admission);
  if (context != nullptr) {
    for (const LogLine& line :
         certificate_lines(tls, context->facts(), wall_clock_us() / 1'000'000)) {
      log_(line);
    }
  }
  network_.set_tls(std::move(context));
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
  uv_timer_start(
      &timer_,
      [](uv_timer_t* timer) {
        auto* self = static_cast<Server*>(timer->data);
        self->armed_us_ = kNever;
        self->core_.fire_timers();
      },
      to_ms(next - now()), 0);
}

void Server::on_message(ConnectionId connection, wire::Message&& message) {
  const Caller caller{connection, message.id};
  begin_audit(caller, message.body);
  if (std::string why;
      !permitted(connection, message.body, why) || !may_name_file(connection, message.body, why)) {
    network_.warn("refused", {{"peer", network_.peer(connection)},
                              {"request", std::string(wire::body_name(message.body))},
                              {"reason", shown(why, kRefusalShownMax)}});
    refuse(caller, Status::kAuth, std::move(why));
    return;
  }
  if (hides_job(caller, message.body)) return;
  if (std::string why; !within_quota(connection, message.body, why)) {
    refuse(caller, Status::kLimit, std::move(why));
    return;
  }
  if (std::holds_alternative<wire::StatusRequest>(message.body)) {
    answer_status(caller);
  } else if (std::holds_alternative<wire::JobsRequest>(message.body) && phase_ == Phase::kServing &&
             is_restricted(connection)) {
    answer(caller, core_.engine().jobs(visible_to(connection)));
  } else if (const auto* history = std::get_if<wire::HistoryRequest>(&message.body)) {
    answer_history(caller, *history);
  } else if (const auto* copy = std::get_if<wire::CheckpointRequest>(&message.body)) {
    answer_checkpoint(caller, copy->path);
  } else {
    Request request{caller, std::move(message.body)};
    const std::string* policy = core_.engine().policy_to_make(request.body);
    if (policy == nullptr) {
      core_.on_request(std::move(request));
      return;
    }
    if (const auto* join = std::get_if<wire::Join>(&request.body)) {
      audit(caller, kind_of<wire::Joined>(),
            {{"action", "create_job"},
             {"job", job_shown(join->job)},
             {"policy", shown(*policy, limits::kPolicyBytesMax)},
             {"by", "join"}});
    }
    request.graph_file = read_graph_file(*policy, topology::FileErrors::kForClients);
    const std::string name = job_made_by(request.body);
    const JobId before = core_.engine().find_job(name);
    core_.on_request(std::move(request));
    note_owner(connection, name, before);
  }
}

void Server::on_closed(ConnectionId connection, const std::string& reason) {
  std::erase_if(audits_, [&](const Audit& audit) {
    if (audit.caller.connection != connection) return false;
    LogLine line{LogLevel::kInfo, "audit", audit.what};
    line.fields.emplace_back("result", "unknown: the client has gone");
    log_(line);
    return true;
  });
  if (phase_ != Phase::kClosing) core_.on_closed(connection, reason);
}

void Server::on_turn_end() {
  if (phase_ == Phase::kClosing) return;
  core_.end_turn();
  arm_timer();
  stop_network_if_drained();
}

// ---- who may do what
// --------------------------------------------------------------------------------------

// Everything else is about a worker that joined over the same connection, or names no job.
bool Server::permitted(ConnectionId connection, const wire::Body& body, std::string& why) const {
  if (has_control() && is_administrative(body) && !network_.over_control(connection)) {
    why =
        "this daemon accepts requests that change jobs over its control socket alone "
        "(listen.control)";
    return false;
  }
  const net::Identity* identity = network_.identity(connection);
  if (identity == nullptr || admission_ == nullptr) return true;
  if (const auto* join = std::get_if<wire::Join>(&body)) {
    return may_use(*identity, join->job, why);
  }
  if (const auto* workers = std::get_if<wire::WorkersRequest>(&body)) {
    return may_use(*identity, workers->job, why);
  }
  if (const auto* history = std::get_if<wire::HistoryRequest>(&body)) {
    return may_use(*identity, history->job, why);
  }
  if (const auto* create = std::get_if<wire::CreateJobRequest>(&body)) {
    return admission_->may_change(*identity, create->name, why);
  }
  if (std::holds_alternative<wire::CheckpointRequest>(body)) {
    return admission_->may_copy_store(*identity, counts_as_here(connection), why);
  }
  if (const auto* stop = std::get_if<wire::StopJobRequest>(&body)) {
    return admission_->may_change(*identity, stop->job, why);
  }
  if (const auto* set = std::get_if<wire::SetPolicyRequest>(&body)) {
    return admission_->may_change(*identity, set->job, why);
  }
  if (const auto* manage = std::get_if<wire::ManageWorkerRequest>(&body)) {
    return admission_->may_change(*identity, manage->job, why);
  }
  return true;
}

// `job` may be "#" and a number. The rules speak of names, and the refusal does not tell whose
// number it is.
bool Server::may_use(const net::Identity& identity, const std::string& job,
                     std::string& why) const {
  const std::string* name = core_.engine().job_name(core_.engine().find_job(job));
  if (admission_->may_use(identity, name == nullptr ? job : *name, why)) return true;
  why = net::Admission::may_not_use(identity, job);
  return false;
}

// Whether being on this machine says anything of a client: where certificates do, it does not.
bool Server::counts_as_here(ConnectionId connection) const {
  return network_.is_here(connection) && options_.tls.client_ca_file.empty();
}

// A path is the daemon's to open with the daemon's rights. Whoever joins a job that is there needs
// no file.
bool Server::may_name_file(ConnectionId connection, const wire::Body& body,
                           std::string& why) const {
  const std::string* policy = core_.engine().policy_to_make(body);
  if (policy == nullptr || !names_graph_file(*policy)) return true;
  const net::Identity* identity = network_.identity(connection);
  if (identity == nullptr || admission_ == nullptr) return false;
  return admission_->may_name_files(*identity, counts_as_here(connection), why);
}

// Who changed what, and what came of it: one line, written once that is known.
void Server::begin_audit(const Caller& caller, const wire::Body& body) {
  std::vector<std::pair<std::string, std::string>> what;
  if (const auto* create = std::get_if<wire::CreateJobRequest>(&body)) {
    what = {{"action", "create_job"},
            {"job", job_shown(create->name)},
            {"policy", shown(create->policy, limits::kPolicyBytesMax)}};
  } else if (const auto* stop = std::get_if<wire::StopJobRequest>(&body)) {
    what = {{"action", "stop_job"},
            {"job", job_shown(stop->job)},
            {"reason", shown(stop->reason, limits::kReasonBytesMax)}};
  } else if (const auto* set = std::get_if<wire::SetPolicyRequest>(&body)) {
    what = {{"action", "set_policy"},
            {"job", job_shown(set->job)},
            {"policy", shown(set->policy, limits::kPolicyBytesMax)}};
  } else if (const auto* manage = std::get_if<wire::ManageWorkerRequest>(&body)) {
    const bool lease = manage->action == wire::WorkerAction::kLease;
    what = {{"action", audit_name(manage->action)},
            {"job", job_shown(manage->job)},
            {"worker", shown(manage->worker, limits::kWorkerNameBytesMax)},
            {lease ? "phase" : "reason", shown(manage->text, limits::kReasonBytesMax)}};
    if (lease) what.emplace_back("lease", format_duration(manage->lease_us));
  } else if (const auto* copy = std::get_if<wire::CheckpointRequest>(&body)) {
    what = {{"action", "copy_store"}, {"path", shown(copy->path, kPathShownMax)}};
  } else {
    return;
  }
  audit(caller, kind_of<wire::Ok>(), std::move(what));
}

void Server::audit(const Caller& caller, std::size_t answer,
                   std::vector<std::pair<std::string, std::string>> what) {
  const net::Identity* identity = network_.identity(caller.connection);
  what.emplace_back("peer", network_.peer(caller.connection));
  what.emplace_back("identity", identity != nullptr ? identity->text() : "nobody known");
  audits_.push_back({caller, answer, std::move(what)});
}

void Server::end_audit(const Caller& caller, const wire::Body& answer) {
  if (audits_.empty() || caller.request == 0) return;
  const auto* error = std::get_if<wire::Error>(&answer);
  // A client may have given its id to another request, too, which is answered in another way.
  const auto audit = std::find_if(audits_.begin(), audits_.end(), [&](const Audit& one) {
    return one.caller == caller && (error != nullptr || one.answer == answer.index());
  });
  if (audit == audits_.end()) return;
  LogLine line{LogLevel::kInfo, "audit", std::move(audit->what)};
  audits_.erase(audit);
  line.fields.emplace_back("result",
                           error != nullptr ? std::string(status_name(error->status)) : "done");
  log_(line);
}

// Whether the client may see some jobs alone.
bool Server::is_restricted(ConnectionId connection) const {
  const net::Identity* identity = network_.identity(connection);
  return identity != nullptr && admission_ != nullptr && !admission_->is_admin(*identity);
}

bool Server::hides_job(const Caller& caller, const wire::Body& body) {
  if (!is_restricted(caller.connection)) return false;
  const wire::WorkerRef* worker = std::visit(
      [](const auto& request) -> const wire::WorkerRef* {
        if constexpr (requires { static_cast<const wire::WorkerRef&>(request.worker); }) {
          return &request.worker;
        } else {
          return nullptr;
        }
      },
      body);
  if (worker == nullptr) return false;
  const std::string* job = core_.engine().job_name(worker->job);
  if (job == nullptr || visible_to(caller.connection)(*job)) return false;
  refuse(caller, Status::kUnknownJob, Engine::no_such_job(worker->job));
  return true;
}

Engine::Visible Server::visible_to(ConnectionId connection) const {
  const net::Identity* identity = network_.identity(connection);
  return [this, identity](const std::string& job) {
    std::string ignored;
    return identity != nullptr && admission_->may_use(*identity, job, ignored);
  };
}

// Of somebody who is known, so that one tenant cannot use up what is there for all.
bool Server::within_quota(ConnectionId connection, const wire::Body& body, std::string& why) {
  if (core_.engine().policy_to_make(body) == nullptr) return true;
  const net::Identity* identity = network_.identity(connection);
  if (identity == nullptr || identity->is_owner || identity->names.empty()) return true;
  const auto made = made_by_.find(identity->key());
  if (made == made_by_.end()) return true;
  std::erase_if(made->second, [&](JobId job) { return !core_.engine().goes_on(job); });
  if (made->second.size() < options_.jobs_per_identity_max) return true;
  why = "'" + identity->text() + "' has made " + std::to_string(made->second.size()) +
        " jobs that go on, the most allowed (limits.jobs_per_identity_max): stop one first";
  return false;
}

void Server::note_owner(ConnectionId connection, const std::string& name, JobId before) {
  const JobId made = core_.engine().find_job(name);
  const net::Identity* identity = network_.identity(connection);
  if (made == before || identity == nullptr || identity->is_owner || identity->names.empty())
    return;
  made_by_[identity->key()].insert(made);
}

void Server::refuse(const Caller& caller, Status status, std::string why) {
  const wire::Body refusal = wire::Error{status, std::move(why)};
  end_audit(caller, refusal);
  answer(caller, refusal);
}

// ---- what the edge answers itself
// ---------------------------------------------------------------------

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
  view.jobs_left_out = core_.engine().figures(jobs_max, view.jobs);
  return view;
}

void Server::answer_status(const Caller& caller) {
  const EngineStats engine = is_restricted(caller.connection)
                                 ? core_.engine().stats(visible_to(caller.connection))
                                 : core_.engine().stats();
  const net::NetworkStats network = network_.stats();
  wire::StatusReply reply;
  reply.server_version = options_.version;
  reply.pid = static_cast<std::uint32_t>(getpid());
  reply.started_us = started_us_;
  reply.now_us = now();
  reply.store = store_->describe();
  reply.mode = core_.mode_text();
  reply.sessions = network.sessions;
  reply.jobs = engine.jobs;
  reply.workers = engine.workers;
  reply.pushes = engine.pushes;
  reply.frames_in = network.frames_in;
  reply.frames_out = network.frames_out;
  reply.read_only = !core_.writable();
  if (reply.read_only) reply.store_error = core_.store_reason();
  reply.store_error_since_us = core_.store_error_since();
  const StoreFigures figures = core_.store_figures();
  reply.commit_failures = figures.failures;
  reply.records_removed = figures.records_removed;
  answer(caller, std::move(reply));
}

void Server::answer(const Caller& caller, wire::Body body) {
  network_.send(caller.connection, {caller.request, std::move(body)});
}

void Server::answer_history(const Caller& caller, const wire::HistoryRequest& request) {
  // Answers repeat the job's name, and must fit a frame.
  if (std::string wrong = job_name_too_long(request.job); !wrong.empty()) {
    answer(caller, wire::Error{Status::kInvalid, std::move(wrong)});
    return;
  }
  const JobId job = core_.engine().find_job(request.job);
  if (job == 0) {
    answer(caller, wire::Error{Status::kUnknownJob, "there is no job '" + request.job + "'"});
    return;
  }
  histories_.read(client_text(caller.connection), job, request,
                  [this, caller, name = request.job](wire::Body body) {
                    const auto* error = std::get_if<wire::Error>(&body);
                    if (error != nullptr && error->status == Status::kStore) {
                      network_.warn("history_unreadable",
                                    {{"job", job_shown(name)}, {"reason", error->message}});
                    }
                    answer(caller, std::move(body));
                    close_store_if_idle();
                  });
}

// For shares among clients: the identity, or the connection of whom nothing is known.
std::string Server::client_text(ConnectionId connection) const {
  const net::Identity* identity = network_.identity(connection);
  if (identity != nullptr && !identity->is_owner && !identity->names.empty()) {
    return identity->key();
  }
  return "connection " + std::to_string(connection);
}

// Refused here what must not reach the disk: a path that depends on where the daemon was started.
void Server::answer_checkpoint(const Caller& caller, const std::string& path) {
  const auto reply = [this, caller](const wire::Body& body) {
    end_audit(caller, body);
    answer(caller, body);
  };
  if (path.empty() || path.front() != '/' || path.find('\0') != std::string::npos) {
    return reply(
        wire::Error{Status::kInvalid, "'" + path +
                                          "' is not the absolute path of a directory that is not "
                                          "there yet on the daemon's machine"});
  }
  if (checkpointing_) {
    return reply(wire::Error{Status::kLimit, "this daemon copies its store already: try again"});
  }
  struct Copying {
    std::string error;
    bool ok = false;
  };
  auto copying = std::make_shared<Copying>();
  checkpointing_ = true;
  background_.run([copying, path,
                   store = store_.get()] { copying->ok = store->checkpoint(path, copying->error); },
                  [this, copying, reply] {
                    checkpointing_ = false;
                    if (copying->ok) {
                      reply(wire::Ok{});
                    } else {
                      reply(wire::Error{Status::kStore, copying->error});
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
    core_.submit_rest();
    close_store_if_idle();
    return;
  }
  network_.stop_accepting();
  core_.shutdown(reason);
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
