// The devices that keep parameters: see store_devices.h.
#include "reference_trainer/params/store_devices.h"

#include <memory>
#include <stdexcept>

#include "reference_trainer/cuda/plugin.h"
#include "reference_trainer/model/cnn_backends.h"

namespace syncd::trainer {

StoreDevice& store_device(Backend backend) {
  if (backend != Backend::kCuda) {
    throw std::runtime_error("--store-in device: only a GPU keeps parameters (--backend cuda)");
  }
  static const std::unique_ptr<StoreDevice> device = cuda_library().make_store_device();
  return *device;
}

}  // namespace syncd::trainer
