// One run: fresh parameters, a fresh job, N workers, and a monitor that evaluates the
// loss, ends the run, and notices who dies. Runs on the parent's main thread and blocks until every
// worker has ended; nothing of a run outlives run_training().
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reference_trainer/model/workload.h"
#include "reference_trainer/run/checkpoint.h"
#include "reference_trainer/run/daemon_process.h"
#include "reference_trainer/run/run_board.h"
#include "reference_trainer/run/timeline.h"

namespace syncd::trainer {

class StoreDevice;  // device_store.h

struct RunSettings {
  WorkloadConfig workload;
  std::string policy;
  std::string job;
  std::string addresses;
  HopOrder hop_order = HopOrder::kParallel;
  WorkersAs workers_as = WorkersAs::kProcesses;
  StoreIn store_in = StoreIn::kHost;
  StoreDevice* device = nullptr;  // that of kDevice; null: the backend's
  std::string slowdown = "none";
  std::int64_t iteration_us = 0;  // emulated base cost of an iteration; 0: none
  std::int64_t iterations = 0;    // per worker, counted as `budget` says; 0: no limit
  Budget budget = Budget::kShared;
  double seconds_max = 0;              // of training; 0: no limit
  std::optional<double> stop_at_loss;  // the run ends when the held-out loss is this low
  // How long no worker may finish an iteration before the run is given up. 0: never.
  double stall_seconds = 180;
  bool verbose = false;                  // notify of the start too
  const CheckpointPlan* plan = nullptr;  // null: no checkpoints; only with kHost
};

// The held-out loss at a moment. time_s counts from the first granted iteration of any worker.
struct CurvePoint {
  double time_s = 0;
  std::int64_t iterations = 0;  // of all workers together
  double loss = 0;
  std::optional<double> accuracy = {};  // nothing: the workload has none, or it was not evaluated
  // Virtual time: of worker 0's own parameters, in a decentralized run; and how many transfers of
  // parameters or updates there had been.
  std::optional<double> loss_of_one = {};
  std::optional<std::int64_t> transfers = {};
};

// How far a run has come, for whoever watches.
struct RunProgress {
  std::int64_t iterations = 0;      // of all workers together
  std::int64_t iterations_max = 0;  // 0: no limit
  double seconds = 0;               // since the first grant; 0: not started
  double seconds_max = 0;           // 0: no limit
  double loss = 0;                  // as evaluated last
};

struct WorkerResult : WorkerCounts<std::int64_t> {
  bool finished = false;  // left the job as it should
  std::string end = {};   // "finished", "killed by SIGKILL", "exit status 3: begin: SYNCD_E_..."

  // From its first grant to its last push or wait.
  std::int64_t active_us() const { return computing_us + waiting_us + pushing_us; }
};

inline double in_seconds(std::int64_t us) {
  return static_cast<double>(us) / 1e6;
}

struct RunResult {
  std::string policy;
  std::string job;
  std::string failure;       // why the run as a whole failed; empty: at least one worker finished
  bool interrupted = false;  // by a signal
  // Of the parameters that all workers share; in a decentralized run, of the mean of the parameters
  // of all workers that were not lost.
  std::vector<CurvePoint> curve;
  std::optional<double> accuracy;  // of the parameters at the end; nothing: there are no classes
  std::optional<double> one_worker_loss;  // decentralized: at the end, of the first of them
  // Virtual time with a store: how many updates of others came between a worker's last pull and its
  // push, on the average: what it did not see.
  std::optional<double> unseen_updates;
  std::vector<WorkerResult> workers;
  std::vector<StalenessBin> staleness;  // at the grants of all workers, ascending
  Timeline timeline;                    // some moments near the middle of the run
  double seconds = 0;                   // from the first grant to the last push
  std::int64_t iterations = 0;          // of all workers together
  std::int64_t earlier = 0;             // of these, before the checkpoint that it went on from
  std::int64_t updates = 0;        // in the parameters; as many as iterations unless a worker died
  std::uint64_t half_written = 0;  // updates of dead workers, of which what they had written stays

  double final_loss() const;
  double iterations_per_s() const;
  double waiting_share() const;  // time blocked in begin, targets, collect / time of the workers
  double wasted_share() const;   // time of computing that was thrown away, likewise
  double staleness_mean() const;
  std::int64_t staleness_max() const;
  std::int64_t restarts() const { return sum_of(&WorkerResult::restarts); }
  std::int64_t late() const { return sum_of(&WorkerResult::late); }
  std::int64_t skipped() const { return sum_of(&WorkerResult::skipped); }
  std::int64_t reduced() const { return sum_of(&WorkerResult::reduced); }
  std::int64_t missing_updates() const { return sum_of(&WorkerResult::missing_updates); }
  std::int64_t torn_updates() const { return sum_of(&WorkerResult::torn_updates); }
  int lost_workers() const;

 private:
  std::int64_t sum_of(std::int64_t WorkerResult::*count) const;
};

// Fills in what the workers have counted.
void collect(const RunBoard& board, RunResult& result);

// So many points of the curve in a row must be at or below a loss for it to be reached, as in
// SpecSync VI-B: one alone may be luck.
inline constexpr std::size_t kPointsInARow = 5;
// Whether the latest points are.
bool is_at_loss(const std::vector<CurvePoint>& curve, double target);
// The first point of the first such row, or null.
const CurvePoint* reached_loss(const RunResult& result, double target);

// Whom a run tells what happens, on the thread that runs it.
struct RunObserver {
  // Now and then, with a line for people: a worker that died, a run that stalls.
  std::function<void(const std::string&)> notify;
  // At every look of the monitor, about a hundred times a second; may be empty.
  std::function<void(const RunProgress&)> progress;
};

// `daemon`: the trainer's own, which is watched too, or null. Throws SharedMemoryError or
// ProcessError if the run cannot even be set up.
RunResult run_training(const RunSettings& settings, const Workload& workload,
                       const SharedArrays& data, DaemonProcess* daemon,
                       const RunObserver& observer);

// ---- In virtual time: the workers' minibatches are really computed, one after the other in this
// process, and the time that they take is what an iteration-time distribution says. The daemon is
// its own engine, driven by the simulator (daemon/tools/sim). So forty or a thousand workers train
// on any machine, and the same settings give the same result, bit for bit, on one machine.

struct VirtualSettings {
  // As syncd::sim::parse_iteration_time has it: "constant:20", "uniform:1000-1500", ...; ms.
  std::string iteration_time = {};
  std::int64_t delay_us = 0;     // of every message, one way
  std::int64_t transfer_us = 0;  // of parameters or an update over a link; see sim::Options
  std::vector<std::uint32_t> host_sizes = {};  // likewise
};

// Of `settings`, addresses, job, iteration_us, stall_seconds and verbose say nothing here;
// slowdowns are drawn as `syncctl simulate` draws them. `observer`: as with run_training(). Throws
// std::invalid_argument, saying what is wrong and what is allowed.
RunResult run_virtually(const RunSettings& settings, const VirtualSettings& virtually,
                        const Workload& workload, const SharedArrays& data,
                        const RunObserver& observer);

}  // namespace syncd::trainer
