// A worker of a run, a process or a thread of this one: what it does from start to end, and how the
// monitor starts, watches and ends it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "reference_trainer/params/device_queues.h"
#include "reference_trainer/params/device_store.h"
#include "reference_trainer/run/run_board.h"

namespace syncd::trainer {

// Attaches to what the run shares, joins the job through the C interface, trains, and says on the
// board how it ended, which is returned too. `shares`: where this process has the parameters
// already; null: they are attached to. Runs on the calling thread; the client library adds one for
// the network. Throws nothing.
WorkerState run_worker(int worker, const RunBoard& board, SharedParameters* shares);

// A worker that was started. Used by the monitor's thread. The destructor ends it.
class RunningWorker {
 public:
  struct End {
    bool finished = false;  // it left the job as it should
    std::string text;       // "finished", "killed by SIGKILL", "exit status 3: begin: SYNCD_E_..."
    bool runs_on = false;   // a thread that was left behind: it may still write
  };
  virtual ~RunningWorker() = default;

  // How it ended, or nothing while it runs. Does not block.
  virtual std::optional<End> poll() = 0;

  // Ends it at once, whatever it does. No effect once it has ended.
  virtual void end() = 0;
};

// True if the command line asks for a worker: PROGRAM --internal-worker WORKER BOARD_FD.
bool is_worker_command(int argc, const char* const* argv);

// Runs it; the result is the process's exit status. Its one own thread is the main one.
int worker_main(int argc, const char* const* argv);

// Starts such a process from this program. It gets the board, the store and the data by descriptor.
// Throws ProcessError.
std::unique_ptr<RunningWorker> start_worker_process(int worker, const RunBoard& board);

// Starts a worker as a thread of this process, with a connection to the daemon of its own. It
// attaches to the run's memory by itself, so that nothing of the run need stay but `shares`, which
// may be null (run_worker). Signals are left to the other threads. A thread cannot be killed: end()
// asks it to drop what it does and leaves it behind if it does not. Throws std::system_error or
// SharedMemoryError.
//
// The client library prefers SYNCD_ADDR and SYNCD_JOB to what it is told: they must not be set.
std::unique_ptr<RunningWorker> start_worker_thread(int worker, const RunBoard& board,
                                                   std::shared_ptr<SharedParameters> shares);

// Whether a thread was left behind by this process, which then must not end by returning from
// main().
bool threads_left_behind();

}  // namespace syncd::trainer
