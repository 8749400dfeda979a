// What a job says: answers to requests, notices to connected workers, and log lines. They go into
// the effects of the event that is handled. During recovery nobody listens and nothing is said. One
// thread at a time.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/effects.h"
#include "daemon/core/engine/engine_services.h"
#include "daemon/core/engine/job_spec.h"
#include "daemon/core/engine/recorder.h"
#include "daemon/core/engine/roster.h"
#include "proto/base/fields.h"

namespace syncd {

// "worker 3 (node-a, worker-3)"
std::string label(const Worker& worker);

class Answers {
 public:
  // What the reason of a loss begins with that an operator asked for. The history stores it, and a
  // restart recognises it by this very text.
  static constexpr const char* kKickedReason = "kicked by an operator";
  // Likewise of a loss because the worker's launch was started again.
  static constexpr const char* kSupersededReason = "superseded by a later start of launch";
  // Of a loss because the others of a round could wait no longer.
  static constexpr const char* kFencedReason = "fenced: ";

  using Fields = std::vector<std::pair<std::string, std::string>>;

  Answers(const EngineServices& engine, const JobSpec& spec, Roster& roster,
          const Recorder& recorder)
      : engine_(engine), spec_(spec), roster_(roster), recorder_(recorder) {}

  wire::WorkerRef ref(const Worker& worker) const {
    const Epoch told = worker.told_epoch != 0 ? worker.told_epoch : recorder_.epoch();
    return {engine_.job(), worker.rank, told, worker.incarnation};
  }

  template <class Body>
  void reply(const Caller& caller, Body&& body, bool after_records = false) {
    Effects* effects = engine_.effects();
    if (effects == nullptr || caller.connection == 0) return;
    // The end of a job must be on disk before a worker hears of it. Otherwise the job would be live
    // again after a crash, and wait for a worker that has ended its loop.
    after_records = after_records || roster_.state() == JobState::kStopped;
    effects->replies.emplace_back(caller, after_records, std::forward<Body>(body));
  }
  [[gnu::cold]] void refuse(const Caller& caller, Status status, std::string text);
  template <class... Args>
  [[gnu::cold]] void refuse(const Caller& caller, Status status,
                            fmt::format_string<const Args&...> text, const Args&... args) {
    refuse(caller, status, fmt::format(text, args...));
  }
  // To a worker of this connection; 0: it has none.
  void notify(ConnectionId connection, wire::Body body, bool after_records = false);
  void log(LogLevel level, std::string event, const Worker* worker, Fields fields = {});

  // ---- checks of a request. They answer it if they fail.
  // The worker that asks; null: it may not.
  SYNCD_INLINE Worker* check(const Caller& caller, const wire::WorkerRef& ref) {
    Worker* worker = roster_.find(ref.rank);
    const bool may_ask = worker != nullptr &&
                         (ref.epoch == recorder_.epoch() || ref.epoch == worker->told_epoch) &&
                         ref.incarnation == worker->incarnation &&
                         caller.connection == worker->connection && is_member(worker->state);
    if (!may_ask) {
      refuse_worker(caller, ref);
      return nullptr;
    }
    worker->predecessor = 0;
    return worker;
  }
  // True: the job has ended.
  bool refuses_as_ended(const Caller& caller) {
    if (roster_.state() != JobState::kStopped) return false;
    refuse(caller, Status::kStopped, ended());
    return true;
  }
  // True: the store takes no records now.
  bool refuses_store(const Caller& caller) {
    const std::string* why = engine_.store_refusal();
    if (why == nullptr) return false;
    refuse(caller, Status::kStore, "the daemon cannot write its history now: {}", *why);
    return true;
  }
  // To the process of a worker that an operator sent away. It waits for the disk: after a crash the
  // worker would be a member again, and no process would run its loop.
  void refuse_dismissed(const Caller& caller, const Worker& worker);
  std::string ended() const;  // "job 'a' has ended: ..."

 private:
  [[gnu::cold]] void refuse_worker(const Caller& caller, const wire::WorkerRef& ref);

  EngineServices engine_;
  const JobSpec& spec_;
  Roster& roster_;
  const Recorder& recorder_;
};

}  // namespace syncd
