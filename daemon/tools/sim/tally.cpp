// See tally.h.
#include "daemon/tools/sim/tally.h"

#include <fmt/format.h>

#include <string>

#include "daemon/core/engine/policy.h"
#include "daemon/core/policies/specsync.h"
#include "daemon/tools/sim/model.h"

namespace syncd::sim {
namespace {

double seconds(double us) {
  return us / 1e6;
}

}  // namespace

Tally::Tally(const Options& options) {
  result_.policy = options.policy;
  result_.workers = options.workers;
  result_.seed = options.seed;
  result_.virtual_s = seconds(static_cast<double>(options.duration_us));
  std::string error;
  const auto policy = make_policy(options.policy, error);
  result_.batches_per_iteration = policy->traits().peer_loop.batches;
  result_.unsafe = policy->traits().peer_loop.unsafe;
  result_.speculates = policy->traits().may_resync;
  for (const TimedEvent& event : options.events) {
    if (event.kind != TimedEvent::Kind::kSwitch) continue;
    const auto next = make_policy(event.policy, error);
    result_.speculates |= next && next->traits().may_resync;
  }
}

void Tally::barrier(const Record& record) {
  if (record.predicted_wait_us >= 0) predicted_us_.add(record.predicted_wait_us);
  if (record.wait_us >= 0) actual_us_.add(record.wait_us);
}

void Tally::note(const Record& record) {
  if (result_.speculation_off_s || record.reason != kSpeculationOff) return;
  result_.speculation_off_s = seconds(static_cast<double>(record.time_us));
}

void Tally::refused(Micros now, const wire::Error& error) {
  if (result_.refused.size() >= kRefusedMax) return;
  result_.refused.push_back(
      fmt::format("at {}: {}: {}", format_duration(now), status_name(error.status), error.message));
}

void Tally::reduced(Rank rank, const SimWorker& worker,
                    const std::vector<wire::PeerUpdate>& updates, bool unsafe) {
  ++result_.reduces;
  std::size_t whole = 0;
  for (const wire::PeerUpdate& update : updates) {
    if (update.rank == rank) continue;
    const auto inbox = worker.inboxes.find(update.rank);
    const bool there = unsafe
                           ? update.iteration >= 0
                           : inbox != worker.inboxes.end() && inbox->second.has(update.iteration);
    whole += there ? 1 : 0;
    ++(there                              ? result_.whole_updates
       : update.iteration == Model::kTorn ? result_.torn_updates
                                          : result_.missing_updates);
  }
  if (whole >= result_.reduces_of.size()) result_.reduces_of.resize(whole + 1);
  ++result_.reduces_of[whole];
}

Result Tally::finish(std::span<const SimWorker> workers, const Engine& engine) {
  for (const SimWorker& worker : workers) {
    result_.iterations += worker.iterations;
    result_.iterations_of.push_back(worker.iterations);
  }
  if (presence_us_ > 0) {
    const double present_s = seconds(presence_us_);
    result_.iterations_per_s_per_worker = static_cast<double>(result_.iterations) / present_s;
    result_.waiting_share = waiting_us_ / presence_us_;
    result_.transferring_share = transferring_us_ / presence_us_;
    result_.wasted_share = wasted_us_ / presence_us_;
    result_.skipped_per_s_per_worker = static_cast<double>(skipped_) / present_s;
  }
  result_.staleness_mean = staleness_.in(1).value_or(0);
  result_.missed_updates_mean = missed_.in(1).value_or(0);
  result_.updates_per_restart_mean = restart_updates_.in(1);
  for (const JobId job : engine.job_ids()) result_.barriers += engine.barriers(job);
  result_.predicted_wait_ms_mean = predicted_us_.in(1000);
  result_.actual_wait_ms_mean = actual_us_.in(1000);
  return std::move(result_);
}

}  // namespace syncd::sim
