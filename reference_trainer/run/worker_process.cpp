// The worker process: see worker_process.h.
#include "reference_trainer/run/worker_process.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "reference_trainer/data/data_file.h"
#include "reference_trainer/run/interrupts.h"
#include "reference_trainer/run/process.h"

namespace syncd::trainer {
namespace {

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

}  // namespace syncd::trainer
