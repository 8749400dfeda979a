// Where is a worker's process? Asks it for the stacks of its threads and tells who wanted to know.
// The process answers by itself, on a thread of its own (wire::InspectNotice, wire::Inspected). No
// answer in limits::kInspectTimeoutUs is an answer, too: its interpreter is held, or it is stopped.
//
// With inspect_on_hang those at fault are asked once a hang, and what they say is kept until the next
// one, in memory alone: stacks are for administrators, and histories are not. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/core/engine/answers.h"
#include "daemon/core/engine/engine_services.h"
#include "daemon/core/engine/liveness.h"
#include "daemon/core/engine/loop.h"
#include "daemon/core/engine/roster.h"

namespace syncd {

class Inspections {
 public:
  Inspections(const EngineServices& engine, const JobSpec& spec, const Roster& roster,
              Answers& answers, const Liveness& liveness, const Loop& loop)
      : engine_(engine),
        spec_(spec),
        roster_(roster),
        answers_(answers),
        liveness_(liveness),
        loop_(loop) {}

  // An administrator wants to know. Answered when the process has said so, or its time is over.
  void ask(const Caller& caller, const Worker& worker);
  void show_kept(const Caller& caller, const Worker& worker);
  // The first of these are asked, and what they say is kept in the place of what was kept before.
  void keep(const std::vector<Rank>& ranks);
  void answered(const Caller& caller, const Worker& worker, const wire::Inspected& inspected);
  void look();  // the timer has fired

 private:
  struct Pending {
    std::uint64_t number = 0;
    Micros until = 0;
    std::vector<Caller> callers;
    bool kept = false;
  };

  // False: the process cannot be asked; `failure` says why.
  bool start(const Worker& worker, std::string& failure);
  wire::InspectReply reply_about(const Worker& worker) const;
  void finish(const Worker& worker, std::string stacks, std::string failure);
  void set_timer();

  EngineServices engine_;
  const JobSpec& spec_;
  const Roster& roster_;
  Answers& answers_;
  const Liveness& liveness_;
  const Loop& loop_;
  std::map<Rank, Pending> pending_;
  std::map<Rank, wire::InspectReply> kept_;
  std::size_t callers_ = 0;  // of all that are pending
  std::uint64_t last_number_ = 0;
};

}  // namespace syncd
