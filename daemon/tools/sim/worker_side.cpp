// See worker_side.h.
#include "daemon/tools/sim/worker_side.h"

#include <string>

namespace syncd::sim {

WorkerSide::WorkerSide(World& world)
    : world_(world),
      durations_(world.options.iteration_time, world.options.slowdown, world.options.seed,
                 world.options.workers) {
  std::string error;
  const auto policy = make_policy(world.options.policy, error);
  decentralized_ = policy->family() == Family::kDecentralized;
  loop_ = policy->traits().peer_loop;
  compute_first_ = world.options.serial || loop_.push_follows_data;
}

void WorkerSide::finish() {
  for (SimWorker& worker : world_.workers) {
    if (!worker.present()) continue;
    end_wait(worker);
    world_.tally.present(world_.now - worker.present_since);
  }
}

void WorkerSide::deliver(const Message& message) {
  const Rank rank = message.worker;
  SimWorker& worker = world_.workers[rank];
  if (message.life != worker.life || !worker.present()) return;
  switch (message.kind) {
    case MessageKind::kJoined:
      worker.iteration = message.iteration;
      begin(rank);
      break;
    case MessageKind::kGranted:
      on_granted(rank, message.iteration, message.extra);
      break;
    case MessageKind::kPushed:
      on_pushed(rank, message.extra != 0);
      break;
    case MessageKind::kTargetsReply:
      on_targets(rank);
      break;
    case MessageKind::kCollectReply:
      on_collected(rank, message.iteration);
      break;
    case MessageKind::kResync:
      on_resync(rank, message.iteration);
      break;
    case MessageKind::kStop:
      end_process(rank, Stage::kStopped);
      break;
    case MessageKind::kData:
      on_data(rank, message.extra, message.iteration);
      break;
    case MessageKind::kDataArrived:
      push(rank);
      break;
    default:
      break;
  }
}

// ---- processes

void WorkerSide::happens(std::size_t index) {
  const TimedEvent& event = world_.options.events[index];
  switch (event.kind) {
    case TimedEvent::Kind::kJoin:
      if (!world_.workers[event.rank].present()) start_process(event.rank);
      break;
    case TimedEvent::Kind::kSwitch:
      world_.post(MessageKind::kSwitch, 0, 0, 0, static_cast<std::uint32_t>(index));
      break;
    case TimedEvent::Kind::kFail:
    case TimedEvent::Kind::kLeave: {
      const SimWorker& worker = world_.workers[event.rank];
      if (!worker.present()) break;  // the job has ended for it
      // One that was never let in has no place to give back.
      const bool leaves = event.kind == TimedEvent::Kind::kLeave && worker.stage != Stage::kJoining;
      world_.say(leaves ? MessageKind::kLeave : MessageKind::kCut, event.rank, 0);
      end_process(event.rank, Stage::kAbsent);
      break;
    }
  }
}

void WorkerSide::start_process(Rank rank) {
  SimWorker& worker = world_.workers[rank];
  ++worker.life;
  worker.connection = connection_of(rank, worker.life);
  worker.stage = Stage::kJoining;
  worker.present_since = world_.now;
  worker.begun = false;
  worker.inboxes.clear();
  worker.consumed = kNoIteration;
  if (world_.options.observer != nullptr) world_.options.observer->after_start(world_.outer, rank);
  if (model() != nullptr) model()->start(rank);
  world_.say(MessageKind::kJoin, rank, 0);
}

void WorkerSide::end_process(Rank rank, Stage stage) {
  SimWorker& worker = world_.workers[rank];
  end_wait(worker);
  world_.tally.present(world_.now - worker.present_since);
  ++worker.life;  // also its ComputeEnd is one of another life
  ++worker.compute_token;
  worker.stage = stage;
}

void WorkerSide::end_wait(SimWorker& worker) {
  if (worker.waiting_since < 0) return;
  const Micros waited = world_.now - worker.waiting_since;
  if (model() != nullptr) {
    const auto rank = static_cast<Rank>(&worker - world_.workers.data());
    model()->waited(rank, worker.waiting_since, world_.now);
  }
  worker.waiting_since = -1;
  world_.tally.waited(waited);
}

// ---- the trainer's loop

void WorkerSide::call(Rank rank, MessageKind kind, Stage stage, Iteration iteration) {
  SimWorker& worker = world_.workers[rank];
  worker.stage = stage;
  worker.waiting_since = world_.now;
  world_.say(kind, rank, iteration);
}

void WorkerSide::begin(Rank rank) {
  if (model() != nullptr && !model()->goes_on(rank)) {
    world_.say(MessageKind::kLeave, rank, 0);
    end_process(rank, Stage::kAbsent);
    return;
  }
  call(rank, MessageKind::kBegin, Stage::kBegin, world_.workers[rank].iteration);
}

void WorkerSide::on_granted(Rank rank, Iteration k, std::uint32_t flags) {
  SimWorker& worker = world_.workers[rank];
  end_wait(worker);
  if ((flags & wire::kStepStop) != 0) {
    end_process(rank, Stage::kStopped);
    return;
  }
  // A newcomer's first iteration may be another than was said when it joined: no jump.
  const bool jumped = worker.begun && k > worker.iteration;
  if (jumped) world_.tally.skipped(k - worker.iteration);
  if (model() != nullptr) {
    if (jumped) model()->jumped(rank, k - worker.iteration);
    const bool renew = (flags & (wire::kStepPull | wire::kStepSkip)) != 0;
    if (!decentralized_ && (renew || !worker.begun || worker.late)) model()->pull(rank);
    worker.late = false;
  }
  worker.begun = true;
  worker.iteration = k;
  worker.computed = false;
  if (jumped && decentralized_) {
    // It renews its parameters with what it was to collect just before (Hop, section 5).
    call(rank, MessageKind::kCollect, Stage::kJumped, k - 1);
  } else {
    enter_iteration(rank);
  }
}

void WorkerSide::enter_iteration(Rank rank) {
  if (!decentralized_ || compute_first_) {
    compute(rank);
  } else {
    call(rank, MessageKind::kTargets, Stage::kTargets, world_.workers[rank].iteration);
  }
}

void WorkerSide::compute(Rank rank) {
  SimWorker& worker = world_.workers[rank];
  worker.compute_us = compute_time(rank, worker.iteration);
  start_computing(rank);
}

// Of all batches of an iteration. Those that the run is too short for are left out.
Micros WorkerSide::compute_time(Rank rank, Iteration k) const {
  if (loop_.batches == 1) return durations_(rank, k);
  Micros sum = 0;
  for (std::int64_t i = 0; i < loop_.batches && sum <= world_.options.duration_us; ++i) {
    sum += durations_(rank, k * loop_.batches + i);
  }
  return sum;
}

void WorkerSide::start_computing(Rank rank) {
  SimWorker& worker = world_.workers[rank];
  worker.stage = Stage::kComputing;
  worker.computing_since = world_.now;
  computing_.push({world_.now + worker.compute_us, ++world_.order, rank, ++worker.compute_token});
}

void WorkerSide::compute_ended() {
  const ComputeEnd end = computing_.top();
  computing_.pop();
  SimWorker& worker = world_.workers[end.worker];
  if (worker.compute_token != end.token || worker.stage != Stage::kComputing) return;
  if (model() != nullptr) {
    note_computed(end.worker, false);
    for (std::int64_t i = 0; i < loop_.batches; ++i) {
      model()->compute(end.worker, worker.iteration * loop_.batches + i);
    }
  }
  if (!decentralized_) {
    push(end.worker);
    return;
  }
  worker.computed = true;
  ++worker.iterations;
  if (compute_first_) {
    call(end.worker, MessageKind::kTargets, Stage::kTargets, worker.iteration);
  } else {
    call(end.worker, MessageKind::kCollect, Stage::kCollect, worker.iteration);
  }
}

void WorkerSide::note_computed(Rank rank, bool dropped) {
  model()->computed(rank, world_.workers[rank].computing_since, world_.now, dropped);
}

void WorkerSide::push(Rank rank) {
  if (model() != nullptr) {
    world_.workers[rank].loss = model()->publish(rank, world_.workers[rank].iteration);
  }
  world_.workers[rank].stage = Stage::kPush;
  world_.say(MessageKind::kPush, rank, world_.workers[rank].iteration);
}

void WorkerSide::on_pushed(Rank rank, bool late) {
  SimWorker& worker = world_.workers[rank];
  if (model() != nullptr) model()->pushed(rank, worker.iteration, late);
  if (decentralized_) {
    if (worker.computed) {
      call(rank, MessageKind::kCollect, Stage::kCollect, worker.iteration);
    } else {
      compute(rank);
    }
    return;
  }
  if (late) {
    ++world_.tally.result().late_pushes;
    world_.tally.wasted(worker.compute_us);
    worker.late = true;
  } else {
    ++worker.iterations;
  }
  ++worker.iteration;
  begin(rank);
}

void WorkerSide::on_targets(Rank rank) {
  SimWorker& worker = world_.workers[rank];
  end_wait(worker);
  for (const Rank to : worker.targets) {
    if (to >= world_.workers.size() || !world_.workers[to].present()) continue;
    if (model() != nullptr) model()->send(rank, to, worker.iteration);
    world_.post(MessageKind::kData, to, world_.workers[to].life, worker.iteration, rank);
  }
  if (loop_.push_follows_data && world_.options.delay_us > 0) {
    worker.stage = Stage::kSending;
    world_.post(MessageKind::kDataArrived, rank, worker.life, worker.iteration);
  } else {
    push(rank);
  }
}

void WorkerSide::on_data(Rank rank, Rank from, Iteration k) {
  SimWorker& worker = world_.workers[rank];
  Inbox& inbox = worker.inboxes[from];
  if (loop_.push_follows_data && !inbox.received.empty() &&
      inbox.received.back() > worker.consumed) {
    ++world_.tally.result().overwritten_updates;
  }
  inbox.add(k);
  if (model() != nullptr) model()->arrived(from, rank, k);
  if (world_.options.observer != nullptr) {
    world_.options.observer->after_data(world_.outer, from, rank, k);
  }
}

void WorkerSide::on_collected(Rank rank, Iteration k) {
  SimWorker& worker = world_.workers[rank];
  end_wait(worker);
  world_.tally.reduced(rank, worker);
  if (world_.options.observer != nullptr) {
    world_.options.observer->after_collected(world_.outer, rank, k, worker.updates);
  }
  if (model() != nullptr) model()->reduce(rank, k, worker.updates, worker.stage == Stage::kJumped);
  worker.consumed = k;
  world_.say(MessageKind::kConsumed, rank, k);
  if (worker.stage == Stage::kJumped) {
    enter_iteration(rank);
  } else {
    worker.iteration = k + 1;
    begin(rank);
  }
}

// The worker drops what it has, pulls, and computes the same iteration again.
void WorkerSide::on_resync(Rank rank, Iteration k) {
  SimWorker& worker = world_.workers[rank];
  if (worker.stage != Stage::kComputing || worker.iteration != k) return;
  world_.tally.wasted(world_.now - worker.computing_since);
  ++world_.tally.result().restarts;
  world_.say(MessageKind::kRestarted, rank, k);
  if (model() != nullptr) {
    note_computed(rank, true);
    model()->pull(rank);
  }
  start_computing(rank);
}

}  // namespace syncd::sim
