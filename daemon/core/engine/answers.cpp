// See answers.h.
#include "daemon/core/engine/answers.h"

#include <algorithm>
#include <iterator>

#include "daemon/core/engine/exit_reason.h"

namespace syncd {

// What a worker has done; all else was done to it.
static constexpr wire::LeaveKind kActive[] = {wire::LeaveKind::kLeft, wire::LeaveKind::kFinished,
                                              wire::LeaveKind::kFailed};

std::string label(const Worker& worker) {
  return fmt::format("worker {} ({}, {})", worker.rank, worker.host, worker.name);
}

void Answers::refuse(const Caller& caller, Status status, std::string text) {
  reply(caller, wire::Error{status, std::move(text)});
}

void Answers::notify(ConnectionId connection, wire::Body body, bool after_records) {
  if (engine_.effects() == nullptr || connection == 0) return;
  engine_.effects()->notifications.push_back({connection, std::move(body), after_records});
}

void Answers::log(LogLevel level, std::string event, const Worker* worker, Fields fields) {
  if (engine_.effects() == nullptr) return;
  LogLine line{level, std::move(event), {{"job", spec_.name}}};
  if (worker != nullptr) {
    line.fields.emplace_back("worker", std::to_string(worker->rank));
    line.fields.emplace_back("host", worker->host);
    line.fields.emplace_back("name", worker->name);
  }
  for (auto& field : fields) line.fields.push_back(std::move(field));
  engine_.effects()->log.push_back(std::move(line));
}

void Answers::refuse_worker(const Caller& caller, const wire::WorkerRef& ref) {
  const Worker* worker = roster_.find(ref.rank);
  if (worker == nullptr) {
    return refuse(caller, Status::kUnknownWorker, "job '{}' has no worker {}", spec_.name,
                  ref.rank);
  }
  if (ref.epoch != recorder_.epoch() && ref.epoch != worker->told_epoch) {
    return refuse(caller, Status::kFenced,
                  "the request is of epoch {} of job '{}', which is in epoch {}: join again",
                  ref.epoch, spec_.name, recorder_.epoch());
  }
  std::string why;
  if (ref.incarnation < worker->incarnation) {
    why = fmt::format("was replaced by incarnation {}", worker->incarnation);
  } else if (ref.incarnation > worker->incarnation) {
    why = fmt::format("is unknown here, where it is incarnation {}", worker->incarnation);
  } else if (!is_member(worker->state) && !worker->dismissal.empty()) {
    return refuse_dismissed(caller, *worker);
  } else if (!is_member(worker->state)) {
    why = std::string("is ") + to_string(worker->state);
  } else {
    // A frame that a cut connection still had must not get in the way of those of the present one.
    why = "did not join over this connection";
  }
  refuse(caller, Status::kFenced, "incarnation {} of {} {}: join again", ref.incarnation,
         label(*worker), why);
}

void Answers::refuse_dismissed(const Caller& caller, const Worker& worker) {
  // A drained worker has done its part.
  const bool kicked = worker.dismissal.starts_with(kKickedReason);
  using wire::LeaveKind;
  const bool was = std::none_of(std::begin(kActive), std::end(kActive), [&](LeaveKind kind) {
    return says(worker.dismissal, to_string(kind));
  });
  reply(caller,
        wire::Error{kicked ? Status::kFenced : Status::kStopped,
                    label(worker) + (was ? " was " : " has ") + worker.dismissal},
        true);
}

std::string Answers::ended() const {
  return fmt::format("job '{}' has ended: {}", spec_.name, recorder_.stop_reason());
}

}  // namespace syncd
