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

EngineOptions engine_options(const Options& options) {
  EngineOptions engine;
  engine.defaults = job_spec(options);
  engine.snapshot_every_records = UINT64_MAX;  // no restart reads them
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

// Sends on what the engine wants said. The store commits at once, so no reply is held back.
void DaemonSide::route() {
  world_.tally.records(effects_.records);
  for (Reply& reply : effects_.replies) route(reply);
  for (const Notification& notification : effects_.notifications) {
    const bool resyncs = std::holds_alternative<wire::ResyncNotice>(notification.body);
    if (resyncs) ++world_.tally.result().resyncs;
    if (resyncs || std::holds_alternative<wire::StopNotice>(notification.body)) {
      world_.to_worker(notification.connection, notification.body);
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
  world_.progress_at = world_.now;
  std::visit(
      [&](auto& body) {
        using T = std::decay_t<decltype(body)>;
        if constexpr (std::is_same_v<T, wire::Granted>) {
          Model* model = world_.options.model;
          if (model != nullptr) model->granted(rank_of(worker->connection), body);
          world_.tally.pulled(*worker);
        } else if constexpr (std::is_same_v<T, wire::Pushed>) {
          if (!body.late && !body.duplicate) world_.tally.pushed(*worker);
        }
        // No worker waits for an Ok.
        if constexpr (!std::is_same_v<T, wire::Ok>) {
          world_.to_worker(worker->connection, std::move(body));
        }
      },
      reply.body);
}

// The worker that speaks over this connection, if it still does.
SimWorker* DaemonSide::life_of(ConnectionId connection) {
  const Rank rank = rank_of(connection);
  if (rank >= world_.workers.size()) return nullptr;
  SimWorker& worker = world_.workers[rank];
  return worker.connection == connection && worker.present() ? &worker : nullptr;
}

void DaemonSide::deliver(Message& message) {
  std::visit(
      [&](auto& body) {
        using T = std::decay_t<decltype(body)>;
        if constexpr (std::is_same_v<T, Cut>) {
          step(Disconnected{message.connection});
        } else if constexpr (std::is_constructible_v<wire::Body, T>) {
          step(Request{{message.connection, 0}, std::move(body)});
        } else if constexpr (std::is_same_v<T, std::unique_ptr<wire::Body>>) {
          if (std::holds_alternative<wire::Restarted>(*body)) {
            world_.tally.pulled_again(world_.workers[rank_of(message.connection)]);
          }
          step(Request{{message.connection, 0}, std::move(*body)});
        }
      },
      message.body);
}

}  // namespace syncd::sim
