// One run in virtual time: the workers' minibatches are really computed, one after the other in
// this process, and the time that they take is what an iteration-time distribution says. The daemon
// is its own engine, driven by the simulator (daemon/tools/sim). So forty or a thousand workers
// train on any machine, and the same settings give the same result, bit for bit, on one machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference_trainer/run/run.h"

namespace syncd::trainer {

struct VirtualSettings {
  // As syncd::sim::parse_iteration_time has it: "constant:20", "uniform:1000-1500", ...; ms.
  std::string iteration_time;
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
