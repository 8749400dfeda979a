// Whether a joiner may come in, as which rank, and with which clock. Changes nothing of the job.
// One thread at a time.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "daemon/core/engine/answers.h"
#include "daemon/core/engine/group.h"
#include "daemon/core/engine/liveness.h"
#include "daemon/core/engine/loop.h"

namespace syncd {

class Admission {
 public:
  Admission(const EngineServices& engine, const JobSpec& spec, const Roster& roster,
            const Recorder& recorder, const Liveness& liveness, const Loop& loop,
            const Group& group, Answers& answers)
      : engine_(engine),
        spec_(spec),
        roster_(roster),
        recorder_(recorder),
        liveness_(liveness),
        loop_(loop),
        group_(group),
        answers_(answers) {}

  // ---- Each answers the joiner when it says no.
  // The joiner asks for what this job cannot be, whoever its members are: another policy, another
  // size, an impossible rank.
  bool refuses(const Caller& caller, const wire::Join& join) const;
  // It is of an earlier job by this name, or of a later one than this daemon's store knows.
  bool refuses_epoch(const Caller& caller, const wire::Join& join) const;
  // One more worker would be too many. `holder`: who had its rank before; may be null.
  bool refuses_one_more(const Caller& caller, const wire::Join& join, const Worker* holder);
  // Its rank: the old one by name and host, the one that it asks for, or the lowest free one.
  std::optional<Rank> place_for(const Caller& caller, const wire::Join& join) const;

  // The clock that this place has reached, as far as the daemon knows and the joiner reports.
  Clock own_clock(const Worker* known, const wire::Join& join) const;
  // Clock and base of a worker that enters a running job.
  std::pair<Clock, Clock> entry_clocks(Clock own, Clock base, bool returns) const;

 private:
  std::string too_many_members() const;
  std::string too_many_edges(const std::string& host) const;
  std::string check_world(const wire::Join& join) const;
  std::string second_group_hint() const;
  bool refuses_second_name(const Caller& caller, const wire::Join& join) const;

  EngineServices engine_;
  const JobSpec& spec_;
  const Roster& roster_;
  const Recorder& recorder_;
  const Liveness& liveness_;
  const Loop& loop_;
  const Group& group_;
  Answers& answers_;
};

}  // namespace syncd
