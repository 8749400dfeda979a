// What a worker does: see worker.h. Runs on the worker's own thread.
#include "reference_trainer/run/worker.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "reference_trainer/params/store_devices.h"
#include "reference_trainer/run/peer_loop.h"
#include "reference_trainer/run/store_loop.h"
#include "reference_trainer/run/worker_checkpoints.h"

namespace syncd::trainer {
namespace {

// Whoever attaches owns the descriptor, and other workers of the process need the board's too.
int own(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy >= 0) return copy;
  throw SharedMemoryError(std::string("a descriptor of the run's memory: ") + std::strerror(errno));
}

DeviceShares attach(int worker, const BoardConfig& config, bool peers) {
  StoreDevice& device = store_device(config.are_on_host ? Backend::kCpu : config.workload.backend);
  const int fd = own(config.parameters_fd);
  DeviceShares shares;
  if (peers) {
    shares.queues.emplace(SharedDeviceQueues::attach(device, fd, worker));
  } else {
    shares.store.emplace(SharedDeviceStore::attach(device, fd, worker));
  }
  return shares;
}

void train(int worker, const RunBoard& board, DeviceShares* shares) {
  const BoardConfig& config = board.config();
  const SharedArrays data = SharedArrays::attach(own(config.data_fd));
  const std::optional<PeerPolicy> peers =
      peer_policy(config.policy.data(), static_cast<HopOrder>(config.hop_order));
  std::unique_ptr<Workload> workload = make_workload(config.workload, data);
  if (peers) workload = make_peer_workload(config.workload, *workload, data);
  const std::unique_ptr<DeviceStepper> stepper = workload->make_stepper(worker);
  const std::unique_ptr<PeerCoordinator> coordinator =
      connect_to_syncd({.addresses = config.addresses.data(),
                        .job = config.job.data(),
                        .policy = config.policy.data(),
                        .worker = worker,
                        .workers = board.workers(),
                        .resync_flag = stepper->resync_flag(),
                        .checkpoints = config.checkpoints[0] != '\0',
                        .launch = config.launch,
                        .resume_at = config.resume_at});
  SystemClock clock;
  std::optional<DeviceShares> attached;
  if (shares == nullptr) shares = &attached.emplace(attach(worker, config, peers.has_value()));
  const auto train_with = [&](ParameterExchange& exchange) {
    StoreLoop(worker, board, exchange, *stepper, *coordinator, clock).run();
  };
  const auto train_among_peers = [&](PeerExchange& exchange) {
    PeerLoop(worker, board, *peers, exchange, *stepper, *coordinator, clock).run();
  };
  if (peers) {
    workload->initialize(stepper->replica());
    stepper->replica_changed();
  }
  restore_shard(worker, board, *stepper);
  if (peers && config.are_on_host) {
    HostPeerExchange exchange(worker, shares->queues->queues(), *stepper);
    train_among_peers(exchange);
  } else if (peers) {
    DevicePeerExchange exchange(worker, shares->queues->queues(), *stepper);
    train_among_peers(exchange);
  } else if (config.are_on_host) {
    HostParameterExchange exchange(worker, *shares->store, *stepper);
    train_with(exchange);
  } else {
    DeviceParameterExchange exchange(worker, *shares->store, *stepper);
    train_with(exchange);
  }
}

}  // namespace

WorkerState run_worker(int worker, const RunBoard& board, DeviceShares* shares) {
  WorkerSlot& slot = board.slot(worker);
  WorkerState end = WorkerState::kFailed;
  try {
    train(worker, board, shares);
    end = WorkerState::kFinished;
  } catch (const std::exception& error) {
    slot.message.set(error.what());
  } catch (...) {
    slot.message.set("an exception that says nothing");
  }
  slot.state.store(static_cast<std::int32_t>(end), std::memory_order_release);
  return end;
}

}  // namespace syncd::trainer
