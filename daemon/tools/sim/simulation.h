// A job in virtual time: the daemon's own engine, and workers that follow the trainer's loop with
// computed times instead of real ones. The same options give the same result, byte for byte. One
// thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "daemon/tools/sim/iteration_time.h"

namespace syncd::sim {

// Something that happens to the job at a given time.
struct TimedEvent {
  enum class Kind : std::uint8_t {
    kFail,    // the worker's process dies, and its connection is cut
    kLeave,   // it says goodbye, in the middle of whatever it does
    kJoin,    // a process of this rank starts: a new worker, or one that failed or left before
    kSwitch,  // the job goes over to `policy`
  };
  Micros at = 0;
  Kind kind = Kind::kFail;
  Rank rank = 0;
  std::string policy;
};

class Model;
class Observer;

struct Options {
  std::uint32_t workers = 16;  // that the job starts with, ranks from 0
  // How many workers are on each host, in the order of ranks. One that comes later is on host r mod
  // hosts. Empty: a host each.
  std::vector<std::uint32_t> host_sizes;
  std::string policy = "bsp";
  // What the file that the policy names says (read_graph_file); null: it names none.
  std::shared_ptr<const topology::GraphFile> graph_file = nullptr;
  IterationTime iteration_time;
  Slowdown slowdown;
  std::uint64_t seed = 1;
  Micros duration_us = 60'000'000;
  Micros delay_us = 0;  // of every message, one way: worker and daemon, worker and worker
  // Of the parameters, or of an update, over a link that has nothing else to carry; 0: no time.
  // Policies with a parameter server: one link of the server carries every pull and every push, and
  // shares itself equally among them. Decentralized: each worker's own link carries its update to
  // one neighbour after another. In both, a worker waits until its own transfer is over.
  Micros transfer_us = 0;
  Micros plan_delay_us = 0;  // from the daemon's asking for a plan until it has it
  // Hop: compute before the update is sent, instead of sending at the iteration's start
  // (papers: serial and parallel order). NOTIFY-ACK always computes first.
  bool serial = false;
  Micros worker_grace_us = 10'000'000;  // how long the daemon keeps the place of one that failed
  // A stall: only timers of the daemon are left, and no worker was answered for so long.
  Micros stall_us = 600'000'000;
  std::vector<TimedEvent> events;  // in any order; equal times in the order given
  Observer* observer = nullptr;
  Model* model = nullptr;  // that the workers train (model.h); null: time passes, nothing more
};

// A worker that waits, and what the daemon says about why.
struct WaitReport {
  Rank rank = 0;
  Explanation explanation;
  std::string text;  // "worker 3 waits in begin(12): ssp:3: ..."
};

// Shares and rates are per worker and second of its presence; for workers that stay throughout this
// is workers x virtual time.
struct Result {
  std::string policy;
  std::uint32_t workers = 0;
  std::uint64_t seed = 0;
  double virtual_s = 0;  // the duration, or until the model had seen enough

  std::uint64_t iterations = 0;  // computed; pushes answered LATE do not count
  // NOTIFY-ACK with every=N computes N batches, with a time drawn for each, between two reduces;
  // the iterations are the reduces. Everywhere else an iteration is one batch.
  std::int64_t batches_per_iteration = 1;
  double iterations_per_s_per_worker = 0;
  double waiting_share = 0;       // blocked in begin, targets and collect, messages' way included
  double transferring_share = 0;  // its parameters or its update are under way
  std::uint64_t transfers = 0;    // of a whole model each, begun; counted without a cost too
  double staleness_mean = 0;
  std::int64_t staleness_max = 0;
  std::uint64_t barriers = 0;  // supersteps that all have ended together
  std::uint64_t resyncs = 0;   // advised
  std::uint64_t restarts = 0;  // followed
  double wasted_share = 0;     // computed and thrown away: restarts and LATE pushes
  std::uint64_t late_pushes = 0;
  // Freshness: pushes by others between a worker's last pull and its push, and those that the pull
  // of a restart brought in (nothing without restarts).
  double missed_updates_mean = 0;
  std::optional<double> updates_per_restart_mean;
  bool speculates = false;  // the policy, or one that it is switched to, may advise restarts
  // When that policy gave restarts up, for the first time if switches bring it in again: by its
  // auto_off they cost more iterations than the loss gains, and in a simulation there is no loss.
  std::optional<double> speculation_off_s;
  double skipped_per_s_per_worker = 0;
  std::optional<double> predicted_wait_ms_mean;  // of barriers that a plan foresaw
  std::optional<double> actual_wait_ms_mean;     // of barriers whose wait is recorded

