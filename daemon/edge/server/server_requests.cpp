// What clients ask of the daemon: who may, what the log says of it, and what is answered without
// the engine; see server.h. Loop thread.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "daemon/core/engine/limits.h"
#include "daemon/core/policies/graph_file.h"
#include "daemon/edge/server/server.h"

namespace syncd::server {
namespace {

// The job that a join or a request of its own would make.
std::string job_made_by(const wire::Body& body) {
  if (const auto* join = std::get_if<wire::Join>(&body)) return join->job;
  if (const auto* create = std::get_if<wire::CreateJobRequest>(&body)) return create->name;
  return {};
}

// What everybody may know of where the history is.
constexpr const char* kStoreInMemory = "memory";
constexpr const char* kStoreForClients = "a directory";

// What a client sends stands in the log no longer than the engine would take it.
constexpr std::size_t kPathShownMax = 1024;
constexpr std::size_t kRefusalShownMax = 1024;
constexpr const char* kRefusedAudit = "refused_audit";

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

}  // namespace

void Server::on_hot(ConnectionId connection, const net::Identity& identity, RequestId id,
                    wire::Hot kind, const wire::Push& push, std::uint64_t at_ns) {
  const Caller caller{connection, id};
  if (!admission_->is_admin(identity) && hides_job(caller, push.worker)) return;
  if (kind == wire::Hot::kPush) {
    core_.on_push(caller, push, at(at_ns));
  } else {
    core_.on_begin(caller, {push.worker, push.iteration}, at(at_ns));
  }
}

void Server::on_message(ConnectionId connection, wire::Message&& message) {
  const Caller caller{connection, message.id};
  if (begin_audit(caller, message.body) && too_many_changes(caller)) return;
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
      if (too_many_changes(caller)) return;
    }
    request.graph_file = read_graph_file(*policy, topology::FileErrors::kForClients,
                                         options_.engine.graph_edges_max);
    make_room_for_job();
    const std::string name = job_made_by(request.body);
    const JobId before = core_.engine().find_job(name);
    core_.on_request(std::move(request));
    note_owner(connection, name, before);
  }
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
bool Server::begin_audit(const Caller& caller, const wire::Body& body) {
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
    return false;
  }
  audit(caller, kind_of<wire::Ok>(), std::move(what));
  return true;
}

// What a stalled disk holds up must not grow without bound.
bool Server::too_many_changes(const Caller& caller) {
  const auto first = audits_.lower_bound({caller.connection, 0});
  const auto last = audits_.upper_bound({caller.connection, UINT64_MAX});
  const auto pending = static_cast<std::size_t>(std::distance(first, last));
  if (pending <= limits::kChangesPerConnectionMax && audits_.size() <= limits::kChangesMax) {
    return false;
  }
  const bool of_one = pending > limits::kChangesPerConnectionMax;
  refuse(caller, Status::kLimit,
         std::to_string(of_one ? pending - 1 : audits_.size() - 1) + " requests " +
             (of_one ? "of this connection " : "") +
             "that change jobs are not answered yet, the most allowed at once: wait for the "
             "answers");
  return true;
}

void Server::audit(const Caller& caller, std::size_t answer,
                   std::vector<std::pair<std::string, std::string>> what) {
  const net::Identity* identity = network_.identity(caller.connection);
  what.emplace_back("peer", network_.peer(caller.connection));
  what.emplace_back("identity", identity != nullptr ? identity->text() : "nobody known");
  audits_.insert({{caller.connection, caller.request}, {answer, std::move(what)}});
}

void Server::end_audit(const Caller& caller, const wire::Body& answer) {
  if (audits_.empty() || caller.request == 0) return;
  const auto* error = std::get_if<wire::Error>(&answer);
  // A client may have given its id to another request, too, which is answered in another way.
  const auto [first, last] = audits_.equal_range({caller.connection, caller.request});
  const auto audit = std::find_if(first, last, [&](const auto& one) {
    return error != nullptr || one.second.answer == answer.index();
  });
  if (audit == last) return;
  LogLine line{LogLevel::kInfo, "audit", std::move(audit->second.what)};
  audits_.erase(audit);
  // Whoever may do nothing can be refused a thousand times a second, and the log is no place to do
  // harm in: of each client's some are lines like others.
  if (error != nullptr) {
    const net::Identity* identity = network_.identity(caller.connection);
    const std::string who = identity != nullptr ? identity->text() : "nobody known";
    if (!network_.has_line_left(kRefusedAudit, who)) {
      line.level = LogLevel::kDebug;
      line.event = kRefusedAudit;
    }
  }
  line.fields.emplace_back("result",
                           error != nullptr ? std::string(status_name(error->status)) : "done");
  log_(line);
}

// Whether the client may see some jobs alone.
bool Server::is_restricted(ConnectionId connection) const {
  const net::Identity* identity = network_.identity(connection);
  return identity != nullptr && admission_ != nullptr && !admission_->is_admin(*identity);
}

