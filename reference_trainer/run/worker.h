// A worker of a run, wherever it runs: what it does from start to end, and how the monitor watches
// and ends it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "reference_trainer/params/device_queues.h"
#include "reference_trainer/params/device_store.h"
#include "reference_trainer/run/run_board.h"

namespace syncd::trainer {

// What workers exchange on devices, where a process has it: one of the two.
struct DeviceShares {
  std::optional<SharedDeviceStore> store;
  std::optional<SharedDeviceQueues> queues;

  int fd() const { return store ? store->fd() : queues->fd(); }
};

// Attaches to what the run shares, joins the job through the C interface, trains, and says on the
// board how it ended, which is returned too. `store` is the parameters on a device where this
// process has them already; null: they are attached to if the board names them. Runs on the calling
// thread; the client library adds one for the network. Throws nothing.
WorkerState run_worker(int worker, const RunBoard& board, DeviceShares* shares);

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

}  // namespace syncd::trainer
