// The devices that keep parameters: see store_devices.h.
#include "reference_trainer/params/store_devices.h"

#include <memory>

#include "reference_trainer/cuda/plugin.h"
#include "reference_trainer/model/cnn_backends.h"
#include "reference_trainer/params/cpu_machine.h"

namespace syncd::trainer {

StoreDevice& store_device(Backend backend) {
  if (backend == Backend::kCpu) {
    static MachineDevice<CpuMachine> cpu{CpuMachine()};
    return cpu;
  }
  static const std::unique_ptr<StoreDevice> device = cuda_library().make_store_device();
  return *device;
}

}  // namespace syncd::trainer
