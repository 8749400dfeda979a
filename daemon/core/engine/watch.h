// The watch of a job under observation (hang_after): says who is at fault when workers wait for too
// long. It counts as waiting what a policy holds back, and exchange: a worker has computed its
// iteration and stays in a collective with the others until its push (wire::Exchanging).
//
// Who is at fault, in this order:
// - who has left or was lost since a worker that exchanges was granted its iteration, and has not
//   done its part in it. That wait can never be met, so that it is said at once; who is cut off
//   then, too, and who went first is named first;
// - before the job's start, who has not asked to begin;
// - of those that exchange, the minority by iteration and state: where one waits in another
//   collective than the rest, that one. If no state has the majority, who is least advanced. Who is
//   cut off or silent is always among them;
// - of those that the policy waits for, who does not exchange.
// A worker in a phase that it announced is not at fault before its lease is over.
//
// It looks when a wait can be over the threshold, at the earliest, and costs nothing in between.
// What it knows does not outlive the daemon: after a restart workers wait, and say that they
// exchange, anew. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/engine/answers.h"
#include "daemon/core/engine/counters.h"
#include "daemon/core/engine/engine_services.h"
#include "daemon/core/engine/liveness.h"
#include "daemon/core/engine/loop.h"
#include "daemon/core/engine/recorder.h"
#include "daemon/core/engine/roster.h"

namespace syncd {

class Watch {
 public:
  Watch(const EngineServices& engine, const JobSpec& spec, Roster& roster, Recorder& recorder,
        Answers& answers, const Liveness& liveness, const Loop& loop, JobCounters& counters)
      : engine_(engine),
        spec_(spec),
        roster_(roster),
        recorder_(recorder),
        answers_(answers),
        liveness_(liveness),
        loop_(loop),
        counters_(counters) {}

  struct Hang {
    std::vector<Rank> ranks;  // at fault, the first culprit first; at most limits::kHangRanksMax
    std::size_t count = 0;    // how many there are; 0: all are in the same state
    std::string causes;       // the same, while the same are at fault for the same reason
    std::string text;         // "waiting for worker 3 (node-b), in iteration 20 for 31.0 s, ..."
    Iteration iteration = kNoIteration;  // of the longest wait
    Micros waiting_us = 0;
  };

  bool is_on() const { return spec_.hang_after_us != 0; }
  // ---- events
  void start();  // of the job, or of the daemon
  void exchanging(const Worker& worker, Iteration iteration, Micros for_us);
  void gone(const Worker& worker, const std::string& reason);  // it has left, or is lost
  // Its timer has fired. True: a hang has begun.
  bool look();

  // ---- views
  const std::optional<Hang>& hang() const { return hang_; }
  // Since when it exchanges in its iteration; -1: it does not.
  Micros exchanging_since(const Worker& worker) const;
  // A worker that is to be given up is kept until then, because it was not named yet. 0: it is not.
  Micros keeps_until(const Worker& worker) const;

 private:
  // What is known of a worker beside what the job knows.
  struct Seen {
    Iteration exchanging = kNoIteration;
    Micros since = -1;    // when it began to exchange in that one
    Micros heard = -1;    // when it said so last
    Micros gone_at = -1;  // when it left or was lost; -1: it is a member
    bool lost = false;
    std::string reason;
  };
  // How far a worker is, in the order of an iteration.
  enum class Stage : std::uint8_t { kBetween, kWaits, kComputes, kExchanges, kSilent, kCut };
  struct Place {
    Iteration iteration = kNoIteration;
    Stage stage = Stage::kBetween;
    auto operator<=>(const Place&) const = default;
  };
  struct Waits {
    const Worker* exchanging = nullptr;  // of those above the threshold, who waits longest
    const Worker* pending = nullptr;     // likewise
    Micros next_due = kNever;            // of those below it
  };

  Micros threshold() const;
  Micros find_threshold() const;
  Micros said_every() const;
  Micros waits_since(const Worker& worker) const;
  Waits find_waits(const Worker* but = nullptr) const;
  Place place(const Worker& worker, bool others_speak) const;
  bool has_silent_majority() const;
  // Whether `gone` has left the worker, which exchanges, alone with its iteration.
  bool leaves_alone(const Worker& worker, Rank gone, const Seen& seen) const;
  std::vector<Rank> find_gone() const;
  std::vector<Rank> find_not_begun() const;
  std::vector<Rank> find_minority() const;
  std::vector<Rank> find_waited_for(const Worker& waiting) const;
  // Those of them that are in no phase; `phase_end`: of the first of the others.
  std::vector<Rank> without_phases(const std::vector<Rank>& ranks, Micros& phase_end) const;
  Hang describe(const std::vector<Rank>& ranks, const Worker& waiting) const;
  std::string phrase(Rank rank, std::string& cause) const;
  bool open(Hang hang);
  void tell(const char* event, const Hang& hang);
  void set_timer(Micros at);

  EngineServices engine_;
  const JobSpec& spec_;
  Roster& roster_;
  Recorder& recorder_;
  Answers& answers_;
  const Liveness& liveness_;
  const Loop& loop_;
  JobCounters& counters_;
  std::map<Rank, Seen> seen_;  // of workers that have exchanged for long, or are gone
  std::set<Rank> gone_;        // the latter, at most limits::kHangRanksMax
  // What threshold() found, for it looks at every worker; good for limits::kHangLookUs.
  mutable Micros threshold_us_ = 0;
  mutable Micros threshold_at_ = -1;  // -1: not found yet
  std::optional<Hang> hang_;
  Micros timer_at_ = kNever;
};

}  // namespace syncd
