// Who is late, and who is given up: one timer for each worker, and the long phases in which a
// worker is not late. One thread at a time.
//
// The timer is lazy. Progress moves the deadline without touching the timer, which looks at the
// present deadline when it fires.
#pragma once

#include <string>

#include "daemon/core/engine/answers.h"
#include "daemon/core/engine/engine_services.h"
#include "daemon/core/engine/job_spec.h"
#include "daemon/core/engine/membership.h"
#include "daemon/core/engine/roster.h"

namespace syncd {

class Liveness {
 public:
  Liveness(const EngineServices& engine, const JobSpec& spec, const Roster& roster,
           Answers& answers, Membership& membership)
      : engine_(engine),
        spec_(spec),
        roster_(roster),
        answers_(answers),
        membership_(membership),
        least_patience_us_{least_patience(spec, false), least_patience(spec, true)} {}

  // The worker has shown a sign of life.
  void progressed(Worker& worker) {
    worker.progressed(engine_.now(), engine_.stalled_since(worker.quiet_since()));
  }
  // Its deadline may be earlier than before. Nearly always the timer that is set fires before the
  // worker can be late, and stays as it is.
  void arm(Worker& worker) {
    const Micros least_us = least_patience_us_[worker.spans.are_known() ? 1 : 0];
    const bool is_early = worker.liveness_at - worker.active_at <= least_us;
    if (!is_early || worker.disconnected_at >= 0) arm_anew(worker);
  }
  void disarm(Worker& worker);
  // Its timer has fired. `in_iteration`: it was granted an iteration and has not ended it.
  void check(Worker& worker, bool in_iteration);

  // The phase begins, or goes on under a new lease if its old one still runs. No name: it is over.
  void set_phase(Worker& worker, const std::string& name, Micros lease_us);
  void end_phase(Worker& worker) {
    if (!worker.phase.empty()) end_phase_now(worker);
  }

  // What the worker is doing, for people.
  std::string describe(const Worker& worker, bool in_iteration) const;

  // A worker that is not connected has its grace from then on, if that is later.
  void set_amnesty(Micros until) { amnesty_until_ = until; }

 private:
  Micros silent_since(const Worker& worker) const;
  Micros deadline(const Worker& worker) const;
  void arm_anew(Worker& worker);
  void end_phase_now(Worker& worker);

  EngineServices engine_;
  const JobSpec& spec_;
  const Roster& roster_;
  Answers& answers_;
  Membership& membership_;
  Micros least_patience_us_[2];  // while a worker's spans are not known, and then
  Micros amnesty_until_ = 0;
};

}  // namespace syncd
