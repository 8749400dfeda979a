// The parameter store in a GPU's memory: the steps of device_store_steps.h as kernels.
#include <cstring>
#include <exception>

#include "reference_trainer/cuda/machine.cuh"
#include "reference_trainer/cuda/store_plugin.h"

extern "C" __attribute__((visibility("default"))) syncd::trainer::StoreDevice*
syncd_trainer_make_cuda_store_device(char* error, std::size_t error_bytes) {
  namespace trainer = syncd::trainer;
  static_assert(
      std::is_same_v<decltype(syncd_trainer_make_cuda_store_device), trainer::MakeStoreDevice>);
  try {
    using trainer::cuda::CudaMachine;
    return new trainer::MachineDevice<CudaMachine>(CudaMachine());
  } catch (const std::exception& reason) {
    std::strncpy(error, reason.what(), error_bytes - 1);
    error[error_bytes - 1] = '\0';
    return nullptr;
  }
}
