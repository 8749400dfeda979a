// See worker_side.h.
#include "daemon/tools/sim/worker_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace syncd::sim {

WorkerSide::WorkerSide(World& world)
    : world_(world),
      durations_(world.options.iteration_time, world.options.slowdown, world.options.seed,
                 world.options.workers),
      server_link_(world.options.transfer_us) {
  for (const std::uint32_t size : world.options.host_sizes) {
    host_ends_.push_back((host_ends_.empty() ? 0 : host_ends_.back()) + size);
  }
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
    stop_transferring(worker);
    world_.tally.present(world_.now - worker.present_since);
  }
}

void WorkerSide::deliver(const Message& message) {
  const Rank rank = rank_of(message.connection);
  const SimWorker& worker = world_.workers[rank];
  if (message.connection != worker.connection || !worker.present()) return;
  std::visit([&](const auto& body) { on(rank, body); }, message.body);
}

// ---- processes

void WorkerSide::happens(std::size_t index) {
  const TimedEvent& event = world_.options.events[index];
  switch (event.kind) {
    case TimedEvent::Kind::kJoin:
      if (!world_.workers[event.rank].present()) start_process(event.rank);
      break;
    case TimedEvent::Kind::kSwitch:
      world_.to_daemon(kOperator, wire::SetPolicyRequest{kJobName, event.policy});
      break;
    case TimedEvent::Kind::kFail:
    case TimedEvent::Kind::kLeave: {
      const SimWorker& worker = world_.workers[event.rank];
      if (!worker.present()) break;  // the job has ended for it
      // One that was never let in has no place to give back.
      const bool leaves = event.kind == TimedEvent::Kind::kLeave && worker.stage != Stage::kJoining;
      go(event.rank, leaves);
      break;
    }
  }
}

std::size_t WorkerSide::host_of(Rank rank) const {
  if (host_ends_.empty()) return rank;
  if (rank >= host_ends_.back()) return rank % host_ends_.size();
  return static_cast<std::size_t>(std::upper_bound(host_ends_.begin(), host_ends_.end(), rank) -
                                  host_ends_.begin());
}

void WorkerSide::start_process(Rank rank) {
  SimWorker& worker = world_.workers[rank];
  ++worker.life;
  worker.connection = connection_of(rank, worker.life);
  worker.stage = Stage::kJoining;
  worker.present_since = world_.now;
  worker.begun = false;
  worker.inboxes.clear();
  worker.slots.clear();
  worker.link_free_at = 0;
  worker.consumed = kNoIteration;
  if (world_.options.observer != nullptr) world_.options.observer->after_start(world_.outer, rank);
  if (model() != nullptr) model()->start(rank);
  wire::Join join;
  join.job = kJobName;
  join.name = fmt::format("worker-{}", rank);
  join.host = fmt::format("node-{}", host_of(rank));
  join.rank = static_cast<std::int32_t>(rank);
  world_.to_daemon(worker.connection, std::move(join));
}

// Its connection closes, after a goodbye if it leaves.
void WorkerSide::go(Rank rank, bool leaves) {
  const SimWorker& worker = world_.workers[rank];
  if (leaves) world_.to_daemon(worker.connection, wire::Leave{worker.ref});
  world_.to_daemon(worker.connection, Cut{});
  end_process(rank, Stage::kAbsent);
}

void WorkerSide::end_process(Rank rank, Stage stage) {
  SimWorker& worker = world_.workers[rank];
  end_wait(worker);
  stop_transferring(worker);
  world_.tally.present(world_.now - worker.present_since);
  ++worker.life;
  ++worker.token;
  worker.stage = stage;
}

void WorkerSide::end_wait(SimWorker& worker) {
  if (worker.waiting_since < 0) return;
  const Micros waited = world_.now - worker.waiting_since;
  if (model() != nullptr) {
    model()->waited(rank_of_worker(worker), worker.waiting_since, world_.now);
  }
  worker.waiting_since = -1;
  world_.tally.waited(waited);
}

