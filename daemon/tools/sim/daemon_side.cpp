// See daemon_side.h.
#include "daemon/tools/sim/daemon_side.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace syncd::sim {
namespace {

using Stage = SimWorker::Stage;

constexpr ConnectionId kOperator = ConnectionId{1} << 63;  // who creates the job and switches it

EngineOptions engine_options(const Options& options) {
  EngineOptions engine;
  engine.defaults = job_spec(options);
  engine.snapshot_every_records = UINT64_MAX;  // nobody restores from them
  return engine;
}

}  // namespace

DaemonSide::DaemonSide(World& world) : world_(world), engine_(engine_options(world.options)) {}

void DaemonSide::create_job() {
  wire::CreateJobRequest create;
  create.name = kJobName;
  create.policy = world_.options.policy;
  create.expected_workers = world_.options.workers;
  step(Request{{kOperator, 0}, std::move(create), world_.options.graph_file});
}

void DaemonSide::plan_ready() {
  PlanOnItsWay plan = std::move(plans_.front());
  plans_.pop_front();
  step(std::move(plan.ready));
}

std::vector<WaitReport> DaemonSide::waits() {
  std::vector<WaitReport> reports;
  Effects effects;
  for (Rank rank = 0; rank < world_.workers.size(); ++rank) {
    const SimWorker& worker = world_.workers[rank];
    if (!worker.present() || worker.waiting_since < 0) continue;
    engine_.step(Request{{worker.connection, 0}, wire::Explain{worker.ref}}, world_.now, effects);
    for (const Reply& reply : effects.replies) {
      const auto* explanation = std::get_if<Explanation>(&reply.body);
      if (explanation == nullptr || explanation->iteration < 0) continue;
      const char* call = worker.stage == Stage::kBegin     ? "begin"
                         : worker.stage == Stage::kTargets ? "targets"
                                                           : "collect";
      reports.push_back({rank, *explanation,
                         fmt::format("worker {} waits in {}({}): {}", rank, call,
                                     explanation->iteration, to_text(*explanation))});
    }
  }
  return reports;
}

void DaemonSide::step(Event&& event) {
  ++world_.tally.result().engine_events;
  Observer* observer = world_.options.observer;
  const std::optional<Event> seen = observer != nullptr ? std::optional(event) : std::nullopt;
  engine_.step(std::move(event), world_.now, effects_);
  // Before route() takes it apart.
  if (seen) observer->after_event(world_.outer, &*seen, effects_);
  route();
}

void DaemonSide::tick() {
  ++world_.tally.result().engine_events;
  engine_.tick(world_.now, effects_);
  if (world_.options.observer != nullptr) {
    world_.options.observer->after_event(world_.outer, nullptr, effects_);
  }
  route();
}

template <class Body>
void DaemonSide::ask(const Message& message, Body&& body) {
  step(Request{{connection_of(message.worker, message.life), 0}, std::forward<Body>(body)});
}

// Sends on what the engine wants said. The store commits at once, so no reply is held back.
void DaemonSide::route() {
  world_.tally.records(effects_.records);
  for (Reply& reply : effects_.replies) route(reply);
  for (const Notification& notification : effects_.notifications) {
    const Rank rank = static_cast<Rank>(notification.connection & UINT32_MAX) - 1;
    const auto life = static_cast<std::uint32_t>(notification.connection >> 32);
    if (const auto* resync = std::get_if<wire::ResyncNotice>(&notification.body)) {
      ++world_.tally.result().resyncs;
      world_.post(MessageKind::kResync, rank, life, resync->iteration);
    } else if (std::holds_alternative<wire::StopNotice>(notification.body)) {
      world_.post(MessageKind::kStop, rank, life, 0);
    }
  }
  for (const Plan& plan : effects_.plans) {
    plans_.push_back({world_.now + world_.options.plan_delay_us, ++world_.order,
                      PlanReady{plan.job, plan.id, plan.work->run()}});
  }
}

