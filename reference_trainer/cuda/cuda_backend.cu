// What computes on a GPU, behind plugin.h: the Device of device.cuh put into the templates that are
// written for any. Products are made in float unless another precision is asked for, so that
// results agree with the CPU's to rounding.
#include <cstring>
#include <type_traits>

#include "reference_trainer/cuda/device.cuh"
#include "reference_trainer/cuda/plugin.h"
#include "reference_trainer/model/cnn_batched.h"
#include "reference_trainer/model/device_steppers.h"

namespace syncd::trainer {
namespace {

using cuda::CudaDevice;

// What `make` makes, or null and why.
template <typename Make>
auto made(const Make& make, char* error, std::size_t error_bytes) -> decltype(make()) {
  try {
    return make();
  } catch (const std::exception& reason) {
    std::strncpy(error, reason.what(), error_bytes - 1);
    error[error_bytes - 1] = '\0';
    return nullptr;
  }
}

}  // namespace
}  // namespace syncd::trainer

extern "C" __attribute__((visibility("default"))) const char* const syncd_trainer_cuda_build =
    SYNCD_TRAINER_BUILD;

extern "C" __attribute__((visibility("default"))) syncd::trainer::CnnBackend*
syncd_trainer_make_cuda_backend(const syncd::trainer::CnnShape& shape,
                                const syncd::trainer::CnnLayout& layout, std::size_t samples_max,
                                syncd::trainer::Precision precision, char* error,
                                std::size_t error_bytes) {
  using namespace syncd::trainer;
  static_assert(std::is_same_v<decltype(syncd_trainer_make_cuda_backend), MakeCudaBackend>);
  const auto make = [&] {
    return new BatchedCnn<CudaDevice>(CudaDevice(0, precision), shape, layout, samples_max);
  };
  return made(make, error, error_bytes);
}

extern "C" __attribute__((visibility("default"))) syncd::trainer::DeviceStepper*
syncd_trainer_make_cuda_stepper(const syncd::trainer::StepperRequest& request, char* error,
                                std::size_t error_bytes) {
  using namespace syncd::trainer;
  static_assert(std::is_same_v<decltype(syncd_trainer_make_cuda_stepper), MakeCudaStepper>);
  const auto make = [&] {
    CudaDevice device(request.worker, request.config.precision);
    return make_device_stepper(std::move(device), request).release();
  };
  return made(make, error, error_bytes);
}
