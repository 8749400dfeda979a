// The part of the CUDA library (plugin.h) that keeps parameters in a GPU's memory.
#pragma once

#include <cstddef>

#include "reference_trainer/params/device_store.h"

namespace syncd::trainer {

inline constexpr const char* kCudaMakeStoreDevice = "syncd_trainer_make_cuda_store_device";

// Null if it fails; why is then in `error` (cut to error_bytes with a 0 at its end). Does not ask
// whether there is a GPU: the functions of what it makes do, and throw std::runtime_error.
using MakeStoreDevice = StoreDevice*(char* error, std::size_t error_bytes);

}  // namespace syncd::trainer
