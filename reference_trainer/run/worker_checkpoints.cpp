// A worker's part in agreed checkpoints: see worker_checkpoints.h.
#include "reference_trainer/run/worker_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <string_view>

#include "reference_trainer/run/checkpoint.h"
#include "reference_trainer/run/process.h"

namespace syncd::trainer {
namespace {

constexpr std::int64_t kTurnPollUs = 100;
constexpr std::int64_t kTurnPatienceUs = 60'000'000;

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

UpdateOrder::UpdateOrder(int worker, const RunBoard& board, Clock& clock)
    : worker_(worker), board_(board), clock_(clock) {
  const std::string_view policy = board.config().policy.data();
  is_fixed_ = is_on(board.config()) && (policy == "bsp" || policy == "bsp:1");
}

void UpdateOrder::has_pulled(std::int64_t iteration) const {
  if (is_fixed_) board_.slot(worker_).pulled.store(iteration + 1, std::memory_order_release);
}

void UpdateOrder::has_added(std::int64_t iteration) const {
  board_.slot(worker_).added.store(iteration + 1, std::memory_order_release);
}

void UpdateOrder::await_turn(std::int64_t iteration) const {
  if (!is_fixed_) return;
  await_others(&WorkerSlot::pulled, board_.workers(), iteration);
  await_others(&WorkerSlot::added, worker_, iteration);
}

void UpdateOrder::await_updates(std::int64_t iteration) const {
  if (is_fixed_) await_others(&WorkerSlot::added, board_.workers(), iteration - 1);
}

// One that the daemon has given up may be stopped for long: then the order is given up, too.
void UpdateOrder::await_others(std::atomic<std::int64_t> WorkerSlot::*moment, int workers,
                               std::int64_t iteration) const {
  const std::int64_t end_us = clock_.now_us() + kTurnPatienceUs;
  for (int other = 0; other < workers; ++other) {
    if (other == worker_) continue;
    const WorkerSlot& slot = board_.slot(other);
    while ((slot.*moment).load(std::memory_order_acquire) <= iteration && !slot.has_ended() &&
           board_.stop() != StopLevel::kAbandon && clock_.now_us() < end_us) {
      clock_.sleep_us(kTurnPollUs);
    }
  }
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
                         identity_of(config.workload, config.policy.data(), config.hop_order,
                                     parameters.size()),
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
