// How the trainer reaches the CUDA backend: a library of its own, loaded when `--backend cuda` is
// asked for, so that a trainer that was built where CUDA is runs where it is not. Both come from
// one build; there is no promise of compatibility between versions.
#pragma once

#include <memory>

#include "reference_trainer/model/device_model.h"
#include "reference_trainer/params/device_store.h"

namespace syncd::trainer {

inline constexpr const char* kCudaFile = "libsyncd_trainer_cuda.so";
inline constexpr const char* kCudaEntry = "syncd_trainer_cuda";  // gives the CudaLibrary in it

// What is in it. All throw std::runtime_error, as what they make does when the GPU fails.
struct CudaLibrary {
  // Of which build it is: C++ types cross the seam, so another build's is not used.
  const char* build;

  // Whether the first GPU that CUDA shows (CUDA_VISIBLE_DEVICES) multiplies so: throws if not.
  void (*try_gpu)(Precision precision);
  // A worker's stepper, on the GPU of its turn.
  std::unique_ptr<Stepper> (*make_stepper)(const StepperRequest& request);
  // Does not ask whether there is a GPU: the functions of what it makes do.
  std::unique_ptr<StoreDevice> (*make_store_device)();
};

using CudaEntry = const CudaLibrary*();

std::unique_ptr<StoreDevice> make_cuda_store_device();  // store.cu

}  // namespace syncd::trainer
