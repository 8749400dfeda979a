// Which workers of a job are slower than is usual for them, beside the others: feeds the detector
// with each push, and makes records, notices and log lines of its verdicts. One thread at a time.
//
// A verdict is a record, and only that changes the state. A replayed push feeds the detector and
// decides nothing: what it decided follows. A snapshot has who is slow, what is usual for each
// worker and how noisy the job is; sums on their way to a verdict begin anew after it.
//
// What always holds:
// - Only active workers are slow: who leaves, is lost or is another process now is judged anew.
// - The latest span of an active worker alone is a reference for the others.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "daemon/core/engine/answers.h"
#include "daemon/core/engine/counters.h"
#include "daemon/core/engine/engine_services.h"
#include "daemon/core/engine/recorder.h"
#include "daemon/core/engine/roster.h"
#include "daemon/core/engine/straggler_detector.h"

namespace syncd {

class StragglerWatch {
 public:
  StragglerWatch(const EngineServices& engine, Roster& roster, Recorder& recorder, Answers& answers,
                 JobCounters& counters)
      : engine_(engine),
        roster_(roster),
        recorder_(recorder),
        answers_(answers),
        counters_(counters) {}

  // Whether an iteration counts. With fewer workers there is no verdict, and nothing to be kept.
  // Without a parameter server workers push before they compute, so that a span says nothing unless
  // they mark it.
  bool compares(Micros computed_us, bool decentralized) const {
    return roster_.active().size() > StragglerDetector::kOthersMin &&
           (!decentralized || computed_us >= 0);
  }
  // A push of the worker was recorded, live or replayed.
  void note_push(Worker& worker, const Record& push, bool decentralized) {
    verdict_.reset();
    if (compares(push.computed_us, decentralized) && worker.active()) judge(worker, push);
  }
  // A worker wants to be told of verdicts.
  void note_listener() { has_listeners_ = true; }
  // Makes a record of the verdict on this push, if there was one.
  void announce(Worker& worker, Iteration pushed) {
    if (verdict_) announce_verdict(worker, pushed);
  }

  // ---- recorded facts, live or replayed
  void apply(const Record& verdict);
  // The worker takes part no more, or is another process.
  void forget(Worker& worker);

  // ---- snapshots
  void save(JobSnapshot& out) const { out.noise = detector_.noise() > 1 ? detector_.noise() : 0; }
  void restore(double noise) { detector_.restore_noise(noise); }
  void restore(Worker& worker);

  // ---- views
  std::uint32_t count() const { return static_cast<std::uint32_t>(slow_.size()); }
  // "slow: 3 (2.1 times)", of the first few; empty: nobody is.
  std::string text() const;

 private:
  void judge(Worker& worker, const Record& push);
  void announce_verdict(Worker& worker, Iteration pushed);
  std::string host_note(const std::string& host, bool one_more) const;
  void set_slow(Worker& worker, Micros since, double factor);
  void set_usual(Worker& worker);  // slow no longer
  void tell(const Worker& worker, const StragglerVerdict& verdict, Micros since,
            const std::string& host_note);

  EngineServices engine_;
  Roster& roster_;
  Recorder& recorder_;
  Answers& answers_;
  JobCounters& counters_;
  StragglerDetector detector_;
  bool has_listeners_ = false;  // stays true when that worker has left
  std::set<Rank> slow_;
  std::map<std::string, std::uint32_t> slow_on_;  // those of a host
  std::optional<StragglerVerdict> verdict_;       // on the latest push
};

}  // namespace syncd
