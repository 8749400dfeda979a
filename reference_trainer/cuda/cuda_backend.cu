// What computes on a GPU, behind plugin.h: the Device of device.cuh put into the templates that are
// written for any. Products are made in float unless another precision is asked for, so that
// results agree with the CPU's to rounding.
#include "reference_trainer/cuda/device.cuh"
#include "reference_trainer/cuda/plugin.h"
#include "reference_trainer/model/device_steppers.h"

namespace syncd::trainer {
namespace {

using cuda::CudaDevice;

void try_gpu(Precision precision) {
  const CudaDevice trial(0, precision);
}

std::unique_ptr<Stepper> make_stepper(const StepperRequest& request) {
  return make_device_stepper(CudaDevice(request.worker, request.config.precision), request);
}

}  // namespace
}  // namespace syncd::trainer

extern "C" __attribute__((visibility("default"))) const syncd::trainer::CudaLibrary*
syncd_trainer_cuda() {
  static const syncd::trainer::CudaLibrary library = {
      SYNCD_TRAINER_BUILD, syncd::trainer::try_gpu, syncd::trainer::make_stepper,
      syncd::trainer::make_cuda_store_device};
  return &library;
}