void DaemonSide::route(Reply& reply) {
  if (auto* error = std::get_if<wire::Error>(&reply.body)) {
    // What a process asked that is gone may be answered as the daemon likes.
    const bool operators = reply.to.connection == kOperator;
    if (!operators && life_of(reply.to.connection) == nullptr) return;
    world_.tally.refused(world_.now, *error);
    return;
  }
  if (reply.to.connection == kOperator) return;
  if (const auto* granted = std::get_if<wire::Granted>(&reply.body)) world_.tally.granted(*granted);
  SimWorker* worker = life_of(reply.to.connection);
  if (worker == nullptr) return;
  const auto rank = static_cast<Rank>(worker - world_.workers.data());
  world_.progress_at = world_.now;
  std::visit(
      [&](auto& body) {
        using T = std::decay_t<decltype(body)>;
        if constexpr (std::is_same_v<T, wire::Granted>) {
          if (world_.options.model != nullptr) world_.options.model->granted(rank, body);
          world_.tally.pulled(*worker);
          world_.post(MessageKind::kGranted, rank, worker->life, body.iteration, body.flags);
        } else if constexpr (std::is_same_v<T, wire::Pushed>) {
          if (!body.late && !body.duplicate) world_.tally.pushed(*worker);
          world_.post(MessageKind::kPushed, rank, worker->life, body.iteration, body.late ? 1 : 0);
        } else if constexpr (std::is_same_v<T, wire::Joined>) {
          worker->ref = body.worker;
          world_.post(MessageKind::kJoined, rank, worker->life, body.iteration);
        } else if constexpr (std::is_same_v<T, wire::TargetsReply>) {
          worker->targets = std::move(body.ranks);
          world_.post(MessageKind::kTargetsReply, rank, worker->life, body.iteration);
        } else if constexpr (std::is_same_v<T, wire::CollectReply>) {
          worker->updates = std::move(body.updates);
          world_.post(MessageKind::kCollectReply, rank, worker->life, body.iteration);
        }
      },
      reply.body);
}

// The worker that speaks over this connection, if it still does.
SimWorker* DaemonSide::life_of(ConnectionId connection) {
  const Rank rank = static_cast<Rank>(connection & UINT32_MAX) - 1;
  if (rank >= world_.workers.size()) return nullptr;
  SimWorker& worker = world_.workers[rank];
  return worker.connection == connection && worker.present() ? &worker : nullptr;
}

void DaemonSide::deliver(const Message& message) {
  const Rank rank = message.worker;
  const wire::WorkerRef& ref = world_.workers[rank].ref;
  const Iteration k = message.iteration;
  switch (message.kind) {
    case MessageKind::kJoin: {
      wire::Join join;
      join.job = kJobName;
      join.name = fmt::format("worker-{}", rank);
      join.host = fmt::format("node-{}", host_of(rank, world_.options));
      join.rank = static_cast<std::int32_t>(rank);
      ask(message, std::move(join));
      break;
    }
    case MessageKind::kBegin:
      ask(message, wire::Begin{ref, k});
      break;
    case MessageKind::kPush: {
      wire::Push push;
      push.worker = ref;
      push.iteration = k;
      push.loss = world_.workers[rank].loss;
      ask(message, std::move(push));
      break;
    }
    case MessageKind::kRestarted:
      world_.tally.pulled_again(world_.workers[rank]);
      ask(message, wire::Restarted{ref, k});
      break;
    case MessageKind::kTargets:
      ask(message, wire::Targets{ref, k});
      break;
    case MessageKind::kCollect:
      ask(message, wire::Collect{ref, k});
      break;
    case MessageKind::kConsumed:
      ask(message, wire::Consumed{ref, k});
      break;
    case MessageKind::kLeave:
      ask(message, wire::Leave{ref});
      step(Disconnected{connection_of(rank, message.life)});
      break;
    case MessageKind::kCut:
      step(Disconnected{connection_of(rank, message.life)});
      break;
    case MessageKind::kSwitch:
      step(Request{{kOperator, 0},
                   wire::SetPolicyRequest{kJobName, world_.options.events[message.extra].policy}});
      break;
    default:
      break;
  }
}

}  // namespace syncd::sim