// If one is under way, it stops here.
void WorkerSide::stop_transferring(SimWorker& worker) {
  if (worker.transferring_since < 0) return;
  if (!decentralized_) server_link_.cancel(world_.now, rank_of_worker(worker));
  end_transferring(worker);
}

void WorkerSide::end_transferring(SimWorker& worker) {
  const Rank rank = rank_of_worker(worker);
  world_.tally.transferred(world_.now - worker.transferring_since);
  if (model() != nullptr) model()->transferred(rank, worker.transferring_since, world_.now);
  worker.transferring_since = -1;
}

// ---- the trainer's loop

template <class Body>
void WorkerSide::call(Rank rank, Stage stage, Body&& body) {
  SimWorker& worker = world_.workers[rank];
  worker.stage = stage;
  worker.waiting_since = world_.now;
  world_.to_daemon(worker.connection, std::forward<Body>(body));
}

void WorkerSide::collect(Rank rank, Stage stage, Iteration k) {
  call(rank, stage, wire::Collect{world_.workers[rank].ref, k});
}

void WorkerSide::on(Rank rank, const wire::Joined& joined) {
  SimWorker& worker = world_.workers[rank];
  worker.ref = joined.worker;
  worker.iteration = joined.iteration;
  begin(rank);
}

void WorkerSide::begin(Rank rank) {
  if (model() != nullptr && !model()->goes_on(rank)) {
    go(rank, true);
    return;
  }
  const SimWorker& worker = world_.workers[rank];
  call(rank, Stage::kBegin, wire::Begin{worker.ref, worker.iteration});
}

void WorkerSide::on(Rank rank, const wire::Granted& granted) {
  SimWorker& worker = world_.workers[rank];
  const Iteration k = granted.iteration;
  end_wait(worker);
  if ((granted.flags & wire::kStepStop) != 0) {
    end_process(rank, Stage::kStopped);
    return;
  }
  // A newcomer's first iteration may be another than was said when it joined: no jump.
  const bool jumped = worker.begun && k > worker.iteration;
  if (jumped) world_.tally.skipped(k - worker.iteration);
  if (model() != nullptr && jumped) model()->jumped(rank, k - worker.iteration);
  const bool renew = (granted.flags & (wire::kStepPull | wire::kStepSkip)) != 0;
  const bool pulls = !decentralized_ && (renew || !worker.begun || worker.late);
  worker.late = false;
  worker.begun = true;
  worker.iteration = k;
  worker.computed = false;
  if (jumped && decentralized_) {
    // It renews its parameters with what it was to collect just before (Hop, section 5).
    collect(rank, Stage::kJumped, k - 1);
  } else if (pulls) {
    worker.compute_us = compute_time(rank, k);
    pull(rank);
  } else {
    enter_iteration(rank);
  }
}

void WorkerSide::enter_iteration(Rank rank) {
  if (!decentralized_ || compute_first_) {
    compute(rank);
  } else {
    ask_targets(rank);
  }
}

void WorkerSide::ask_targets(Rank rank) {
  const SimWorker& worker = world_.workers[rank];
  call(rank, Stage::kTargets, wire::Targets{worker.ref, worker.iteration});
}

// It gets the parameters as they are now, and computes on them once they are there.
void WorkerSide::pull(Rank rank) {
  if (model() != nullptr) model()->pull(rank);
  transfer(rank, Stage::kPulling);
}

// Over the server's link. What follows comes with its end, at once if it takes no time.
void WorkerSide::transfer(Rank rank, Stage stage) {
  SimWorker& worker = world_.workers[rank];
  ++world_.tally.result().transfers;
  worker.stage = stage;
  if (world_.options.transfer_us > 0) {
    worker.transferring_since = world_.now;
    server_link_.start(world_.now, ++world_.order, rank);
  } else if (stage == Stage::kPulling) {
    start_computing(rank);
  } else {
    push(rank);
  }
}

