// The worker process: see worker_process.h.
#include "reference_trainer/worker_process.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "reference_trainer/data_file.h"
#include "reference_trainer/peer_loop.h"
#include "reference_trainer/store_loop.h"

namespace syncd::trainer {
namespace {

void train(int worker, const RunBoard& board) {
  const BoardConfig& config = board.config();
  const SharedArrays data = SharedArrays::attach(config.data_fd);
  const std::optional<PeerPolicy> peers =
      peer_policy(config.policy.data(), static_cast<HopOrder>(config.hop_order));
  std::unique_ptr<Workload> workload = make_workload(config.workload, data);
  if (peers) workload = make_peer_workload(config.workload, *workload, data);
  const std::unique_ptr<Stepper> stepper = workload->make_stepper();
  const std::unique_ptr<PeerCoordinator> coordinator =
      connect_to_syncd({.addresses = config.addresses.data(),
                        .job = config.job.data(),
                        .policy = config.policy.data(),
                        .worker = worker,
                        .workers = board.workers()});
  SystemClock clock;
  if (peers) {
    PeerQueues queues = PeerQueues::attach(config.peers_fd, board.workers());
    workload->initialize(stepper->replica());
    stepper->replica_changed();
    PeerLoop(worker, board, *peers, queues, *stepper, *coordinator, clock).run();
  } else {
    ParameterStore store = ParameterStore::attach(config.store_fd);
    StoreLoop(worker, board, store, *stepper, *coordinator, clock).run();
  }
}

}  // namespace

bool is_worker_command(int argc, const char* const* argv) {
  return argc > 1 && std::strcmp(argv[1], kWorkerModeFlag) == 0;
}

int worker_main(int argc, const char* const* argv) {
  const auto worker = argc == 4 ? parse_unsigned(argv[2]) : std::nullopt;
  const auto board_fd = argc == 4 ? parse_unsigned(argv[3]) : std::nullopt;
  if (!worker || !board_fd) {
    std::fprintf(stderr, "reference_trainer: %s is for the program's own use\n", kWorkerModeFlag);
    return 2;
  }
  try {
    const RunBoard board = RunBoard::attach(static_cast<int>(*board_fd));
    if (*worker >= static_cast<std::uint64_t>(board.workers())) return 2;
    const auto index = static_cast<int>(*worker);
    WorkerSlot& slot = board.slot(index);
    WorkerState end = WorkerState::kFinished;
    try {
      train(index, board);
    } catch (const std::exception& error) {
      slot.message.set(error.what());
      end = WorkerState::kFailed;
    }
    slot.state.store(static_cast<std::int32_t>(end), std::memory_order_release);
    return end == WorkerState::kFinished ? 0 : kWorkerFailed;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "reference_trainer worker: %s\n", error.what());
    return 2;
  }
}

ChildProcess start_worker(int worker, const RunBoard& board) {
  SpawnOptions spawn;
  spawn.program = own_program().string();
  spawn.arguments = {kWorkerModeFlag, std::to_string(worker), std::to_string(board.fd())};
  spawn.inherited_fds = {board.fd(), board.config().data_fd};
  for (const int fd : {board.config().store_fd, board.config().peers_fd}) {
    if (fd >= 0) spawn.inherited_fds.push_back(fd);
  }
  // Where and what to join is decided by the parent; these would win over it in the client library.
  spawn.unset = {"SYNCD_ADDR", "SYNCD_JOB"};
  spawn.death_signal = SIGKILL;
  spawn.ignore_interrupt = true;
  return ChildProcess::start(spawn);
}

}  // namespace syncd::trainer