// Of the store, and of what goes wrong with it: an administrator's to know, who comes where
// requests of administrators are taken.
bool Server::may_see_paths(ConnectionId connection) const {
  return !is_restricted(connection) && (!has_control() || network_.over_control(connection));
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
  return worker != nullptr && hides_job(caller, *worker);
}

bool Server::hides_job(const Caller& caller, const wire::WorkerRef& worker) {
  if (!is_restricted(caller.connection)) return false;
  const std::string* job = core_.engine().job_name(worker.job);
  if (job == nullptr || visible_to(caller.connection)(*job)) return false;
  refuse(caller, Status::kUnknownJob, Engine::no_such_job(worker.job));
  return true;
}

Engine::Visible Server::visible_to(ConnectionId connection) const {
  const net::Identity* identity = network_.identity(connection);
  std::vector<std::string> patterns;
  if (identity != nullptr) patterns = admission_->jobs_of(*identity);
  return [patterns = std::move(patterns)](const std::string& job) {
    return net::Admission::is_one_of(patterns, job);
  };
}

// Of somebody who is known, so that one tenant cannot use up what is there for all.
bool Server::within_quota(ConnectionId connection, const wire::Body& body, std::string& why) {
  if (core_.engine().policy_to_make(body) == nullptr) return true;
  const net::Identity* identity = network_.identity(connection);
  if (identity == nullptr || identity->is_owner) return true;
  for (const std::string& who : identity->counted()) {
    const auto found = made_by_.find(who);
    if (found == made_by_.end()) continue;
    const std::size_t going_on = sort_out(found->second);
    if (going_on < options_.jobs_per_identity_max) continue;
    why =
        "'" + who + "' has made " + std::to_string(going_on) +
        " jobs that go on, the most allowed (limits.jobs_per_identity_max): one must end first, or "
        "whom auth.admin names must stop one";
    return false;
  }
  return true;
}

// How many go on.
std::size_t Server::sort_out(MadeJobs& made) const {
  for (auto job = made.going_on.begin(); job != made.going_on.end();) {
    if (core_.engine().goes_on(*job)) {
      ++job;
      continue;
    }
    made.stopped.push_back(*job);
    job = made.going_on.erase(job);
  }
  // Mostly the oldest of them.
  while (!made.stopped.empty() && !core_.engine().knows(made.stopped.front())) {
    made.stopped.pop_front();
  }
  return made.going_on.size();
}

// Where the oldest job would be forgotten to make room for a new one, whoever has made very many
// loses one first: nobody's finished jobs are to be washed away by somebody else's.
void Server::make_room_for_job() {
  if (core_.engine().jobs_known() < limits::kJobsMax) return;
  MadeJobs* most = nullptr;
  for (auto& [who, made] : made_by_) {
    sort_out(made);
    if (most == nullptr || made.stopped.size() > most->stopped.size()) most = &made;
  }
  if (most == nullptr || most->stopped.size() <= limits::kJobsMax / 10) return;
  core_.forget_job(most->stopped.front());
  most->stopped.pop_front();
}

void Server::note_owner(ConnectionId connection, const std::string& name, JobId before) {
  const JobId made = core_.engine().find_job(name);
  const net::Identity* identity = network_.identity(connection);
  if (made == before || identity == nullptr || identity->is_owner) return;
  for (const std::string& who : identity->counted()) made_by_[who].going_on.insert(made);
}

void Server::refuse(const Caller& caller, Status status, std::string why) {
  const wire::Body refusal = wire::Error{status, std::move(why)};
  end_audit(caller, refusal);
  answer(caller, refusal);
}

// ---- what the edge answers itself
// ---------------------------------------------------------------------

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
  const bool sees_paths = may_see_paths(caller.connection);
  const bool has_path = store_->describe() != kStoreInMemory;
  reply.store = sees_paths || !has_path ? store_->describe() : kStoreForClients;
  reply.mode = core_.mode_text();
  reply.sessions = network.sessions;
  reply.jobs = engine.jobs;
  reply.workers = engine.workers;
  reply.pushes = engine.pushes;
  reply.frames_in = network.frames_in;
  reply.frames_out = network.frames_out;
  reply.read_only = !core_.writable();
  if (reply.read_only) reply.store_error = sees_paths ? core_.store_reason() : kReasonForClients;
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
                    auto* error = std::get_if<wire::Error>(&body);
                    if (error != nullptr && error->status == Status::kStore) {
                      network_.warn("history_unreadable",
                                    {{"job", job_shown(name)}, {"reason", error->message}});
                      if (!may_see_paths(caller.connection)) {
                        error->message =
                            std::string("the daemon cannot read the history of job '") + name +
                            "': " + kReasonForClients;
                      }
                    }
                    answer(caller, std::move(body));
                    close_store_if_idle();
                  });
}

// For shares among clients: who it is, or the connection of whom nothing is known.
std::string Server::client_text(ConnectionId connection) const {
  const net::Identity* identity = network_.identity(connection);
  if (identity != nullptr && !identity->is_owner) {
    const std::vector<std::string> names = identity->counted();
    if (!names.empty()) return names.front();
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

}  // namespace syncd::server
