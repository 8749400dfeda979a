// The session's sentences: what a caller is told when a call fails. Same thread as the session.
#include "libclient/session.h"

#include "proto/base/check.h"

namespace syncd::client {

std::string Session::label(const Worker& worker) {
  if (worker.membership == Membership::kJoining) return "worker '" + worker.params.name + "'";
  return "worker " + std::to_string(worker.ref.rank);
}

const char* Session::name_of(Kind kind) {
  constexpr const char* kNames[] = {"join",    "restarted",       "consumed", "push",    "begin",
                                    "phase",   "leave",           "",         "targets", "collect",
                                    "explain", "cancel of begin", "members", "view",    "set_data",
                                    "",
                                    "request"};
  return kNames[kind];
}

// "begin(12) of worker 3"; without an iteration "leave of worker 3".
std::string Session::call_text(Kind kind, std::int64_t iteration, const Worker& worker) {
  if (kind == kJoin) return join_text(worker.params);
  std::string text = name_of(kind);
  if (iteration >= 0 && kind < kExplain) text += "(" + std::to_string(iteration) + ")";
  return text + " of " + label(worker);
}

std::string Session::call_text(const Pending& pending, const Worker& worker) {
  if (pending.kind != kRequest) return call_text(pending.kind, pending.iteration, worker);
  return std::string(static_cast<const Side&>(pending).name) + " of " + label(worker);
}

std::string Session::join_text(const JoinRequest& request) {
  return "join of worker '" + request.name + "' to job '" + request.job + "'";
}

std::string Session::ended_text(const Worker& worker) {
  return worker.ending.empty() ? "the job has ended" : worker.ending;
}

// Since when there is no connection, and what was tried. Precondition: there is none.
std::string Session::link_text() const {
  SYNCD_CHECK(!link_.up());
  const TimeUs span_us = now_ - link_.down_since_us();
  const std::string since = span_us < 1000
                                ? "the connection was lost just now"
                                : "no connection to a daemon for " + format_duration(span_us);
  return since + " (" + link_.describe_errors() + ")";
}

// What keeps a request of this worker from being answered, as far as this side can tell.
std::string Session::obstacle_text(const Worker& worker) const {
  if (!link_.up()) return link_text();
  if (!link_.usable()) return "the daemon at " + link_.endpoint_text() + " is shutting down";
  if (worker.membership == Membership::kResuming || worker.membership == Membership::kDetached) {
    return "connected to " + link_.endpoint_text() +
           ", which has not confirmed yet that this worker resumes";
  }
  return "connected to " + link_.endpoint_text() + ", which has not answered yet";
}

}  // namespace syncd::client
