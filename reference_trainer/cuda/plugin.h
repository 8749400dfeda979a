// How the trainer reaches the CUDA backend: a library of its own, loaded when `--backend cuda` is
// asked for, so that a trainer that was built where CUDA is runs where it is not. Both come from
// one build; there is no promise of compatibility between versions.
#pragma once

#include <cstddef>

#include "reference_trainer/model/cnn_network.h"
#include "reference_trainer/model/device_request.h"
#include "reference_trainer/model/device_stepper.h"

namespace syncd::trainer {

inline constexpr const char* kCudaLibrary = "libsyncd_trainer_cuda.so";
// const char*: of which build it is. C++ types cross the seam, so another build's is not used.
inline constexpr const char* kCudaBuild = "syncd_trainer_cuda_build";
inline constexpr const char* kCudaMakeBackend = "syncd_trainer_make_cuda_backend";
inline constexpr const char* kCudaMakeStepper = "syncd_trainer_make_cuda_stepper";

// A network on the first GPU that CUDA shows (CUDA_VISIBLE_DEVICES). `layout` is that of `shape`.
// Null if there is none that can be used; why is then in `error` (cut to error_bytes with a 0 at
// its end). With samples_max 0 it is a trial, which takes hardly any memory. Throws nothing; the
// backend's functions throw std::runtime_error when the GPU fails.
using MakeCudaBackend = CnnBackend*(const CnnShape& shape, const CnnLayout& layout,
                                    std::size_t samples_max, Precision precision, char* error,
                                    std::size_t error_bytes);

// A worker's stepper, on the GPU of its turn. Likewise.
using MakeCudaStepper = DeviceStepper*(const StepperRequest& request, char* error,
                                       std::size_t error_bytes);

}  // namespace syncd::trainer
