// See server_world.h.
#include "server_world.h"

#include <algorithm>

#include "daemon/core/policies/registry.h"

namespace syncd::test {
namespace {

constexpr Micros kGrace = 400'000;

}  // namespace

ServerWorld::ServerWorld(const ServerWorldOptions& options)
    : options_(options),
      policy_(&options_.policies.front()),
      random_(options.seed * 7919 + 3),
      engine_(std::make_unique<Engine>(EngineOptions{})) {
  JobSpec spec;
  spec.name = "train";
  spec.policy = policy_->text;
  spec.expected_workers = options.workers;
  spec.worker_grace_us = kGrace;
  spec.min_workers = 1;
  spec.start_timeout_us = kGrace;
  spec.warn_after_us = spec.evict_after_us = 0;
  Effects effects;
  std::string error;
  if (!engine_->declare_job(spec, now_, effects, error)) throw ServerViolation(error);
  drive(effects);
  for (std::uint32_t i = 0; i < options.workers; ++i) {
    processes_.push_back({});
    join(i, false);
  }
}

void ServerWorld::fail(const std::string& what) const {
  std::string text = what + "\n  " + policy_->text + ", " + std::to_string(options_.workers) +
                     " workers, seed " + std::to_string(options_.seed);
  for (const Process& p : processes_) {
    const auto it = counted_.find(p.ref.rank);
    const Counted counted = it == counted_.end() ? Counted{} : it->second;
    text += "\n  " + p.name + " rank " + std::to_string(p.ref.rank) + (p.gone ? " gone" : "") +
            (p.done ? " done" : "") + (p.stands ? " asks" : "") + " next " +
            std::to_string(p.next) + " granted " + std::to_string(p.granted) + " pushed " +
            std::to_string(p.pushed) + " q " + std::to_string(counted.clock - counted.base) +
            (counted.active ? " active" : "") + (counted.takes_part ? " takes part" : "");
  }
  throw ServerViolation(text);
}

std::uint64_t ServerWorld::others(Rank rank) const {
  return pushes_ - counted_.at(rank).pushes;
}

// ---- messages

void ServerWorld::send(std::size_t p, wire::Body body) {
  Process& process = processes_[p];
  process.stands = true;
  process.request = next_request_++;
  step(Request{{process.connection, process.request}, std::move(body)});
}

void ServerWorld::step(Event event) {
  Effects effects;
  engine_->step(std::move(event), now_, effects);
  drive(effects);
}

void ServerWorld::tick() {
  Effects effects;
  engine_->tick(now_, effects);
  drive(effects);
}

void ServerWorld::drive(const Effects& effects) {
  int lost = 0;
  for (const Record& record : effects.records) {
    records_.push_back(record);
    read(record);
    lost += record.kind == RecordKind::kWorkerLost ? 1 : 0;
  }
  several_lost_ = lost > 1;
  for (const Plan& plan : effects.plans) plans_.push_back(plan);
  for (const Notification& notification : effects.notifications) {
    for (Process& process : processes_) {
      if (process.connection != notification.connection) continue;
      if (const auto* resync = std::get_if<wire::ResyncNotice>(&notification.body)) {
        on_resync(process, *resync);
      } else {
        process.gone = true;
      }
    }
  }
  for (const Reply& reply : effects.replies) {
    for (std::size_t p = 0; p < processes_.size(); ++p) {
      Process& process = processes_[p];
      if (process.connection != reply.to.connection || process.request != reply.to.request) {
        continue;
      }
      process.stands = false;
      answer(p, reply.body);
      break;
    }
  }
}

// ---- the records' own story

void ServerWorld::rebase() {
  for (auto& [rank, worker] : counted_) {
    worker.base = worker.clock;
    worker.takes_part = worker.active;
  }
}

void ServerWorld::read(const Record& record) {
  const Rank rank = static_cast<Rank>(std::max<std::int64_t>(record.rank, 0));
  switch (record.kind) {
    case RecordKind::kJobStarted:
      running_ = true;
      for (auto& [other, worker] : counted_) {
        worker.active = worker.takes_part =
            worker.member && std::count(record.values.begin(), record.values.end(), other) == 0;
      }
      break;
    case RecordKind::kWorkerJoined:
      counted_[rank].clock = record.clock;
      counted_[rank].base = record.base;
      counted_[rank].member = true;
      if (running_) counted_[rank].active = true;
      break;
    case RecordKind::kWorkerLeft:
    case RecordKind::kWorkerLost:
      counted_[rank].member = counted_[rank].active = counted_[rank].takes_part = false;
      break;
    case RecordKind::kPush:
      counted_[rank].clock = record.clock;
      ++counted_[rank].pushes;
      ++pushes_;
      if (record.late) fail("a push is late");
      break;
    case RecordKind::kBarrier: {
      ++barriers_;
      rebase();
      break;
    }
    case RecordKind::kPolicySwitched:
      for (const PolicyUnderTest& policy : options_.policies) {
        if (policy.text == record.policy) policy_ = &policy;
      }
      rebase();
      break;
    case RecordKind::kPolicyNote:
      if (record.reason == "specsync tuned") ++tunings_;
      break;
    default:
      break;
  }
}

void ServerWorld::on_grant(Process& process, const wire::Granted& granted) {
  ++grants_;
  // Only who came too late for the start is sent on to where the others are.
  const bool jumps = granted.iteration > process.next && (granted.flags & wire::kStepSkip) != 0;
  if (granted.iteration != process.next && !(jumps && process.granted < 0)) {
    fail("another iteration was granted than was asked for");
  }
  const Counted& me = counted_.at(process.ref.rank);
  if (!me.active) fail("a grant to a worker that is not active");
  Clock lowest = INT64_MAX;
  for (const auto& [rank, worker] : counted_) {
    const bool counts = policy_->of_participants ? worker.takes_part : worker.active;
    if (counts) lowest = std::min(lowest, worker.clock - worker.base);
  }
  const std::int64_t gap = me.clock - me.base - lowest;
  if (policy_->of_participants && !me.takes_part) fail("a grant to one that takes no part");
  if (granted.staleness != gap && !several_lost_) {
    fail("a grant at a gap of " + std::to_string(gap) + " that tells " +
         std::to_string(granted.staleness));
  }
  if (policy_->bound) {
    if (std::max(gap, granted.staleness) > *policy_->bound) {
      fail("a grant at a gap of " + std::to_string(gap));
    }
    if (gap == *policy_->bound) ++at_bound_;
  }
  process.granted = granted.iteration;
  process.pushed = granted.iteration - 1;
  process.busy_until = now_ + process.pace / 2 +
                       static_cast<Micros>(random_() % static_cast<std::uint64_t>(process.pace));
  process.resync = false;
  process.resyncs = 0;
  process.pulled_at = now_;
  process.others_then = others(process.ref.rank);
}

void ServerWorld::on_resync(Process& process, const wire::ResyncNotice& notice) {
  ++resyncs_;
  if (!process.computing() || notice.iteration != process.granted) fail("a re-sync out of place");
  if (process.resync) fail("a second re-sync before the first was followed");
  if (!traits_or_none(policy_->text).may_resync) fail("a re-sync without speculation");
  process.resync = true;
  if (++process.resyncs > policy_->max_restarts) fail("too many re-syncs in one iteration");
  if (!policy_->abort_time) return;
  if (now_ < process.pulled_at + *policy_->abort_time) fail("a re-sync before ABORT_TIME");
  const auto active = static_cast<double>(std::count_if(
      counted_.begin(), counted_.end(), [](const auto& entry) { return entry.second.active; }));
  const auto count = static_cast<double>(others(process.ref.rank) - process.others_then);
  if (count <= active * policy_->abort_rate) fail("a re-sync with too few pushes by others");
}

// ---- the worker's side

void ServerWorld::join(std::size_t p, bool again) {
  Process& process = processes_[p];
  if (process.name.empty()) process.name = "w" + std::to_string(p);
  process.connection = next_connection_++;
  wire::Join join;
  join.job = "train";
  join.name = process.name;
  join.host = "host";
  if (again) {
    join.rank = static_cast<std::int32_t>(process.ref.rank);
    join.incarnation = process.ref.incarnation;
    join.granted = process.granted;
    join.pushed = process.pushed;
  } else {
    process.granted = process.pushed = -1;
    process.pace = (random_() % 4 == 0 ? 80'000 : 12'000) + static_cast<Micros>(random_() % 9000);
  }
  process.joined = process.gone = false;
  process.resync = false;
  send(p, std::move(join));
}

void ServerWorld::answer(std::size_t p, const wire::Body& body) {
  Process& process = processes_[p];
  if (const auto* error = std::get_if<wire::Error>(&body)) {
    if (error->status == Status::kCancelled) return;
    fail(process.name + " is refused: " + error->message);
  } else if (const auto* joined = std::get_if<wire::Joined>(&body)) {
    process.joined = true;
    process.ref = joined->worker;
    if (!joined->resumed && !process.computing()) {
      process.granted = process.pushed = joined->iteration - 1;
    }
    process.next = process.pushed + 1;
  } else if (const auto* granted = std::get_if<wire::Granted>(&body)) {
    on_grant(process, *granted);
  } else if (std::holds_alternative<wire::Pushed>(body)) {
    process.pushed = process.granted;
    process.next = process.pushed + 1;
  }
}

bool ServerWorld::can_act(const Process& p) const {
  return p.joined && !p.stands && !p.done && !p.gone;
}

void ServerWorld::act(std::size_t p) {
  Process& process = processes_[p];
  if (!process.computing()) return send(p, wire::Begin{process.ref, process.next});
  if (process.resync && random_() % 3 != 0) {
    process.resync = false;
    process.pulled_at = now_;
    process.others_then = others(process.ref.rank);
    process.busy_until = now_ + process.pace;
    return send(p, wire::Restarted{process.ref, process.granted});
  }
  if (now_ < process.busy_until) return;
  wire::Push push{process.ref, process.granted, {}, 0, 0};
  if (random_() % 2 == 0) push.loss = 1000.0 / static_cast<double>(1 + pushes_);
  send(p, push);
}

void ServerWorld::deliver_plan() {
  if (plans_.empty()) return;
  const Plan plan = plans_.front();
  plans_.pop_front();
  step(PlanReady{plan.job, plan.id, plan.work->run()});
  // A second answer, or one to a question of long ago, changes nothing.
  if (random_() % 4 == 0) {
    JobSnapshot before, after;
    engine_->snapshot(1, before);
    step(PlanReady{plan.job, plan.id, {1, 2, 3}});
    engine_->snapshot(1, after);
    if (before.policy_state != after.policy_state) fail("a plan that came twice had an effect");
  }
}

// ---- disorder

void ServerWorld::set_policy() {
  const PolicyUnderTest& policy = options_.policies[random_() % options_.policies.size()];
  step(Request{{999'999, next_request_++}, wire::SetPolicyRequest{"train", policy.text}});
}

void ServerWorld::lose_or_leave(std::size_t p) {
  Process& process = processes_[p];
  // A job is over when its last worker leaves in good order.
  const auto active = std::count_if(counted_.begin(), counted_.end(),
                                    [](const auto& entry) { return entry.second.active; });
  if (random_() % 3 == 0 && active > 1) {
    send(p, wire::Leave{process.ref});
  } else {
    step(Disconnected{process.connection});
  }
  process.gone = true;
  process.connection = 0;
}

void ServerWorld::restart_daemon() {
  JobSnapshot live;
  if (!engine_->snapshot(1, live)) fail("the job is gone");
  std::string error;
  auto whole = std::make_unique<Engine>(EngineOptions{});
  if (!whole->restore(nullptr, records_, error)) fail("recovery: " + error);
  JobSnapshot replayed;
  whole->snapshot(1, replayed);
  if (snapshot_) {
    auto tail = std::make_unique<Engine>(EngineOptions{});
    const std::span<const Record> rest(
        records_.begin() + static_cast<std::ptrdiff_t>(snapshot_->sequence), records_.end());
    if (!tail->restore(&*snapshot_, rest, error)) fail("recovery from a snapshot: " + error);
    JobSnapshot from_snapshot;
    tail->snapshot(1, from_snapshot);
    if (plans_.empty() && from_snapshot.policy_state != replayed.policy_state) {
      fail("a snapshot and what followed give another state than the whole history");
    }
    if (random_() % 2 == 0) whole = std::move(tail);
  }
  // While a plan is computed, the one side knows who was held when it was asked for.
  if (plans_.empty() && live.policy_state != replayed.policy_state) {
    fail("replay gives another policy state");
  }
  snapshot_ = live;
  engine_ = std::move(whole);
  engine_->finish_restore(now_);
  plans_.clear();
  for (std::size_t p = 0; p < processes_.size(); ++p) {
    Process& process = processes_[p];
    if (!process.joined || process.gone || process.done) continue;
    join(p, true);
  }
}

void ServerWorld::disorder() {
  const std::size_t p = random_() % processes_.size();
  Process& process = processes_[p];
  const bool there = process.joined && !process.gone && !process.done;
  switch (random_() % 7) {
    case 0:
      if (options_.membership && there && can_act(process)) lose_or_leave(p);
      return;
    case 1:  // it reconnects
      if (!options_.membership || !there) return;
      step(Disconnected{process.connection});
      return join(p, true);
    case 2:  // a lost one comes back as it was, or as a new process
      if (options_.membership && process.gone && !process.done) join(p, false);
      return;
    case 3:
      if (!options_.membership || processes_.size() >= options_.workers + 3) return;
      processes_.push_back({});
      return join(processes_.size() - 1, false);
    case 4:
      if (options_.switches) set_policy();
      return;
    default:
      if (options_.restarts && random_() % 3 == 0) restart_daemon();
  }
}

void ServerWorld::run() {
  for (int i = 0; i < options_.steps; ++i) {
    now_ = std::min(now_ + 1 + static_cast<Micros>(random_() % 2000),
                    std::max(engine_->next_deadline(), now_ + 1));
    tick();
    if (random_() % 40 == 0) disorder();
    if (random_() % 10 == 0) deliver_plan();
    const std::size_t p = random_() % processes_.size();
    if (can_act(processes_[p])) act(p);
  }
  // Everybody goes on, and all must get on: the slowest decides, as many iterations more each.
  Iteration goal = 0;
  for (const Process& process : processes_) goal = std::max(goal, process.granted + 1);
  for (int rounds = 0, idle = 0;; ++rounds) {
    now_ += 5000;
    tick();
    deliver_plan();
    bool acted = false, unfinished = false;
    for (std::size_t p = 0; p < processes_.size(); ++p) {
      Process& process = processes_[p];
      if (process.done || process.gone || !process.joined) continue;
      if (!process.computing() && !process.stands && process.next > goal) {
        process.done = acted = true;
        send(p, wire::Leave{process.ref});
        continue;
      }
      unfinished = true;
      if (!can_act(process)) continue;
      acted = true;
      act(p);
    }
    if (!unfinished) return;
    idle = acted ? 0 : idle + 1;
    if (static_cast<Micros>(idle) * 5000 > 2 * kGrace) fail("nobody gets on (deadlock)");
    if (rounds > 300'000) fail("it never ends");
  }
}

}  // namespace syncd::test
