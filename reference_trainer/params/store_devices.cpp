// The devices that keep parameters: see store_devices.h.
#include "reference_trainer/params/store_devices.h"

#include <fmt/format.h>

#include <array>
#include <stdexcept>

#include "reference_trainer/cuda/store_plugin.h"
#include "reference_trainer/model/cnn_backends.h"

namespace syncd::trainer {
namespace {

std::unique_ptr<StoreDevice> make_cuda_device() {
  std::array<char, 512> error{};
  auto* make = reinterpret_cast<MakeStoreDevice*>(cuda_function(kCudaMakeStoreDevice));
  std::unique_ptr<StoreDevice> device(make(error.data(), error.size()));
  if (!device) throw std::runtime_error(fmt::format("--store-in device: {}", error.data()));
  return device;
}

}  // namespace

StoreDevice& store_device(Backend backend) {
  if (backend != Backend::kCuda) {
    throw std::runtime_error("--store-in device: only a GPU keeps parameters (--backend cuda)");
  }
  static const std::unique_ptr<StoreDevice> device = make_cuda_device();
  return *device;
}

}  // namespace syncd::trainer
