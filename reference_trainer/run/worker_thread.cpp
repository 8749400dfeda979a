// Workers as threads: see worker_thread.h.
#include "reference_trainer/run/worker_thread.h"

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

namespace syncd::trainer {
namespace {

std::atomic<int> left_behind{0};

RunBoard attach_again(const RunBoard& board) {
  const int fd = ::fcntl(board.fd(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) throw SharedMemoryError(std::string("the run's board: ") + std::strerror(errno));
  return RunBoard::attach(fd);
}

// What a thread and whoever watches it have in common, for as long as one of them is there.
struct Shared {
  Shared(const RunBoard& run_board, std::shared_ptr<DeviceShares> run_shares)
      : board(attach_again(run_board)), shares(std::move(run_shares)) {}

  RunBoard board;
  std::shared_ptr<DeviceShares> shares;
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
  WorkerThread(int worker, const RunBoard& board, std::shared_ptr<DeviceShares> shares)
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
    const bool finished = slot.state.load() == static_cast<std::int32_t>(WorkerState::kFinished);
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

std::unique_ptr<RunningWorker> start_worker_thread(int worker, const RunBoard& board,
                                                   std::shared_ptr<DeviceShares> shares) {
  return std::make_unique<WorkerThread>(worker, board, std::move(shares));
}

bool threads_left_behind() {
  return left_behind.load() > 0;
}

}  // namespace syncd::trainer
