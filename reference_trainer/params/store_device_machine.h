// StoreDevice for every Machine (device_store_machine.h).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "reference_trainer/params/device_queues_machine.h"
#include "reference_trainer/params/device_store_machine.h"

namespace syncd::trainer {

template <typename Machine>
class MachineDevice : public StoreDevice {
 public:
  explicit MachineDevice(Machine machine) : machine_(std::move(machine)) {}

  std::unique_ptr<DeviceStore> create(const DeviceShape& shape,
                                      std::span<const float> initial) override {
    return std::make_unique<MachineStore<Machine>>(machine_.of_worker(0), shape, initial);
  }
  std::unique_ptr<DeviceStore> open(const DeviceShape& shape, const DeviceHandle& handle,
                                    int worker) override {
    return std::make_unique<MachineStore<Machine>>(machine_.of_worker(worker), shape, handle);
  }
  std::unique_ptr<DeviceQueues> create_queues(const DeviceShape& shape,
                                              std::span<const float> initial) override {
    return std::make_unique<MachineQueues<Machine>>(machine_, shape, initial);
  }
  std::unique_ptr<DeviceQueues> open_queues(const DeviceShape& shape,
                                            const std::vector<DeviceHandle>& handles,
                                            int worker) override {
    return std::make_unique<MachineQueues<Machine>>(machine_, shape, handles, worker);
  }
  std::unique_ptr<DeviceStandIn> stand_in(std::size_t parameters, int worker) override {
    return std::make_unique<MachineStandIn<Machine>>(machine_.of_worker(worker), parameters);
  }

 private:
  Machine machine_;
};

}  // namespace syncd::trainer
