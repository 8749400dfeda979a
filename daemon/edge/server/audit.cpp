// Who changed what; see the header.
#include "daemon/edge/server/audit.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/request_traits.h"
#include "daemon/edge/server/log_text.h"

namespace syncd::server {
namespace {

constexpr std::size_t kPathShownMax = 1024;
constexpr const char* kRefusedAudit = "refused_audit";

template <class Message>
constexpr const char* kAction = kTraits<Message>.audited;

std::string name_of(wire::WorkerAction what) {
  constexpr std::array kVerbs{"drain", "kick", "lease"};
  static_assert(static_cast<int>(wire::WorkerAction::kLease) == kVerbs.size() - 1);
  const auto number = static_cast<std::size_t>(what);
  if (number < kVerbs.size())
    return kVerbs[number] + std::string(kAction<wire::ManageWorkerRequest>);
  return "unknown_worker_action_" + std::to_string(number);  // a newer syncctl's
}

std::string who(const net::Network& network, ConnectionId connection) {
  const net::Identity* identity = network.identity(connection);
  return identity != nullptr ? identity->text() : "nobody known";
}

}  // namespace

// What a stalled disk holds up must not grow without bound.
std::string Audits::begin(const Caller& caller, const wire::Body& done, Fields what) {
  what.emplace_back("peer", network_.peer(caller.connection));
  what.emplace_back("identity", who(network_, caller.connection));
  pending_.insert({{caller.connection, caller.request}, {done.index(), std::move(what)}});
  const auto first = pending_.lower_bound({caller.connection, 0});
  const auto last = pending_.upper_bound({caller.connection, UINT64_MAX});
  const auto of_one = static_cast<std::size_t>(std::distance(first, last));
  const bool one_has_many = of_one > limits::kChangesPerConnectionMax;
  if (!one_has_many && pending_.size() <= limits::kChangesMax) return {};
  return std::to_string((one_has_many ? of_one : pending_.size()) - 1) + " requests " +
         (one_has_many ? "of this connection " : "") +
         "that change jobs are not answered yet, the most allowed at once: wait for the answers";
}

void Audits::end(const Caller& caller, const wire::Body& answer) {
  if (caller.request == 0) return;
  const auto* error = std::get_if<wire::Error>(&answer);
  // A client may have given its id to another request, too, which is answered in another way.
  const auto [first, last] = pending_.equal_range({caller.connection, caller.request});
  const auto audit = std::find_if(first, last, [&](const auto& one) {
    return error != nullptr || one.second.done == answer.index();
  });
  if (audit == last) return;
  LogLine line{LogLevel::kInfo, "audit", std::move(audit->second.what)};
  pending_.erase(audit);
  // Whoever may do nothing can be refused a thousand times a second, and the log is no place to do
  // harm in: of each client's some are lines like others.
  if (error != nullptr &&
      !network_.has_line_left(kRefusedAudit, who(network_, caller.connection))) {
    line.level = LogLevel::kDebug;
    line.event = kRefusedAudit;
  }
  line.fields.emplace_back("result",
                           error != nullptr ? std::string(status_name(error->status)) : "done");
  log_(line);
}

void Audits::on_closed(ConnectionId connection) {
  for (auto it = pending_.lower_bound({connection, 0});
       it != pending_.end() && it->first.first == connection; it = pending_.erase(it)) {
    LogLine line{LogLevel::kInfo, "audit", std::move(it->second.what)};
    line.fields.emplace_back("result", "unknown: the client has gone");
    log_(line);
  }
}

Audits::Fields audit_fields(const wire::CreateJobRequest& create) {
  return {{"action", kAction<wire::CreateJobRequest>},
          {"job", job_shown(create.name)},
          {"policy", shown(create.policy, limits::kPolicyBytesMax)}};
}

Audits::Fields audit_fields(const wire::Join& join, const std::string& policy) {
  Audits::Fields what = audit_fields(wire::CreateJobRequest{join.job, policy});
  what.emplace_back("by", "join");
  return what;
}

Audits::Fields audit_fields(const wire::StopJobRequest& stop) {
  return {{"action", kAction<wire::StopJobRequest>},
          {"job", job_shown(stop.job)},
          {"reason", shown(stop.reason, limits::kReasonBytesMax)}};
}

Audits::Fields audit_fields(const wire::SetPolicyRequest& set) {
  return {{"action", kAction<wire::SetPolicyRequest>},
          {"job", job_shown(set.job)},
          {"policy", shown(set.policy, limits::kPolicyBytesMax)}};
}

Audits::Fields audit_fields(const wire::ManageWorkerRequest& manage) {
  const bool lease = manage.action == wire::WorkerAction::kLease;
  Audits::Fields what = {{"action", name_of(manage.action)},
                         {"job", job_shown(manage.job)},
                         {"worker", shown(manage.worker, limits::kWorkerNameBytesMax)},
                         {lease ? "phase" : "reason", shown(manage.text, limits::kReasonBytesMax)}};
  if (lease) what.emplace_back("lease", format_duration(manage.lease_us));
  return what;
}

Audits::Fields audit_fields(const wire::InspectRequest& inspect) {
  return {{"action", kAction<wire::InspectRequest>},
          {"job", job_shown(inspect.job)},
          {"worker", shown(inspect.worker, limits::kWorkerNameBytesMax)}};
}

Audits::Fields audit_fields(const wire::OrderCheckpoint& order) {
  return {{"action", kAction<wire::OrderCheckpoint>},
          {"job", job_shown(order.job)},
          {"reason", shown(order.reason, limits::kReasonBytesMax)}};
}

Audits::Fields audit_fields(const wire::CheckpointRequest& copy) {
  return {{"action", kAction<wire::CheckpointRequest>}, {"path", shown(copy.path, kPathShownMax)}};
}

Audits::Fields audit_fields(const wire::ExcludeRequest& exclude) {
  return {{"action", exclude.undo ? "undo_" + std::string(kAction<wire::ExcludeRequest>)
                                  : kAction<wire::ExcludeRequest>},
          {"job", job_shown(exclude.job)},
          {"host", shown(exclude.host, limits::kHostNameBytesMax)},
          {"reason", shown(exclude.reason, limits::kReasonBytesMax)}};
}

}  // namespace syncd::server
