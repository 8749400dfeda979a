// Watches a simulation and notes every breach of what all policies keep: the granted iterations of
// a worker rise, the policy's bound on staleness holds at every grant, nobody waits for a worker
// that has gone, no workers wait for one another in a circle, every wait has an explanation, and
// nothing is refused or stalls. Of bsp also: a superstep begins when all but the backup workers
// have finished the one before, neither sooner nor later. Of specsync: who is advised to start over
// computes, has not been advised already, and has waited as long and seen as many pushes by others
// as fixed settings demand. One thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/engine/policy.h"
#include "daemon/tools/sim/simulation.h"

namespace syncd::test {

// The most that q_i - q_min can be at a grant; empty: the policy does not bound it.
std::optional<std::int64_t> staleness_bound(const std::string& policy);

// bsp[:K][,backup=B], not under an overlay.
struct Supersteps {
  std::int64_t every = 1;
  std::int64_t backup = 0;
  std::int64_t open = 0;  // the latest that has begun
};
std::optional<Supersteps> supersteps_of(const std::string& policy);

// specsync over any base.
struct Speculation {
  std::int64_t max_restarts = 1;
  // fixed; adaptive tuning has its own for each worker.
  std::optional<Micros> abort_time = {};
  double abort_rate = 0;
};
std::optional<Speculation> speculation_of(const std::string& policy);

// What runs came across: a check that never applied would be none.
struct CheckerTotals {
  std::uint64_t grants = 0;
  std::uint64_t at_bound = 0;         // with the highest staleness that the policy allows
  std::uint64_t known_staleness = 0;  // compared with what the records say
  std::uint64_t exits = 0, switches = 0;
  std::uint64_t without_backups = 0;  // supersteps of bsp that began while somebody lay behind
  std::uint64_t advices = 0;          // to start an iteration over
};

class Checker final : public sim::Observer {
 public:
  // `look_every`: after so many events, and whenever a worker goes, all waits are asked for.
  explicit Checker(const std::string& policy, std::uint64_t look_every = 10);

  void after_event(sim::Simulation& simulation, const Event* event,
                   const Effects& effects) override;

  // After the run: also what the result itself says of stalls and refusals.
  std::vector<std::string> breaches(const sim::Result& result) const;

  std::uint64_t grants() const { return totals_.grants; }
  const CheckerTotals& totals() const { return totals_; }
  std::uint64_t digest() const { return digest_; }  // of all that the engine said

 private:
  void breach(sim::Simulation& simulation, const std::string& what);
  void check_grant(sim::Simulation& simulation, const Reply& reply, const wire::Granted& granted);
  void check_waits(sim::Simulation& simulation);
  void take_record(sim::Simulation& simulation, const Record& record);
  void take_barrier(sim::Simulation& simulation);
  void take_advice(sim::Simulation& simulation, const wire::ResyncNotice& notice);
  void open_superstep();
  void check_staleness(sim::Simulation& simulation, Rank rank, const wire::Granted& granted);

  // Parameter server: clocks as the stored records and the grants tell them.
  struct Place {
    bool active = false;
    bool takes_part = false;  // elastic_bsp: in the present superstep
    Clock clock = 0;
    Clock base = 0;
    bool computes = false;        // an iteration was granted to it that it has not pushed
    bool owes_a_barrier = false;  // a barrier was recorded since its latest grant
    // Of the iteration that it computes.
    Micros pulled_at = 0;              // the grant, or the latest restart
    std::uint64_t pushes_at_pull = 0;  // of all workers
    std::int64_t advices = 0;
    bool advised = false;  // and has not started over yet
  };
  struct LastGrant {
    ConnectionId connection = 0;
    Iteration iteration = kNoIteration;
  };
  std::string policy_;
  PolicyTraits traits_;
  std::optional<std::int64_t> bound_;
  std::optional<Supersteps> supersteps_;
  std::optional<Speculation> speculation_;
  bool may_be_late_ = false;  // a policy has let workers jump over iterations
  std::uint64_t pushes_ = 0;
  std::uint64_t look_every_;
  std::uint64_t events_ = 0;
  CheckerTotals totals_;
  std::uint64_t digest_ = 14695981039346656037U;
  std::map<Rank, LastGrant> last_;
  std::set<Rank> gone_;
  bool started_ = false;
  std::map<Rank, Place> places_;
  int exits_ = 0;  // in the present event
  std::vector<std::string> breaches_;
};

// Runs it under a checker, and adds to `totals`. Fails the test, with what was breached, if
// anything was.
sim::Result run_checked(sim::Options options, CheckerTotals* totals = nullptr);

}  // namespace syncd::test
