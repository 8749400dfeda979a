// Random worlds for parameter-server policies: workers that follow the protocol against the real
// engine, in any order that chance brings, with losses, joins, returns, re-syncs, policy switches
// and restarts of the daemon. Clocks, bases and who takes part are counted anew from the records
// alone, and every grant and every re-sync is checked against them. One thread, no clock but the
// world's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "daemon/core/engine/engine.h"

namespace syncd::test {

// What must hold at a grant under one policy.
struct PolicyUnderTest {
  std::string text;
  std::optional<std::int64_t> bound;  // of q_i - q_min at a grant
  bool of_participants = false;       // q_min over the participants of the superstep
  // SpecSync with a fixed pair: none for adaptive tuning, and for no speculation.
  std::optional<Micros> abort_time;
  double abort_rate = 0;
  std::uint32_t max_restarts = 0;
};

struct ServerWorldOptions {
  std::vector<PolicyUnderTest> policies;  // starts with the first; switches between all
  std::uint32_t workers = 5;
  bool membership = false;  // losses, leaves, joins, returns
  bool restarts = false;    // of the daemon
  bool switches = false;
  int steps = 1500;
  std::uint64_t seed = 0;
};

struct ServerViolation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class ServerWorld {
 public:
  explicit ServerWorld(const ServerWorldOptions& options);
  void run();  // throws ServerViolation
  std::uint64_t grants() const { return grants_; }
  std::uint64_t at_bound() const { return at_bound_; }  // grants with no room left
  std::uint64_t barriers() const { return barriers_; }
  std::uint64_t resyncs() const { return resyncs_; }
  std::uint64_t tunings() const { return tunings_; }

 private:
  struct Process {
    std::string name;
    ConnectionId connection = 0;
    wire::WorkerRef ref;
    bool joined = false, gone = false, done = false;
    bool stands = false;  // a request is not answered yet
    RequestId request = 0;
    Iteration next = 0, granted = -1, pushed = -1;
    Micros busy_until = 0;
    Micros pace = 0;
    bool resync = false;
    std::uint32_t resyncs = 0;      // in this iteration
    Micros pulled_at = 0;           // its latest grant or restart
    std::uint64_t others_then = 0;  // pushes by others then
    bool computing() const { return granted > pushed; }
  };
  // As the records tell it.
  struct Counted {
    Clock clock = 0, base = 0;
    bool member = false, active = false, takes_part = false;
    std::uint64_t pushes = 0;
  };

  void send(std::size_t p, wire::Body body);
  void step(Event event);
  void tick();
  void drive(const Effects& effects);
  void read(const Record& record);
  void answer(std::size_t p, const wire::Body& body);
  void on_grant(Process& process, const wire::Granted& granted);
  void on_resync(Process& process, const wire::ResyncNotice& notice);
  void act(std::size_t p);
  void join(std::size_t p, bool again);
  void deliver_plan();
  void disorder();
  void lose_or_leave(std::size_t p);
  void restart_daemon();
  void set_policy();
  void rebase();
  bool can_act(const Process& p) const;
  std::uint64_t others(Rank rank) const;
  [[noreturn]] void fail(const std::string& what) const;

  ServerWorldOptions options_;
  const PolicyUnderTest* policy_;
  std::mt19937_64 random_;
  std::unique_ptr<Engine> engine_;
  std::vector<Record> records_;
  std::optional<JobSnapshot> snapshot_;  // an earlier one
  Micros now_ = 1'000'000;
  std::vector<Process> processes_;
  ConnectionId next_connection_ = 1;
  RequestId next_request_ = 1;
  std::deque<Plan> plans_;
  std::map<Rank, Counted> counted_;
  bool running_ = false;
  bool several_lost_ = false;  // in one event: nobody can say between which of them a grant was
  std::uint64_t pushes_ = 0, grants_ = 0, at_bound_ = 0, barriers_ = 0, resyncs_ = 0, tunings_ = 0;
};

}  // namespace syncd::test
