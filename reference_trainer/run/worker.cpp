// What a worker does, and how one is started and watched: see worker.h. run_worker() runs on the
// worker's own thread, everything else on the monitor's.
#include "reference_trainer/run/worker.h"

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

#include "reference_trainer/data/data_file.h"
#include "reference_trainer/params/store_devices.h"
#include "reference_trainer/run/peer_loop.h"
#include "reference_trainer/run/process.h"
#include "reference_trainer/run/store_loop.h"
#include "reference_trainer/run/worker_checkpoints.h"

namespace syncd::trainer {
namespace {

constexpr const char* kWorkerModeFlag = "--internal-worker";
constexpr int kWorkerFailed = 3;  // exit status: the board has the reason

// Whoever attaches owns the descriptor, and other workers of the process need the board's too.
int own(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy >= 0) return copy;
  throw SharedMemoryError(std::string("a descriptor of the run's memory: ") + std::strerror(errno));
}

void train(int worker, const RunBoard& board, SharedParameters* shares) {
  const BoardConfig& config = board.config();
  const SharedArrays data = SharedArrays::attach(own(config.data_fd));
  const std::optional<PeerPolicy> peers = peer_policy(config.policy.data(), config.hop_order);
  std::unique_ptr<Workload> workload = make_workload(config.workload, data);
  if (peers) workload = make_peer_workload(config.workload, *workload, data);
  const std::unique_ptr<Stepper> stepper = workload->make_stepper(worker);
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
  std::optional<SharedParameters> attached;
  if (shares == nullptr) {
    StoreDevice& device =
        store_device(config.are_on_host ? Backend::kCpu : config.workload.backend);
    shares = &attached.emplace(SharedParameters::attach(device, own(config.parameters_fd), worker));
  }
  if (peers) {
    workload->initialize(stepper->replica());
    stepper->replica_changed();
  }
  restore_shard(worker, board, *stepper);
  if (peers) {
    DeviceQueues& queues = shares->queues();
    const std::unique_ptr<PeerExchange> exchange =
        config.are_on_host ? std::make_unique<HostPeerExchange>(worker, queues, *stepper)
                           : std::make_unique<PeerExchange>(worker, queues, *stepper);
    PeerLoop(worker, board, *peers, *exchange, *stepper, *coordinator, clock).run();
  } else {
    const std::unique_ptr<ParameterExchange> exchange =
        config.are_on_host ? std::make_unique<HostParameterExchange>(worker, *shares, *stepper)
                           : std::make_unique<DeviceParameterExchange>(worker, *shares, *stepper);
    StoreLoop(worker, board, *exchange, *stepper, *coordinator, clock).run();
  }
}

// ---- A process

class WorkerProcess : public RunningWorker {
 public:
  WorkerProcess(int worker, const RunBoard& board, ChildProcess process)
      : slot_(board.slot(worker)), process_(std::move(process)) {}

  std::optional<End> poll() override {
    const auto status = process_.poll();
    if (!status) return std::nullopt;
    if (*status == 0) return End{true, "finished"};
    const std::string reason = slot_.message.get();
    return End{false, describe_exit(*status) + (reason.empty() ? "" : ": " + reason)};
  }
  void end() override { process_.signal(SIGKILL); }

 private:
  const WorkerSlot& slot_;
  ChildProcess process_;
};

// ---- A thread

std::atomic<int> left_behind{0};

// What a thread and whoever watches it have in common, for as long as one of them is there.
struct Shared {
  Shared(const RunBoard& run_board, std::shared_ptr<SharedParameters> run_shares)
      : board(RunBoard::attach(own(run_board.fd()))), shares(std::move(run_shares)) {}

  RunBoard board;
  std::shared_ptr<SharedParameters> shares;
  std::atomic<bool> has_ended{false};
};

// While it lives, threads start with the signals blocked that are for the trainer.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t blocked;
    sigemptyset(&blocked);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&blocked, number);
    ::pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

class WorkerThread : public RunningWorker {
 public:
  WorkerThread(int worker, const RunBoard& board, std::shared_ptr<SharedParameters> shares)
      : worker_(worker), shared_(std::make_shared<Shared>(board, std::move(shares))) {
    const BlockedSignals blocked;
    thread_ = std::thread([worker, shared = shared_] {
      run_worker(worker, shared->board, shared->shares.get());
      shared->has_ended.store(true, std::memory_order_release);
    });
  }

  ~WorkerThread() override {
    if (!thread_.joinable()) return;
    shared_->board.request_stop(StopLevel::kAbandon);
    thread_.join();
  }
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  std::optional<End> poll() override {
    if (end_) return end_;
    if (!shared_->has_ended.load(std::memory_order_acquire)) return std::nullopt;
    thread_.join();
    const WorkerSlot& slot = shared_->board.slot(worker_);
    const bool finished = slot.state.load() == WorkerState::kFinished;
    end_ = End{finished, finished ? "finished" : "failed: " + slot.message.get()};
    return end_;
  }

  void end() override {
    if (poll()) return;
    shared_->board.request_stop(StopLevel::kAbandon);
    thread_.detach();
    left_behind.fetch_add(1);
    end_ = End{false, "left behind: it did not end when it was asked to", true};
  }

 private:
  int worker_;
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
  std::optional<End> end_;
};

}  // namespace

WorkerState run_worker(int worker, const RunBoard& board, SharedParameters* shares) {
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
  slot.state.store(end, std::memory_order_release);
  return end;
}

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
    if (board.config().checkpoints[0] != '\0') watch_termination();
    return run_worker(index, board, nullptr) == WorkerState::kFinished ? 0 : kWorkerFailed;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "reference_trainer worker: %s\n", error.what());
    return 2;
  }
}

std::unique_ptr<RunningWorker> start_worker_process(int worker, const RunBoard& board) {
  SpawnOptions spawn;
  spawn.program = own_program().string();
  spawn.arguments = {kWorkerModeFlag, std::to_string(worker), std::to_string(board.fd())};
  spawn.inherited_fds = {board.fd(), board.config().data_fd, board.config().parameters_fd};
  // Where and what to join is decided by the parent; these would win over it in the client library.
  spawn.unset = {"SYNCD_ADDR", "SYNCD_JOB"};
  spawn.death_signal = SIGKILL;
  spawn.ignore_interrupt = true;
  return std::make_unique<WorkerProcess>(worker, board, ChildProcess::start(spawn));
}

std::unique_ptr<RunningWorker> start_worker_thread(int worker, const RunBoard& board,
                                                   std::shared_ptr<SharedParameters> shares) {
  return std::make_unique<WorkerThread>(worker, board, std::move(shares));
}

bool threads_left_behind() {
  return left_behind.load() > 0;
}

}  // namespace syncd::trainer
