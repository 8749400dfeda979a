// Which devices can keep the parameters: GPUs, and for update queues the CPU. The one place that
// knows them all.
#pragma once

#include "reference_trainer/model/workload.h"
#include "reference_trainer/params/device_store.h"

namespace syncd::trainer {

// That of a backend. The CUDA library is loaded by the first call that asks for it, and stays.
// Throws std::runtime_error if there is none, with why. Any thread.
StoreDevice& store_device(Backend backend);

}  // namespace syncd::trainer
