// Watches a simulated decentralized job and notes every breach of what Hop and NOTIFY-ACK promise,
// at every event: each answer is the one that the rules give (peer_model.h), nobody who can be
// answered waits, no two workers are further apart than Table 1 of Hop's paper allows, no token
// queue holds too much, no update is written over one that is still needed, and each reduce finds
// each update that it is told of, whole, in its slot. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/sim/checker.h"
#include "tests/unit/sim/peer_model.h"

namespace syncd::test {

// What runs came across: a check that never applied would be none.
struct PeerTotals {
  std::uint64_t runs = 0, grants = 0, jumps = 0, reduces = 0;
  std::uint64_t updates = 0;             // read by reduces, the own ones left out
  std::uint64_t missing = 0;             // that backup workers did without
  std::uint64_t left_out = 0;            // out-neighbours that need not be sent to any more
  std::uint64_t stale = 0;               // read, of an iteration before the reduce's
  std::uint64_t overwritten = 0;         // slots that were used again
  std::uint64_t changes = 0;             // of the membership
  std::uint64_t answers_to_changes = 0;  // calls that a loss or a leave let go on
  std::uint64_t bounds = 0;              // pairs of workers and terms of Table 1
  std::uint64_t bounds_hold = 0;         // of these, those whose plain bound must hold
  std::uint64_t changed_bounds = 0, changed_bounds_hold = 0;  // the same after a change
  std::uint64_t reached = 0;  // pairs exactly as far apart as allowed
  std::uint64_t token_checks = 0;
  Micros longest_wait = 0;

  void add(const PeerTotals& other);
};

class PeerChecker final : public sim::Observer {
 public:
  // `ranks`: more than any rank that there will be.
  PeerChecker(const PeerRules& rules, std::uint32_t ranks);

  void after_event(sim::Simulation& simulation, const Event* event,
                   const Effects& effects) override;
  void after_start(sim::Simulation& simulation, Rank rank) override;
  void after_data(sim::Simulation& simulation, Rank from, Rank to, Iteration iteration) override;
  void after_collected(sim::Simulation& simulation, Rank rank, Iteration iteration,
                       const std::vector<wire::PeerUpdate>& updates) override;

  // After the run: also what checker.h finds.
  std::vector<std::string> breaches(const sim::Result& result) const;
  const PeerTotals& totals() const { return totals_; }

 private:
  // One change of the membership; an event may bring several.
  struct Change {
    enum class Kind { kStart, kEnter, kExit } kind = Kind::kExit;
    Rank rank = 0;
    Clock clock = 0;            // kEnter
    std::vector<Rank> members;  // kStart
  };

  void breach(const std::string& what);
  void take_request(const Request& request);
  void take_record(const Record& record, std::vector<Change>& changes);
  void apply(const Change& change);
  PeerModel::Worker* speaker(ConnectionId connection, Rank& rank);
  // Empty, and done; or why the answer is wrong, and nothing done.
  std::string take_reply(const Reply& reply);
  std::string take_granted(Rank rank, const wire::Granted& granted);
  std::string take_targets(Rank rank, const wire::TargetsReply& reply);
  std::string take_updates(Rank rank, const wire::CollectReply& reply);
  void check_gaps(Rank rank);
  void check_tokens(Rank rank);
  void look_around();

  // What lies in the slots of the queue that `from` fills and `to` reads.
  std::vector<Iteration>& queue(Rank from, Rank to) { return queues_[from * model_.ranks() + to]; }
  // The sets that a worker was told to reduce, from then until its next begin is granted: a trainer
  // may read them for as long. NOTIFY-ACK: until it has said that it is done with them.
  struct Reading {
    Iteration iteration = 0;
    std::vector<wire::PeerUpdate> updates;
  };

  PeerRules rules_;
  PeerModel model_;
  Checker general_;
  Micros now_ = 0;
  std::uint64_t events_ = 0;
  ConnectionId asking_ = 0;  // of the present event
  std::vector<std::vector<Iteration>> queues_;
  std::vector<std::vector<Reading>> reading_;  // by rank
  PeerTotals totals_;
  bool changed_ = false;
  std::vector<std::string> breaches_;
};

// Runs it under a checker and adds to `totals`. Fails the test, with what was breached.
sim::Result run_peers_checked(sim::Options options, const PeerRules& rules, PeerTotals& totals);

}  // namespace syncd::test
