// Which devices can keep the parameters: GPUs, and the CPU; the one place that knows them all. And
// whether processes of this machine can share a device's memory: tried out with a process, because
// CUDA's IPC is refused in many places (containers, virtual machines, some drivers) and says so
// only when it is used.
#pragma once

#include <optional>
#include <string>

#include "reference_trainer/model/workload.h"
#include "reference_trainer/params/device_store.h"
#include "reference_trainer/run/process.h"

namespace syncd::trainer {

// That of a backend. The CUDA library is loaded by the first call that asks for it, and stays.
// Throws std::runtime_error if there is none, with why. Any thread.
StoreDevice& store_device(Backend backend);

// True if the command line asks for the other side of the trial: PROGRAM --internal-sharing-trial
// RECORD_FD BACKEND.
bool is_sharing_trial(int argc, const char* const* argv);

// That side; the result is the process's exit status.
int sharing_trial_main(int argc, const char* const* argv);

// Why another process cannot use this device's memory, for people, or nothing if it can. Starts one
// from `program` and waits for it. Throws std::runtime_error if the device fails otherwise.
std::optional<std::string> sharing_problem(StoreDevice& device, Backend backend,
                                           const std::string& program);

}  // namespace syncd::trainer
