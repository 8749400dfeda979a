// The parameter store in a GPU's memory: the steps of device_store_steps.h as kernels.
#include "reference_trainer/cuda/machine.cuh"
#include "reference_trainer/cuda/plugin.h"

std::unique_ptr<syncd::trainer::StoreDevice> syncd::trainer::make_cuda_store_device() {
  return std::make_unique<MachineDevice<cuda::CudaMachine>>(cuda::CudaMachine());
}
