// Looks at an engine from outside, between requests: what each request was answered with, and what
// it has and has not changed. Ends the process, which is a finding, where that does not fit. One
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "tests/fuzz/check.h"

namespace syncd::fuzz {

class EngineWatch {
 public:
  explicit EngineWatch(const Engine& engine) : engine_(engine) {}

  // Something has happened that is no request: time passes, a connection ends, a plan is ready.
  void look();
  // A request, whose timers have fired already: before it, with what it was answered at once (null:
  // it stands), and after it.
  void before(ConnectionId connection, const wire::Body& request);
  void after(const wire::Body& request, const wire::Body* answer);

  // What the engine says, as it says it.
  void answered(ConnectionId connection, const wire::Body& answer);
  void notified(const wire::Body& notice);
  void closed(ConnectionId connection);

 private:
  using Jobs = std::map<JobId, JobSnapshot>;
  using Place = std::pair<JobId, Rank>;

  Jobs jobs() const;
  const JobSnapshot* job_called(const std::string& name) const;
  void compare(const JobSnapshot& was, const JobSnapshot& is) const;
  std::optional<Status> refusal(ConnectionId connection, const wire::WorkerRef& ref) const;
  std::optional<Status> refusal(const wire::ManageWorkerRequest& request) const;

  void check_unchanged() const;
  void check_pushes(const wire::Body& request, const wire::Body* answer);
  void check_joined(const wire::Join& join, const wire::Body* answer) const;
  void check_drained(const wire::WorkerRef& ref, const wire::Body& request,
                     const wire::Body& answer) const;
  void check_manage(const wire::ManageWorkerRequest& request, const wire::Body& answer) const;
  void check_policy(const wire::SetPolicyRequest& request, const wire::Body& answer) const;
  void check_stop(const wire::StopJobRequest& request, const wire::Body& answer) const;
  void check_explanation(const wire::WorkerRef& ref, const Explanation& explanation) const;
  void check_workers(const wire::WorkersRequest& request, const wire::WorkersReply& reply) const;
  void check_members(const wire::MembersRequest& request, const wire::MembersReply& reply) const;
  void check_jobs(const wire::JobsReply& reply) const;

  const Engine& engine_;
  Jobs before_;
  Jobs now_;
  std::optional<Status> expected_;  // what the request must be refused with
  // Over which connection a worker speaks, in which life.
  std::map<Place, std::pair<Incarnation, ConnectionId>> attached_;
  // The latest iteration of each life whose push was acknowledged, and counted.
  std::map<std::tuple<JobId, Rank, Incarnation>, Iteration> acknowledged_;
  std::set<std::tuple<JobId, Rank, Incarnation>> fenced_;  // during this request
};

}  // namespace syncd::fuzz
