// A list of engine events from a number: workers that behave as the client library does, sometimes
// against the rules, with operators, a failing store and a daemon that dies. What comes next
// depends on what the engine answered, and on nothing else but the number. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "effects_form.h"
#include "tests/support/random.h"

namespace syncd::test {

struct ListHashes {
  std::string policies;  // of its jobs, with blanks between
  std::uint64_t seed = 0;
  std::uint64_t count = 0;  // of events
  std::uint64_t events = 0, effects = 0;
};

// How often something occurred: ("request", "Begin"). Both names are constants of the program.
using Counts = std::map<std::pair<std::string_view, std::string_view>, std::uint64_t>;

class EventList {
 public:
  // `text`, if it is not null, gets every event and its effects. `counts` is added to.
  EventList(std::uint64_t number, Counts& counts, std::string* text = nullptr);

  ListHashes run();

 private:
  struct JobToRun {
    JobSpec spec;
    bool peers = false;
    bool push_follows_compute = false;  // a decentralized worker computes before it sends
  };
  enum class At { kBegin, kCompute, kTargets, kPush, kCollect, kConsumed };
  enum class Ask { kNothing, kJoin, kBegin, kTargets, kPush, kCollect, kConsumed, kOther, kLeave };
  struct Process {
    std::size_t job = 0;
    std::string name, host;
    std::int32_t wanted_rank = -1;
    std::vector<std::uint8_t> data;
    std::uint32_t notices = 0;
    bool names_policy = false;
    ConnectionId connection = 0, last_connection = 0;
    bool joined = false, gone = false, resync = false;
    wire::WorkerRef ref, last_ref;
    At at = At::kBegin;
    Ask ask = Ask::kNothing;
    RequestId pending = 0;  // 0: every request is answered
    Iteration next = 0, granted = -1, pushed = -1, collected = -1, consumed = -1;
    Iteration last = 0;  // after which it leaves
    Micros busy_until = 0, pace = 0, phase_until = 0;
    int errors = 0;  // in a row
  };

  // ---- event_list_engine.cpp: the engine, its timers, plans and store
  void make_engine();
  void declare(const JobSpec& spec);
  void step(Event event);
  void tick(std::size_t timers_max);
  void advance(Micros span);
  void absorb();
  void deliver_plan();
  void restart(std::size_t records_lost);
  void add_state();
  void begin_text(const std::string& event);
  void count_effects();
  void count(std::string_view kind, std::string_view name) { ++counts_[{kind, name}]; }

  // ---- event_list.cpp: what processes do, and what they make of answers
  JobToRun choose_job(std::uint64_t kind, std::string name);
  void make_job(const JobToRun& job);
  void add_process(std::size_t job);
  RequestId request(ConnectionId connection, wire::Body body);
  void send(Process& process, Ask ask, wire::Body body);
  void join(Process& process);
  void act(Process& process);
  bool act_any();
  bool can_act(const Process& process) const;
  void answer(Process& process, const wire::Body& body);
  void on_joined(Process& process, const wire::Joined& joined);
  void on_granted(Process& process, const wire::Granted& granted);
  void on_error(Process& process, const wire::Error& error);
  void notify(ConnectionId connection, const wire::Body& body);
  void forget_connection(Process& process);

  // ---- event_list_disorder.cpp: everything else that may happen
  void disorder();
  void disturb(Process& process);
  void cut(ConnectionId connection);
  void send_stray(Process& process);
  void repeat(Process& process);
  void ask_about(Process& process);
  void manage(const Process& process);
  void announce_phase(Process& process);
  void operate();
  void trouble();
  Process& any_process() { return *processes_[random_.below(processes_.size())]; }
  JobToRun& any_job() { return random_.pick(jobs_); }

  std::uint64_t number_;
  Random random_;
  Counts& counts_;
  std::string* text_;
  std::uint64_t count_ = 0, count_wanted_ = 0;
  EffectsForm form_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  Effects effects_;
  std::vector<PlanReady> results_;  // of the plans of effects_
  Micros now_ = 1'000'000;
  Micros silence_ = 0;          // the longest pause of all processes
  std::size_t timers_max_ = 1;  // of one tick
  std::uint64_t calm_ = 1;      // so many events without disorder to one with it
  int store_down_ = 0;          // events until the store takes records again
  bool shut_down_ = false;
  Micros slow_ = 1;        // iterations take so many times as long as usual
  bool switches_ = false;  // operators change the policy
  bool worlds_ = false;    // workers say the size of their group

  std::vector<JobToRun> jobs_;
  std::vector<std::unique_ptr<Process>> processes_;
  ConnectionId next_connection_ = 1;
  RequestId next_request_ = 1;
  int next_name_ = 0;
  std::vector<PlanReady> plans_;  // on their way
  std::vector<Record> stored_;    // in the order in which the engine made them
  std::vector<JobSnapshot> snapshots_;
};

}  // namespace syncd::test