void WorkerSide::transfer_ended() {
  const Rank rank = server_link_.next().worker;
  SimWorker& worker = world_.workers[rank];
  server_link_.end(world_.now);
  end_transferring(worker);
  if (worker.stage == Stage::kPulling) {
    start_computing(rank);
  } else {
    push(rank);
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
  ends_.push({world_.now + worker.compute_us, ++world_.order, rank, ++worker.token});
}

void WorkerSide::ended() {
  const End end = ends_.top();
  ends_.pop();
  const SimWorker& worker = world_.workers[end.worker];
  if (worker.token != end.token) return;
  if (worker.stage == Stage::kComputing) {
    computed(end.worker);
  } else {
    sent(end.worker);
  }
}

void WorkerSide::computed(Rank rank) {
  SimWorker& worker = world_.workers[rank];
  if (model() != nullptr) {
    note_computed(rank, false);
    for (std::int64_t i = 0; i < loop_.batches; ++i) {
      model()->compute(rank, worker.iteration * loop_.batches + i);
    }
  }
  if (!decentralized_) {
    transfer(rank, Stage::kPushing);
    return;
  }
  worker.computed = true;
  ++worker.iterations;
  if (compute_first_) {
    ask_targets(rank);
  } else {
    collect(rank, Stage::kCollect, worker.iteration);
  }
}

void WorkerSide::note_computed(Rank rank, bool dropped) {
  model()->computed(rank, world_.workers[rank].computing_since, world_.now, dropped);
}

void WorkerSide::push(Rank rank) {
  SimWorker& worker = world_.workers[rank];
  wire::Push push;
  push.worker = worker.ref;
  push.iteration = worker.iteration;
  if (model() != nullptr) push.loss = model()->publish(rank, worker.iteration);
  worker.stage = Stage::kPush;
  world_.to_daemon(worker.connection, std::move(push));
}

void WorkerSide::on(Rank rank, const wire::Pushed& pushed) {
  SimWorker& worker = world_.workers[rank];
  if (model() != nullptr) model()->pushed(rank, worker.iteration, pushed.late);
  if (decentralized_) {
    if (worker.computed) {
      collect(rank, Stage::kCollect, worker.iteration);
    } else {
      compute(rank);
    }
    return;
  }
  if (pushed.late) {
    ++world_.tally.result().late_pushes;
    world_.tally.wasted(worker.compute_us);
    worker.late = true;
  } else {
    ++worker.iterations;
  }
  ++worker.iteration;
  begin(rank);
}

void WorkerSide::on(Rank rank, const wire::TargetsReply& targets) {
  SimWorker& worker = world_.workers[rank];
  end_wait(worker);
  worker.stage = Stage::kSending;
  worker.to_send.assign(targets.ranks.rbegin(), targets.ranks.rend());
  if (!loop_.unsafe) {
    send_next(rank);
  } else if (worker.link_free_at > world_.now) {
    worker.transferring_since = world_.now;
    ends_.push({worker.link_free_at, ++world_.order, rank, ++worker.token});
  } else {
    post(rank);
  }
}

// Under an unsafe baseline: its link sends to one neighbour after another, and it goes on at once.
void WorkerSide::post(Rank rank) {
  SimWorker& worker = world_.workers[rank];
  worker.link_free_at = world_.now;
  for (; !worker.to_send.empty(); worker.to_send.pop_back()) {
    const Rank to = worker.to_send.back();
    if (to >= world_.workers.size() || !world_.workers[to].present()) continue;
    ++world_.tally.result().transfers;
    if (model() != nullptr) model()->send(rank, to, worker.iteration);
    const Micros begins = worker.link_free_at + world_.options.delay_us;
    worker.link_free_at += world_.options.transfer_us;
    world_.workers[to].slots[rank].writes.push_back(
        {worker.iteration, begins, begins + world_.options.transfer_us});
  }
  push(rank);
}

// To one neighbour after another; after the last one it pushes.
void WorkerSide::send_next(Rank rank) {
  SimWorker& worker = world_.workers[rank];
  while (!worker.to_send.empty()) {
    const Rank to = worker.to_send.back();
    if (to >= world_.workers.size() || !world_.workers[to].present()) {
      worker.to_send.pop_back();
      continue;
    }
    ++world_.tally.result().transfers;
    if (world_.options.transfer_us > 0) {
      worker.transferring_since = world_.now;
      ends_.push({world_.now + world_.options.transfer_us, ++world_.order, rank, ++worker.token});
      return;
    }
    send(rank);
  }
  if (loop_.push_follows_data && world_.options.delay_us > 0) {
    world_.to_worker(worker.connection, DataArrived{});
  } else {
    push(rank);
  }
}

// What it sends next is sent; it arrives after the delay.
void WorkerSide::send(Rank rank) {
  SimWorker& worker = world_.workers[rank];
  const Rank to = worker.to_send.back();
  worker.to_send.pop_back();
  // A process that started meanwhile gets it too, one that ended does not.
  if (to >= world_.workers.size() || !world_.workers[to].present()) return;
  if (model() != nullptr) model()->send(rank, to, worker.iteration);
  world_.to_worker(world_.workers[to].connection, Data{rank, worker.iteration});
}

void WorkerSide::sent(Rank rank) {
  end_transferring(world_.workers[rank]);
  if (loop_.unsafe) return post(rank);
  send(rank);
  send_next(rank);
}

void WorkerSide::on(Rank rank, const Data& data) {
  SimWorker& worker = world_.workers[rank];
  const auto [from, k] = data;
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

void WorkerSide::on(Rank rank, const wire::CollectReply& collected) {
  SimWorker& worker = world_.workers[rank];
  const auto& [k, named] = collected;
  end_wait(worker);
  const auto& updates = loop_.unsafe ? read_slots(worker, named) : named;
  world_.tally.reduced(rank, worker, updates, loop_.unsafe);
  if (world_.options.observer != nullptr) {
    world_.options.observer->after_collected(world_.outer, rank, k, updates);
  }
  if (model() != nullptr) model()->reduce(rank, k, updates, worker.stage == Stage::kJumped);
  worker.consumed = k;
  world_.to_daemon(worker.connection, wire::Consumed{worker.ref, k});
  if (worker.stage == Stage::kJumped) {
    enter_iteration(rank);
  } else {
    worker.iteration = k + 1;
    begin(rank);
  }
}

// What is in the slots now, of the neighbours that the daemon named.
std::vector<wire::PeerUpdate> WorkerSide::read_slots(SimWorker& worker,
                                                     const std::vector<wire::PeerUpdate>& named) {
  const Rank rank = rank_of_worker(worker);
  std::vector<wire::PeerUpdate> updates = named;
  for (wire::PeerUpdate& update : updates) {
    if (update.rank == rank) continue;
    Slot& slot = worker.slots[update.rank];
    const bool torn = slot.torn(world_.now);
    const bool wanted =
        loop_.any_iteration ? slot.whole != slot.read : slot.whole == update.iteration;
    update.iteration = torn ? Model::kTorn : wanted ? slot.whole : kNoIteration;
    if (update.iteration < 0) continue;
    slot.read = slot.whole;
    if (model() != nullptr) model()->arrived(update.rank, rank, update.iteration);
  }
  return updates;
}

// The worker drops what it has, pulls, and computes the same iteration again.
void WorkerSide::on(Rank rank, const wire::ResyncNotice& resync) {
  SimWorker& worker = world_.workers[rank];
  const Iteration k = resync.iteration;
  const bool computes = worker.stage == Stage::kComputing;
  if ((!computes && worker.stage != Stage::kPulling) || worker.iteration != k) return;
  if (computes) world_.tally.wasted(world_.now - worker.computing_since);
  ++world_.tally.result().restarts;
  world_.to_daemon(worker.connection, wire::Restarted{worker.ref, k});
  if (computes && model() != nullptr) note_computed(rank, true);
  ++worker.token;
  stop_transferring(worker);
  pull(rank);
}

}  // namespace syncd::sim
