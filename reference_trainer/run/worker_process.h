// The program of a worker process: attaches to what the parent shares, joins the job through the C
// interface, runs the loop, and reports on the board. Its one own thread is the main one; the
// client library adds one for the network.
#pragma once

#include <memory>

#include "reference_trainer/run/worker.h"

namespace syncd::trainer {

inline constexpr const char* kWorkerModeFlag = "--internal-worker";
inline constexpr int kWorkerFailed = 3;  // exit status: the board has the reason

// True if the command line asks for a worker: PROGRAM --internal-worker WORKER BOARD_FD.
bool is_worker_command(int argc, const char* const* argv);

// Runs the worker; the result is the process's exit status.
int worker_main(int argc, const char* const* argv);

// Starts such a process from this program. It gets the board, the store and the data by descriptor.
// Throws ProcessError.
std::unique_ptr<RunningWorker> start_worker_process(int worker, const RunBoard& board);

}  // namespace syncd::trainer
