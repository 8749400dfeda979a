// The session's sentences: what a caller is told when a call fails. Same thread as the session.
#include "libclient/session.h"

#include "proto/base/check.h"

namespace syncd::client {

std::string Session::label(const Worker& worker) {
  if (worker.membership == Membership::kJoining) return "worker '" + worker.params.name + "'";
  return "worker " + std::to_string(worker.ref.rank);
}

// "begin(12) of worker 3"; without an iteration "leave of worker 3".
std::string Session::call_text(const char* call, std::int64_t iteration, const Worker& worker) {
  std::string text = call;
  if (iteration >= 0) text += "(" + std::to_string(iteration) + ")";
  return text + " of " + label(worker);
}

const char* Session::name_of(WaitCall call) {
  return call == WaitCall::kBegin ? "begin" : call == WaitCall::kTargets ? "targets" : "collect";
}

const char* Session::name_of(Aside what) {
  return what == Aside::kExplain  ? "explain"
         : what == Aside::kCancel ? "cancel of begin"
                                  : "members";
}

// The request that stands, or stood.
std::string Session::wait_text(const Worker& worker) {
  return call_text(name_of(worker.wait_call), worker.wait_iteration, worker);
}

std::string Session::join_text(const JoinRequest& request) {
  return "join of worker '" + request.name + "' to job '" + request.job + "'";
}

std::string Session::ended_text(const Worker& worker) {
  return worker.ending.empty() ? "the job has ended" : worker.ending;
}

// Since when there is no connection, and what was tried. Precondition: there is none.
std::string Session::link_text(TimeUs now) const {
  SYNCD_CHECK(!link_.up());
  const TimeUs span_us = now - link_.down_since_us();
  const std::string since = span_us < 1000
                                ? "the connection was lost just now"
                                : "no connection to a daemon for " + format_duration(span_us);
  return since + " (" + link_.describe_errors() + ")";
}

// What keeps a request of this worker from being answered, as far as this side can tell.
std::string Session::obstacle_text(const Worker& worker, TimeUs now) const {
  if (!link_.up()) return link_text(now);
  if (!link_.usable()) return "the daemon at " + link_.endpoint_text() + " is shutting down";
  if (worker.membership == Membership::kResuming || worker.membership == Membership::kDetached) {
    return "connected to " + link_.endpoint_text() +
           ", which has not confirmed yet that this worker resumes";
  }
  return "connected to " + link_.endpoint_text() + ", which has not answered yet";
}

// An explanation of iteration -1 says that the worker does not wait: its grant is under way, or the
// request is. Either way there is nobody to name.
std::string Session::explanation_text(const Explanation& explanation) {
  if (explanation.iteration < 0) return "the daemon was about to answer";
  return to_text(explanation);
}

}  // namespace syncd::client
