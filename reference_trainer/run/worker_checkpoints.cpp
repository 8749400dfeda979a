// A worker's part in agreed checkpoints: see worker_checkpoints.h.
#include "reference_trainer/run/worker_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <string_view>

#include "reference_trainer/run/checkpoint.h"
#include "reference_trainer/run/interrupts.h"

namespace syncd::trainer {
namespace {

bool is_on(const BoardConfig& config) {
  return config.checkpoints[0] != '\0';
}

void copy_to(std::span<float> to, const std::vector<float>& from, const char* what) {
  if (to.size() != from.size()) {
    throw CheckpointError(fmt::format("the checkpoint has {} values of the {}, and the model {}",
                                      from.size(), what, to.size()));
  }
  std::copy(from.begin(), from.end(), to.begin());
}

}  // namespace

void restore_shard(int worker, const RunBoard& board, Stepper& stepper) {
  const BoardConfig& config = board.config();
  if (!is_on(config) || config.resume_start == 0) return;
  const StoredShard stored = read_shard(
      find_shard(config.checkpoints.data(), {config.resume_start, config.resume_number}, worker));
  copy_to(stepper.replica(), stored.shard.parameters, "parameters");
  copy_to(stepper.state(), stored.shard.state, "worker's state");
  stepper.replica_changed();
}

bool has_fixed_order(const BoardConfig& config) {
  const std::string_view policy = config.policy.data();
  return is_on(config) && (policy == "bsp" || policy == "bsp:1");
}

WorkerCheckpoints::WorkerCheckpoints(int worker, const RunBoard& board, Stepper& stepper,
                                     Coordinator& coordinator)
    : worker_(worker), board_(board), stepper_(stepper), coordinator_(coordinator) {}

bool WorkerCheckpoints::is_due(std::int64_t iteration) const {
  const BoardConfig& config = board_.config();
  // With barriers it is then made at a multiple.
  if (!is_on(config) || config.checkpoint_every == 0 ||
      (iteration + 1) % config.checkpoint_every != 0) {
    return false;
  }
  if (worker_ != 0) return false;
  for (int other = 1; other < board_.workers(); ++other) {
    if (board_.slot(other).has_ended()) return false;
  }
  return true;
}

void WorkerCheckpoints::save(std::uint64_t number, std::int64_t iteration) {
  const BoardConfig& config = board_.config();
  const std::span<const float> parameters = stepper_.replica();
  const std::span<const float> state = stepper_.state();
  coordinator_.saving();
  location_ = save_shard(config.checkpoints.data(),
                         identity_of(config.workload, config.policy.data(),
                                     static_cast<HopOrder>(config.hop_order), parameters.size()),
                         {config.start, number},
                         {.rank = worker_,
                          .iteration = iteration,
                          .iterations = board_.slot(worker_).iterations.load(),
                          .parameters = {parameters.begin(), parameters.end()},
                          .state = {state.begin(), state.end()}})
                  .string();
  saved_ = number;
}

void WorkerCheckpoints::confirm() {
  coordinator_.checkpointed(saved_, location_);
}

// To a process of its own, or to all workers by way of the trainer.
bool WorkerCheckpoints::is_told() const {
  return is_on(board_.config()) && (board_.is_preempted() || interrupt_signal() == SIGTERM);
}

bool WorkerCheckpoints::may_go(std::int64_t now_us) {
  if (!is_told()) return false;
  if (deadline_us_ == 0) {
    deadline_us_ = now_us + kPreemptionWaitUs;
    try {
      wanted_ = coordinator_.request_checkpoint("SIGTERM", true);
    } catch (const CoordinatorError& error) {
      problem_ = error.what();
      deadline_us_ = now_us;
    }
  }
  return now_us >= deadline_us_ || (wanted_ > 0 && saved_ >= wanted_);
}

std::string WorkerCheckpoints::text() const {
  if (!problem_.empty()) return "preempted by SIGTERM; " + problem_;
  return fmt::format("preempted by SIGTERM; checkpoint {} is {}saved", wanted_,
                     saved_ >= wanted_ ? "" : "not ");
}

}  // namespace syncd::trainer
