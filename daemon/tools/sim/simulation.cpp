// See simulation.h. The daemon's side is the engine itself; this file plays the clock: it says
// which of all that is going to happen comes next.
#include "daemon/tools/sim/simulation.h"

#include <algorithm>

#include "daemon/tools/sim/daemon_side.h"
#include "daemon/tools/sim/worker_side.h"
#include "proto/base/check.h"

namespace syncd::sim {

class Simulation::Impl {
 public:
  Impl(Simulation& outer, Options options)
      : world_(outer, std::move(options)), daemon_(world_), workers_(world_) {}

  Result run() {
    daemon_.create_job();
    for (Rank rank = 0; rank < world_.options.workers; ++rank) workers_.start_process(rank);
    Model* model = world_.options.model;
    bool enough = false;
    while (!enough && next()) enough = model != nullptr && model->enough(world_.now);
    if (!enough) world_.now = world_.options.duration_us;
    world_.tally.result().virtual_s = static_cast<double>(world_.now) / 1e6;
    workers_.finish();
    return world_.tally.finish(world_.workers, daemon_.engine());
  }

  const Engine& engine() const { return daemon_.engine(); }
  Micros now() const { return world_.now; }
  std::vector<WaitReport> waits() { return daemon_.waits(); }

 private:
  // ---- the agenda

  // Handles what comes next. False: the end, or a stall.
  bool next() {
    // Of equal times the earliest planned comes first; the script was planned before all else, and
    // the engine's timers come last: what happens at a deadline has happened by then.
    void (Impl::*handle)() = nullptr;
    Micros at = kNever;
    std::uint64_t order = 0;
    const auto offer = [&](void (Impl::*what)(), Micros when, std::uint64_t number) {
      if (when > at || (when == at && number >= order)) return;
      handle = what;
      at = when;
      order = number;
    };
    if (script_at_ < world_.options.events.size()) {
      offer(&Impl::follow_script, world_.options.events[script_at_].at, 0);
    }
    if (!world_.messages.empty()) {
      offer(&Impl::deliver, world_.messages.front().at, world_.messages.front().order);
    }
    if (const auto* end = workers_.next_end()) offer(&Impl::end, end->at, end->order);
    if (const SharedLink& link = workers_.server_link(); !link.idle()) {
      const SharedLink::Next end = link.next();
      offer(&Impl::end_transfer, end.at, end.order);
    }
    if (const auto* plan = daemon_.next_plan()) offer(&Impl::take_plan, plan->at, plan->order);

    const Micros deadline = daemon_.engine().next_deadline();
    if (deadline < at) {
      if (deadline > world_.options.duration_us) return false;
      if (handle == nullptr && deadline - world_.progress_at > world_.options.stall_us)
        return stall();
      world_.now = std::max(world_.now, deadline);
      daemon_.tick();
      return true;
    }
    if (handle == nullptr) return stall();
    if (at > world_.options.duration_us) return false;
    SYNCD_CHECK(at >= world_.now);
    world_.now = at;
    (this->*handle)();
    return true;
  }

  // No event is left that could wake a worker. False, for next().
  bool stall() {
    const bool waiting = std::any_of(
        world_.workers.begin(), world_.workers.end(),
        [](const SimWorker& worker) { return worker.present() && worker.waiting_since >= 0; });
    if (waiting) {
      world_.tally.result().stalled = true;
      world_.tally.result().stalled_at = world_.progress_at;
      world_.tally.result().waits = daemon_.waits();
    }
    return false;
  }

  void follow_script() { workers_.happens(script_at_++); }
  void end() { workers_.ended(); }
  void end_transfer() { workers_.transfer_ended(); }
  void take_plan() { daemon_.plan_ready(); }
  void deliver() {
    Message& message = world_.messages.front();
    if (message.to_daemon) {
      daemon_.deliver(message);
    } else {
      workers_.deliver(message);
    }
    world_.messages.pop();
  }

  World world_;
  DaemonSide daemon_;
  WorkerSide workers_;
  std::size_t script_at_ = 0;
};

Simulation::Simulation(Options options) {
  SYNCD_CHECK(check_options(options).empty());
  impl_ = std::make_unique<Impl>(*this, std::move(options));
}
Simulation::~Simulation() = default;
Result Simulation::run() {
  return impl_->run();
}
const Engine& Simulation::engine() const {
  return impl_->engine();
}
Micros Simulation::now() const {
  return impl_->now();
}
std::vector<WaitReport> Simulation::waits() {
  return impl_->waits();
}

std::optional<Result> simulate(const Options& options, std::string& error) {
  error = check_options(options);
  if (!error.empty()) return std::nullopt;
  return Simulation(options).run();
}

}  // namespace syncd::sim