  std::vector<std::uint64_t> iterations_of;  // per rank
  std::uint64_t engine_events = 0;
  Micros longest_wait_us = 0;  // in one call, also one that was not answered until the end
  // Decentralized: reduces that named an update which had not arrived (missing), and updates that
  // took the place of one not read yet (NOTIFY-ACK, one place per neighbour). Both should be 0,
  // except under an unsafe baseline, which also reads half-written (torn) ones.
  std::uint64_t reduces = 0;
  std::vector<std::uint64_t> reduces_of;  // at i: reduces with the whole updates of i neighbours
  std::uint64_t whole_updates = 0;
  std::uint64_t missing_updates = 0;
  std::uint64_t torn_updates = 0;
  std::uint64_t overwritten_updates = 0;
  bool unsafe = false;  // the policy is such a baseline

  bool stalled = false;              // somebody waits, and nothing will ever happen
  Micros stalled_at = -1;            // when a worker was last answered
  std::vector<WaitReport> waits;     // who waited for whom then
  std::vector<std::string> refused;  // errors that the engine answered, at most kRefusedMax
};
inline constexpr std::size_t kRefusedMax = 16;

// --hosts: "3" (hosts of as many workers, but for one at most) or "4,2,2" (how many are on each).
// Empty: `error` names what is wrong and what is allowed.
std::optional<std::vector<std::uint32_t>> parse_hosts(std::string_view text, std::uint32_t workers,
                                                      std::string& error);

// --link-mbps and --parameters-mb: the transfer_us of so many megabytes (10^6 bytes) over a link of
// so many megabits (10^6 bits) per second. Empty: `error` names what is wrong and what is allowed.
std::optional<Micros> transfer_time(double link_mbps, double parameters_mb, std::string& error);

// Empty, or a sentence that names the option that makes no sense and what is allowed.
std::string check_options(const Options& options);

class Simulation {
 public:
  // Precondition: check_options() finds nothing.
  explicit Simulation(Options options);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Runs it to the end; call once. O(log n) per event beside the engine's own work.
  Result run();

  const Engine& engine() const;
  Micros now() const;
  // The workers that wait now, and why. Changes nothing; observers may call it during run().
  std::vector<WaitReport> waits();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Sees every step of the engine, and what passes between workers without it. What it is given lives
// only as long as the call.
class Observer {
 public:
  virtual ~Observer() = default;
  // `event`: null for a tick of the engine's timers.
  virtual void after_event(Simulation& simulation, const Event* event, const Effects& effects) = 0;
  // A process of this rank begins, with empty update queues. Its Join is still on its way.
  virtual void after_start(Simulation& /*simulation*/, Rank /*rank*/) {}
  // The update of `from`'s iteration has arrived in `to`'s update queue.
  virtual void after_data(Simulation& /*simulation*/, Rank /*from*/, Rank /*to*/, Iteration /*k*/) {
  }
  // The answer to its collect of `iteration` has reached the worker, which reduces these updates
  // now: its own, and those in its update queues.
  virtual void after_collected(Simulation& /*simulation*/, Rank /*rank*/, Iteration /*iteration*/,
                               const std::vector<wire::PeerUpdate>& /*updates*/) {}
};

// check_options() and a whole run. Empty: `error` says what is wrong.
std::optional<Result> simulate(const Options& options, std::string& error);

}  // namespace syncd::sim
