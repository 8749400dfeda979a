// The daemon's side of a simulation: its own engine, what is asked of it, and where its answers go.
// One thread at a time.
#pragma once

#include <deque>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "daemon/tools/sim/world.h"

namespace syncd::sim {

class DaemonSide {
 public:
  struct PlanOnItsWay {
    Micros at = 0;
    std::uint64_t order = 0;
    PlanReady ready;
  };

  explicit DaemonSide(World& world);

  const Engine& engine() const { return engine_; }
  std::vector<WaitReport> waits();

  void create_job();
  void deliver(Message& message);  // precondition: one to the daemon
  void tick();
  // The next plan to come back; null: none is being worked on.
  const PlanOnItsWay* next_plan() const { return plans_.empty() ? nullptr : &plans_.front(); }
  void plan_ready();  // precondition: there is one

 private:
  void step(Event&& event);
  void route();
  void route(Reply& reply);
  SimWorker* life_of(ConnectionId connection);

  World& world_;
  Engine engine_;
  Effects effects_;
  std::deque<PlanOnItsWay> plans_;  // few: a plan per superstep
};

}  // namespace syncd::sim
