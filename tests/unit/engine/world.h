// A random world around the engine: worker processes that behave as the client library does, the
// connections between, and a store that may lose its end. Everything that the engine says is shown
// to the model, and to a second engine that must say the same. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "model.h"
#include "tests/support/random.h"

namespace syncd::test {

struct WorldOptions {
  Rules rules;
  std::uint64_t seed = 0;
  int steps = 100;      // of disorder, before everything is let run to its end
  int processes = 4;    // at the beginning
  bool durable = true;  // else acknowledgements do not wait for the store
  bool traced = false;  // keeps what happened, for the message of a failure
};

class World {
 public:
  explicit World(const WorldOptions& options);

  // Throws Violation.
  void run();
  // The latest events, if they were traced.
  std::string trace() const;
  // How often each kind of answer, record and fault came about.
  const std::map<std::string, std::uint64_t>& counts() const { return counts_; }

 private:
  // A worker process, with what the client library remembers for it.
  struct Process {
    std::string name, host;
    std::int32_t wanted_rank = -1;
    std::vector<std::uint8_t> data;
    std::uint32_t notices = 0;
    bool dead = false;       // gone without a word, or given up
    bool done = false;       // it left, or the job has ended
    bool frozen = false;     // computes for ever
    Micros phase_until = 0;  // of a phase that it has announced; 0: none
    ConnectionId connection = 0;
    bool joined = false;  // on this connection
    wire::WorkerRef ref;
    Iteration granted = kNoIteration, pushed = kNoIteration, next = 0;
    bool open = false;  // `granted` was handed out and is not pushed yet
    bool begin_stands = false, push_stands = false, leave_stands = false;
    Iteration begin_asked = 0;
    RequestId join = 0, begin = 0, push = 0, leave = 0;  // on their way; 0: none
    int refusals = 0;
    int pushes = 0;  // acknowledged in this process's life
    bool alive() const { return !dead && !done; }
  };
  struct Held {
    std::size_t needed = 0;  // records that must be committed first
    Reply reply;
  };
  using Frame = std::pair<RequestId, wire::Body>;

  // ---- world.cpp: engine, time, store
  void start_engine();
  void step(const Event& event);
  void refused_step(const Event& event);  // one that must not change anything
  void advance(Micros span);
  void absorb();
  void commit(std::size_t records);
  void crash();
  void check_replay();
  void note(const std::string& line);
  void note_effects();
  void count_effects();

  // ---- world_processes.cpp: what processes do, and what they make of answers
  bool act(Process& process);
  void send_join(Process& process);
  RequestId request(ConnectionId connection, wire::Body body);
  void cut(ConnectionId connection);
  void forget_connection(Process& process);
  bool deliver(ConnectionId connection);
  void on_frame(Process& process, RequestId id, const wire::Body& body);
  void on_joined(Process& process, const wire::Joined& joined);
  void on_granted(Process& process, const wire::Granted& granted);
  void on_error(Process& process, RequestId id, const wire::Error& error);
  bool still_fits(const Process& process) const;

  // ---- world_disorder.cpp: everything that may happen, and the end
  void live();
  void disturb(Process& process);
  void announce_phase(Process& process);
  void manage(const Process& process);
  void repeat_request(Process& process);
  void send_stale(Process& process);
  void replace(Process& process);
  void add_process();
  void happen_late();
  void stop_job();
  void settle(int pushes);
  bool settle_round();
  bool reached(int pushes) const;
  std::size_t alive() const;
  void explain_all();
  void finish();
  Process& any_process() { return *processes_[random_.below(processes_.size())]; }

  WorldOptions options_;
  Random random_;
  JobSpec spec_;
  EngineOptions engine_options_;
  Model model_;
  std::unique_ptr<Engine> engine_, twin_;
  Effects effects_, twin_effects_;
  Micros now_ = 1'000'000;

  std::vector<std::unique_ptr<Process>> processes_;
  ConnectionId next_connection_ = 1;
  RequestId next_request_ = 1;
  int next_name_ = 0;
  std::uint64_t faults_one_in_;
  std::map<ConnectionId, std::deque<Frame>> inbox_;       // of the processes, by open connection
  std::deque<std::pair<ConnectionId, wire::Body>> late_;  // frames that a cut connection still had
  std::deque<ConnectionId> cut_;                          // not noticed by the daemon yet
  std::vector<wire::WorkerRef> old_refs_;

  std::vector<Record> stored_;
  std::size_t committed_ = 0;
  std::deque<Held> held_;
  std::vector<JobSnapshot> snapshots_;
  std::set<std::tuple<std::string, std::string, Iteration, bool>> acknowledged_;
  std::deque<std::string> trace_;
  std::map<std::string, std::uint64_t> counts_;
};

}  // namespace syncd::test
