// See simulation.h. The daemon's side is the engine itself; this file plays the network, the
// workers' processes and the clock.
#include "daemon/sim/simulation.h"

#include <algorithm>
#include <deque>
#include <set>
#include <type_traits>

#include "daemon/engine/limits.h"
#include "daemon/engine/policy.h"
#include "daemon/sim/agenda.h"
#include "daemon/sim/sim_worker.h"

namespace syncd::sim {
namespace {

using Stage = SimWorker::Stage;

constexpr ConnectionId kOperator = ConnectionId{1} << 63;  // who creates the job and switches it
constexpr const char* kJobName = "simulated";

enum class Kind : std::uint8_t {
  // to the daemon
  kJoin,
  kBegin,
  kPush,
  kRestarted,
  kTargets,
  kCollect,
  kConsumed,
  kLeave,
  kCut,
  kSwitch,
  // to a worker
  kJoined,
  kGranted,
  kPushed,
  kTargetsReply,
  kCollectReply,
  kResync,
  kStop,
  kData,         // from another worker
  kDataArrived,  // at all the neighbours to which it was sent
};

struct Message {
  Micros at = 0;
  std::uint64_t order = 0;
  Iteration iteration = 0;
  Rank worker = 0;
  std::uint32_t life = 0;
  std::uint32_t extra = 0;  // granted: flags; pushed: late; data: the sender; switch: which event
  Kind kind = Kind::kJoin;
};

struct PlanOnItsWay {
  Micros at = 0;
  std::uint64_t order = 0;
  PlanReady ready;
};

ConnectionId connection_of(Rank rank, std::uint32_t life) {
  return (ConnectionId{life} << 32) | (rank + 1);
}

std::uint64_t host_of(Rank rank, const Options& options) {
  if (options.hosts == 0) return rank;
  if (rank >= options.workers) return rank % options.hosts;
  return std::uint64_t{rank} * options.hosts / options.workers;
}

JobSpec job_spec(const Options& options) {
  JobSpec spec;
  spec.name = kJobName;
  spec.policy = options.policy;
  spec.graph_file = options.graph_file;
  spec.expected_workers = options.workers;
  spec.worker_grace_us = options.worker_grace_us;
  // An iteration takes as long as it is drawn: nobody is given up for being slow.
  spec.warn_after_us = 0;
  spec.evict_after_us = 0;
  return spec;
}

double seconds(double us) {
  return us / 1e6;
}

std::string text_of(const TimedEvent& event) {
  const char* names[] = {"fail", "leave", "join", "switch"};
  return std::string(names[static_cast<std::size_t>(event.kind)]) + " at " +
         format_duration(event.at);
}

}  // namespace

// ---- options
// ----------------------------------------------------------------------------------------

std::string check_options(const Options& options) {
  if (options.workers < 1 || options.workers > limits::kWorkersPerJobMax) {
    return "the number of workers is " + std::to_string(options.workers) + ", allowed are 1 to " +
           std::to_string(limits::kWorkersPerJobMax);
  }
  if (options.hosts > options.workers) {
    return "the number of hosts is " + std::to_string(options.hosts) + ", allowed are 1 to " +
           std::to_string(options.workers) + ", one per worker";
  }
  const auto check_span = [](const char* what, Micros us, Micros lowest) -> std::string {
    if (us >= lowest && us <= limits::kSpanMax) return {};
    return std::string(what) + " is " + format_duration(us) + ", allowed is " +
           (lowest > 0 ? "more than 0, " : "from 0 ") + "to " + format_duration(limits::kSpanMax);
  };
  for (const std::string& wrong : {check_span("the duration", options.duration_us, 1),
                                   check_span("the delay", options.delay_us, 0),
                                   check_span("the plan's delay", options.plan_delay_us, 0),
                                   check_span("worker_grace", options.worker_grace_us, 0),
                                   check_span("the time to a stall", options.stall_us, 1)}) {
    if (!wrong.empty()) return wrong;
  }
  if (std::string wrong = validate(job_spec(options)); !wrong.empty()) return wrong;
  std::string error;
  const auto policy = make_policy(options.policy, error);
  if (options.serial && policy->family() == Family::kParameterServer) {
    return "policy '" + options.policy +
           "': only decentralized policies have an order of sending and computing";
  }

  std::set<Rank> present;
  for (Rank rank = 0; rank < options.workers; ++rank) present.insert(rank);
  Rank ranks = options.workers;  // there ever were
  std::vector<TimedEvent> events = options.events;
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.at < b.at; });
  for (const TimedEvent& event : events) {
    if (std::string wrong = check_span("the time of an event", event.at, 0); !wrong.empty()) {
      return wrong;
    }
    if (event.kind == TimedEvent::Kind::kSwitch) {
      const auto next = make_policy(event.policy, error);
      if (!next) return text_of(event) + ": " + error;
      continue;
    }
    const std::string worker = text_of(event) + ": worker " + std::to_string(event.rank);
    if (event.kind == TimedEvent::Kind::kJoin) {
      if (event.rank > ranks) {
        return worker + " cannot join before worker " + std::to_string(ranks) +
               ": new ranks follow the others without a gap";
      }
      ranks = std::max(ranks, event.rank + 1);
      if (!present.insert(event.rank).second) return worker + " is there already";
    } else if (present.erase(event.rank) == 0) {
      return worker + " is not there";
    }
  }
  for (const auto& [rank, factor] : options.slowdown.fixed) {
    if (rank >= ranks) {
      return "the slowdown names worker " + std::to_string(rank) + ", but there are only ranks 0 " +
             "to " + std::to_string(ranks - 1);
    }
  }
  return {};
}

// ---- the run
// ----------------------------------------------------------------------------------------

class Simulation::Impl {
 public:
  Impl(Simulation& outer, Options options)
      : outer_(outer),
        options_(std::move(options)),
        durations_(options_.iteration_time, options_.slowdown, options_.seed, options_.workers),
        engine_(engine_options()) {
    std::string error;
    const auto policy = make_policy(options_.policy, error);
    decentralized_ = policy->family() == Family::kDecentralized;
    loop_ = policy->peer_loop();
    compute_first_ = options_.serial || loop_.push_follows_data;
    std::stable_sort(options_.events.begin(), options_.events.end(),
                     [](const TimedEvent& a, const TimedEvent& b) { return a.at < b.at; });
    Rank ranks = options_.workers;
    result_.speculates = policy->may_resync();
    for (const TimedEvent& event : options_.events) {
      ranks = std::max(ranks, event.rank + 1);
      if (event.kind != TimedEvent::Kind::kSwitch) continue;
      const auto next = make_policy(event.policy, error);
      result_.speculates |= next && next->may_resync();
    }
    workers_.resize(ranks);
  }

  Result run() {
    wire::CreateJobRequest create;
    create.name = kJobName;
    create.policy = options_.policy;
    create.expected_workers = options_.workers;
    step(Request{{kOperator, 0}, std::move(create), options_.graph_file});
    for (Rank rank = 0; rank < options_.workers; ++rank) start_process(rank);
    while (next()) {
    }
    return finish();
  }

  const Engine& engine() const { return engine_; }
  Micros now() const { return now_; }

  std::vector<WaitReport> waits() {
    std::vector<WaitReport> reports;
    Effects effects;
    for (Rank rank = 0; rank < workers_.size(); ++rank) {
      const SimWorker& worker = workers_[rank];
      if (!worker.present() || worker.waiting_since < 0) continue;
      engine_.step(Request{{worker.connection, 0}, wire::Explain{worker.ref}}, now_, effects);
      for (const Reply& reply : effects.replies) {
        const auto* explanation = std::get_if<Explanation>(&reply.body);
        if (explanation == nullptr || explanation->iteration < 0) continue;
        const char* call = worker.stage == Stage::kBegin     ? "begin"
                           : worker.stage == Stage::kTargets ? "targets"
                                                             : "collect";
        reports.push_back({rank, *explanation,
                           "worker " + std::to_string(rank) + " waits in " + call + "(" +
                               std::to_string(explanation->iteration) +
                               "): " + to_text(*explanation)});
      }
    }
    return reports;
  }

 private:
  EngineOptions engine_options() const {
    EngineOptions engine;
    engine.defaults = job_spec(options_);
    engine.snapshot_every_records = UINT64_MAX;  // nobody restores from them
    return engine;
  }

  // ---- the agenda. Each returns the time of its next item, or kNever.

  // Handles what comes next. False: the end, or a stall.
  bool next() {
    // Of equal times the earliest planned comes first; the script was planned before all else, and
    // the engine's timers come last: what happens at a deadline has happened by then.
    enum class Source { kNone, kScript, kMessage, kCompute, kPlan };
    Source source = Source::kNone;
    Micros at = kNever;
    std::uint64_t order = 0;
    const auto offer = [&](Source from, Micros when, std::uint64_t number) {
      if (when > at || (when == at && number >= order)) return;
      source = from;
      at = when;
      order = number;
    };
    if (script_at_ < options_.events.size()) {
      offer(Source::kScript, options_.events[script_at_].at, 0);
    }
    if (!messages_.empty()) {
      offer(Source::kMessage, messages_.front().at, messages_.front().order);
    }
    if (!computing_.empty()) {
      offer(Source::kCompute, computing_.front().at, computing_.front().order);
    }
    if (!plans_.empty()) offer(Source::kPlan, plans_.front().at, plans_.front().order);

    const Micros deadline = engine_.next_deadline();
    if (deadline < at) {
      if (deadline > options_.duration_us) return false;
      if (source == Source::kNone && deadline - progress_at_ > options_.stall_us) return stall();
      now_ = std::max(now_, deadline);
      tick();
      return true;
    }
    if (source == Source::kNone) return stall();
    if (at > options_.duration_us) return false;
    now_ = at;
    switch (source) {
      case Source::kNone:
        break;
      case Source::kScript:
        happens(script_at_++);
        break;
      case Source::kMessage:
        deliver(messages_.pop());
        break;
      case Source::kCompute:
        compute_ended(computing_.pop());
        break;
      case Source::kPlan: {
        PlanOnItsWay plan = std::move(plans_.front());
        plans_.pop_front();
        step(std::move(plan.ready));
        break;
      }
    }
    return true;
  }

  // Nothing is left that could wake anybody up. False, for next().
  bool stall() {
    const bool waiting = std::any_of(workers_.begin(), workers_.end(), [](const SimWorker& worker) {
      return worker.present() && worker.waiting_since >= 0;
    });
    if (waiting) {
      result_.stalled = true;
      result_.stalled_at = progress_at_;
      result_.waits = waits();
    }
    return false;
  }

  void post(Kind kind, Rank worker, std::uint32_t life, Iteration iteration,
            std::uint32_t extra = 0) {
    messages_.push({now_ + options_.delay_us, ++order_, iteration, worker, life, extra, kind});
  }
  // From a worker to the daemon.
  void say(Kind kind, Rank rank, Iteration iteration) {
    post(kind, rank, workers_[rank].life, iteration);
  }

  // ---- the engine

  void step(Event&& event) {
    ++result_.engine_events;
    if (options_.observer != nullptr) {
      const Event seen = event;
      engine_.step(std::move(event), now_, effects_);
      options_.observer->after_event(outer_, &seen, effects_);  // before route() takes it apart
      route();
    } else {
      engine_.step(std::move(event), now_, effects_);
      route();
    }
  }

  void tick() {
    ++result_.engine_events;
    engine_.tick(now_, effects_);
    if (options_.observer != nullptr) options_.observer->after_event(outer_, nullptr, effects_);
    route();
  }

  template <class Body>
  void ask(Rank rank, std::uint32_t life, Body&& body) {
    step(Request{{connection_of(rank, life), 0}, std::forward<Body>(body)});
  }

  // Sends on what the engine wants said. The store commits at once, so no reply is held back.
  void route() {
    for (const Record& record : effects_.records) {
      if (record.kind != RecordKind::kBarrier) continue;
      if (record.predicted_wait_us >= 0) {
        predicted_us_ += static_cast<double>(record.predicted_wait_us);
        ++predicted_;
      }
      if (record.wait_us >= 0) {
        actual_us_ += static_cast<double>(record.wait_us);
        ++actual_;
      }
    }
    for (Reply& reply : effects_.replies) route(reply);
    for (const Notification& notification : effects_.notifications) {
      const Rank rank = static_cast<Rank>(notification.connection & UINT32_MAX) - 1;
      const auto life = static_cast<std::uint32_t>(notification.connection >> 32);
      if (const auto* resync = std::get_if<wire::ResyncNotice>(&notification.body)) {
        ++result_.resyncs;
        post(Kind::kResync, rank, life, resync->iteration);
      } else if (std::holds_alternative<wire::StopNotice>(notification.body)) {
        post(Kind::kStop, rank, life, 0);
      }
    }
    for (const Plan& plan : effects_.plans) {
      plans_.push_back({now_ + options_.plan_delay_us, ++order_,
                        PlanReady{plan.job, plan.id, plan.work->run()}});
    }
  }

  void route(Reply& reply) {
    if (auto* error = std::get_if<wire::Error>(&reply.body)) {
      // What a process asked that is gone may be answered as the daemon likes.
      const bool operators = reply.to.connection == kOperator;
      if (!operators && life_of(reply.to.connection) == nullptr) return;
      if (result_.refused.size() < kRefusedMax) {
        result_.refused.push_back("at " + format_duration(now_) + ": " +
                                  std::string(status_name(error->status)) + ": " + error->message);
      }
      return;
    }
    if (reply.to.connection == kOperator) return;
    if (const auto* granted = std::get_if<wire::Granted>(&reply.body)) count_grant(*granted);
    SimWorker* worker = life_of(reply.to.connection);
    if (worker == nullptr) return;
    const auto rank = static_cast<Rank>(worker - workers_.data());
    progress_at_ = now_;
    std::visit(
        [&](auto& body) {
          using T = std::decay_t<decltype(body)>;
          if constexpr (std::is_same_v<T, wire::Granted>) {
            worker->others_at_pull = pushes_ - worker->own_pushes;
            post(Kind::kGranted, rank, worker->life, body.iteration, body.flags);
          } else if constexpr (std::is_same_v<T, wire::Pushed>) {
            if (!body.late && !body.duplicate) {
              missed_ += pushes_ - worker->own_pushes - worker->others_at_pull;
              ++pushes_;
              ++worker->own_pushes;
            }
            post(Kind::kPushed, rank, worker->life, body.iteration, body.late ? 1 : 0);
          } else if constexpr (std::is_same_v<T, wire::Joined>) {
            worker->ref = body.worker;
            post(Kind::kJoined, rank, worker->life, body.iteration);
          } else if constexpr (std::is_same_v<T, wire::TargetsReply>) {
            worker->targets = std::move(body.ranks);
            post(Kind::kTargetsReply, rank, worker->life, body.iteration);
          } else if constexpr (std::is_same_v<T, wire::CollectReply>) {
            worker->updates = std::move(body.updates);
            post(Kind::kCollectReply, rank, worker->life, body.iteration);
          }
        },
        reply.body);
  }

  void pulled_again(SimWorker& worker) {
    const std::uint64_t others = pushes_ - worker.own_pushes;
    restart_updates_ += others - worker.others_at_pull;
    ++restart_pulls_;
    worker.others_at_pull = others;
  }

  void count_grant(const wire::Granted& granted) {
    if ((granted.flags & wire::kStepStop) != 0) return;
    ++grants_;
    staleness_ += static_cast<double>(granted.staleness);
    result_.staleness_max = std::max(result_.staleness_max, granted.staleness);
  }

  // The worker that speaks over this connection, if it still does.
  SimWorker* life_of(ConnectionId connection) {
    const Rank rank = static_cast<Rank>(connection & UINT32_MAX) - 1;
    if (rank >= workers_.size()) return nullptr;
    SimWorker& worker = workers_[rank];
    return worker.connection == connection && worker.present() ? &worker : nullptr;
  }

  // ---- messages

  void deliver(const Message& message) {
    const Rank rank = message.worker;
    if (message.kind <= Kind::kSwitch) {
      deliver_to_daemon(message);
      return;
    }
    SimWorker& worker = workers_[rank];
    if (message.life != worker.life || !worker.present()) return;
    switch (message.kind) {
      case Kind::kJoined:
        worker.iteration = message.iteration;
        begin(rank);
        break;
      case Kind::kGranted:
        on_granted(rank, message.iteration, message.extra);
        break;
      case Kind::kPushed:
        on_pushed(rank, message.extra != 0);
        break;
      case Kind::kTargetsReply:
        on_targets(rank);
        break;
      case Kind::kCollectReply:
        on_collected(rank, message.iteration);
        break;
      case Kind::kResync:
        on_resync(rank, message.iteration);
        break;
      case Kind::kStop:
        end_process(rank, Stage::kStopped);
        break;
      case Kind::kData:
        on_data(rank, message.extra, message.iteration);
        break;
      case Kind::kDataArrived:
        push(rank);
        break;
      default:
        break;
    }
  }

  void deliver_to_daemon(const Message& message) {
    const Rank rank = message.worker;
    const wire::WorkerRef& ref = workers_[rank].ref;
    const Iteration k = message.iteration;
    switch (message.kind) {
      case Kind::kJoin: {
        wire::Join join;
        join.job = kJobName;
        join.name = "worker-" + std::to_string(rank);
        join.host = "node-" + std::to_string(host_of(rank, options_));
        join.rank = static_cast<std::int32_t>(rank);
        ask(rank, message.life, std::move(join));
        break;
      }
      case Kind::kBegin:
        ask(rank, message.life, wire::Begin{ref, k});
        break;
      case Kind::kPush: {
        wire::Push push;
        push.worker = ref;
        push.iteration = k;
        ask(rank, message.life, std::move(push));
        break;
      }
      case Kind::kRestarted:
        pulled_again(workers_[rank]);
        ask(rank, message.life, wire::Restarted{ref, k});
        break;
      case Kind::kTargets:
        ask(rank, message.life, wire::Targets{ref, k});
        break;
      case Kind::kCollect:
        ask(rank, message.life, wire::Collect{ref, k});
        break;
      case Kind::kConsumed:
        ask(rank, message.life, wire::Consumed{ref, k});
        break;
      case Kind::kLeave:
        ask(rank, message.life, wire::Leave{ref});
        step(Disconnected{connection_of(rank, message.life)});
        break;
      case Kind::kCut:
        step(Disconnected{connection_of(rank, message.life)});
        break;
      case Kind::kSwitch:
        step(Request{{kOperator, 0},
                     wire::SetPolicyRequest{kJobName, options_.events[message.extra].policy}});
        break;
      default:
        break;
    }
  }

  // ---- processes

  void happens(std::size_t index) {
    const TimedEvent& event = options_.events[index];
    switch (event.kind) {
      case TimedEvent::Kind::kJoin:
        if (!workers_[event.rank].present()) start_process(event.rank);
        break;
      case TimedEvent::Kind::kSwitch:
        post(Kind::kSwitch, 0, 0, 0, static_cast<std::uint32_t>(index));
        break;
      case TimedEvent::Kind::kFail:
      case TimedEvent::Kind::kLeave: {
        const SimWorker& worker = workers_[event.rank];
        if (!worker.present()) break;  // the job has ended for it
        // One that was never let in has no place to give back.
        const bool leaves =
            event.kind == TimedEvent::Kind::kLeave && worker.stage != Stage::kJoining;
        say(leaves ? Kind::kLeave : Kind::kCut, event.rank, 0);
        end_process(event.rank, Stage::kAbsent);
        break;
      }
    }
  }

  void start_process(Rank rank) {
    SimWorker& worker = workers_[rank];
    ++worker.life;
    worker.connection = connection_of(rank, worker.life);
    worker.stage = Stage::kJoining;
    worker.present_since = now_;
    worker.begun = false;
    worker.inboxes.clear();
    worker.consumed = kNoIteration;
    if (options_.observer != nullptr) options_.observer->after_start(outer_, rank);
    say(Kind::kJoin, rank, 0);
  }

  void end_process(Rank rank, Stage stage) {
    SimWorker& worker = workers_[rank];
    end_wait(worker);
    presence_us_ += static_cast<double>(now_ - worker.present_since);
    ++worker.life;  // also its ComputeEnd is one of another life
    ++worker.compute_token;
    worker.stage = stage;
  }

  void end_wait(SimWorker& worker) {
    if (worker.waiting_since < 0) return;
    const Micros waited = now_ - worker.waiting_since;
    worker.waiting_since = -1;
    waiting_us_ += static_cast<double>(waited);
    result_.longest_wait_us = std::max(result_.longest_wait_us, waited);
  }

  // ---- the trainer's loop

  void call(Rank rank, Kind kind, Stage stage, Iteration iteration) {
    SimWorker& worker = workers_[rank];
    worker.stage = stage;
    worker.waiting_since = now_;
    say(kind, rank, iteration);
  }

  void begin(Rank rank) { call(rank, Kind::kBegin, Stage::kBegin, workers_[rank].iteration); }

  void on_granted(Rank rank, Iteration k, std::uint32_t flags) {
    SimWorker& worker = workers_[rank];
    end_wait(worker);
    if ((flags & wire::kStepStop) != 0) {
      end_process(rank, Stage::kStopped);
      return;
    }
    // A newcomer's first iteration may be another than was said when it joined: no jump.
    const bool jumped = worker.begun && k > worker.iteration;
    if (jumped) skipped_ += static_cast<std::uint64_t>(k - worker.iteration);
    worker.begun = true;
    worker.iteration = k;
    worker.computed = false;
    if (jumped && decentralized_) {
      // It renews its parameters with what it was to collect just before (Hop, section 5).
      call(rank, Kind::kCollect, Stage::kJumped, k - 1);
    } else {
      enter_iteration(rank);
    }
  }

  void enter_iteration(Rank rank) {
    if (!decentralized_ || compute_first_) {
      compute(rank);
    } else {
      call(rank, Kind::kTargets, Stage::kTargets, workers_[rank].iteration);
    }
  }

  void compute(Rank rank) {
    SimWorker& worker = workers_[rank];
    worker.compute_us = compute_time(rank, worker.iteration);
    start_computing(rank);
  }

  // Of all batches of an iteration. Those that the run is too short for are left out.
  Micros compute_time(Rank rank, Iteration k) const {
    if (loop_.batches == 1) return durations_(rank, k);
    Micros sum = 0;
    for (std::int64_t i = 0; i < loop_.batches && sum <= options_.duration_us; ++i) {
      sum += durations_(rank, k * loop_.batches + i);
    }
    return sum;
  }

  void start_computing(Rank rank) {
    SimWorker& worker = workers_[rank];
    worker.stage = Stage::kComputing;
    worker.computing_since = now_;
    computing_.push({now_ + worker.compute_us, ++order_, rank, ++worker.compute_token});
  }

  void compute_ended(const ComputeEnd& end) {
    SimWorker& worker = workers_[end.worker];
    if (worker.compute_token != end.token || worker.stage != Stage::kComputing) return;
    if (!decentralized_) {
      push(end.worker);
      return;
    }
    worker.computed = true;
    ++worker.iterations;
    if (compute_first_) {
      call(end.worker, Kind::kTargets, Stage::kTargets, worker.iteration);
    } else {
      call(end.worker, Kind::kCollect, Stage::kCollect, worker.iteration);
    }
  }

  void push(Rank rank) {
    workers_[rank].stage = Stage::kPush;
    say(Kind::kPush, rank, workers_[rank].iteration);
  }

  void on_pushed(Rank rank, bool late) {
    SimWorker& worker = workers_[rank];
    if (decentralized_) {
      if (worker.computed) {
        call(rank, Kind::kCollect, Stage::kCollect, worker.iteration);
      } else {
        compute(rank);
      }
      return;
    }
    if (late) {
      ++result_.late_pushes;
      wasted_us_ += static_cast<double>(worker.compute_us);
    } else {
      ++worker.iterations;
    }
    ++worker.iteration;
    begin(rank);
  }

  void on_targets(Rank rank) {
    SimWorker& worker = workers_[rank];
    end_wait(worker);
    for (const Rank to : worker.targets) {
      if (to >= workers_.size() || !workers_[to].present()) continue;
      post(Kind::kData, to, workers_[to].life, worker.iteration, rank);
    }
    if (loop_.push_follows_data && options_.delay_us > 0) {
      worker.stage = Stage::kSending;
      post(Kind::kDataArrived, rank, worker.life, worker.iteration);
    } else {
      push(rank);
    }
  }

  void on_data(Rank rank, Rank from, Iteration k) {
    SimWorker& worker = workers_[rank];
    Inbox& inbox = worker.inboxes[from];
    if (loop_.push_follows_data && !inbox.received.empty() &&
        inbox.received.back() > worker.consumed) {
      ++result_.overwritten_updates;
    }
    inbox.add(k);
    if (options_.observer != nullptr) options_.observer->after_data(outer_, from, rank, k);
  }

  void on_collected(Rank rank, Iteration k) {
    SimWorker& worker = workers_[rank];
    end_wait(worker);
    ++result_.reduces;
    for (const wire::PeerUpdate& update : worker.updates) {
      if (update.rank == rank) continue;
      const auto inbox = worker.inboxes.find(update.rank);
      if (inbox == worker.inboxes.end() || !inbox->second.has(update.iteration)) {
        ++result_.missing_updates;
      }
    }
    if (options_.observer != nullptr) {
      options_.observer->after_collected(outer_, rank, k, worker.updates);
    }
    worker.consumed = k;
    say(Kind::kConsumed, rank, k);
    if (worker.stage == Stage::kJumped) {
      enter_iteration(rank);
    } else {
      worker.iteration = k + 1;
      begin(rank);
    }
  }

  // The worker drops what it has, pulls, and computes the same iteration again.
  void on_resync(Rank rank, Iteration k) {
    SimWorker& worker = workers_[rank];
    if (worker.stage != Stage::kComputing || worker.iteration != k) return;
    wasted_us_ += static_cast<double>(now_ - worker.computing_since);
    ++result_.restarts;
    say(Kind::kRestarted, rank, k);
    start_computing(rank);
  }

  // ---- the end

  Result finish() {
    now_ = options_.duration_us;
    for (SimWorker& worker : workers_) {
      result_.iterations += worker.iterations;
      result_.iterations_of.push_back(worker.iterations);
      if (!worker.present()) continue;
      end_wait(worker);
      presence_us_ += static_cast<double>(now_ - worker.present_since);
    }
    result_.policy = options_.policy;
    result_.batches_per_iteration = loop_.batches;
    result_.workers = options_.workers;
    result_.seed = options_.seed;
    result_.virtual_s = seconds(static_cast<double>(options_.duration_us));
    if (presence_us_ > 0) {
      const double present_s = seconds(presence_us_);
      result_.iterations_per_s_per_worker = static_cast<double>(result_.iterations) / present_s;
      result_.waiting_share = waiting_us_ / presence_us_;
      result_.wasted_share = wasted_us_ / presence_us_;
      result_.skipped_per_s_per_worker = static_cast<double>(skipped_) / present_s;
    }
    if (grants_ > 0) result_.staleness_mean = staleness_ / static_cast<double>(grants_);
    if (pushes_ > 0) {
      result_.missed_updates_mean = static_cast<double>(missed_) / static_cast<double>(pushes_);
    }
    if (restart_pulls_ > 0) {
      result_.updates_per_restart_mean =
          static_cast<double>(restart_updates_) / static_cast<double>(restart_pulls_);
    }
    for (const JobId job : engine_.job_ids()) result_.barriers += engine_.barriers(job);
    if (predicted_ > 0) {
      result_.predicted_wait_ms_mean = predicted_us_ / static_cast<double>(predicted_) / 1000;
    }
    if (actual_ > 0) {
      result_.actual_wait_ms_mean = actual_us_ / static_cast<double>(actual_) / 1000;
    }
    return std::move(result_);
  }

  Simulation& outer_;
  Options options_;
  Durations durations_;
  Engine engine_;
  bool decentralized_ = false;
  PeerLoop loop_;
  bool compute_first_ = false;

  Micros now_ = 0;
  Micros progress_at_ = 0;   // when a worker was last answered
  std::uint64_t order_ = 0;  // of what was planned last
  std::size_t script_at_ = 0;
  Ring<Message> messages_;
  ComputeHeap computing_;
  std::deque<PlanOnItsWay> plans_;  // few: a plan per superstep
  std::vector<SimWorker> workers_;
  Effects effects_;

  Result result_;
  double presence_us_ = 0;
  double waiting_us_ = 0;
  double wasted_us_ = 0;
  double staleness_ = 0;
  std::uint64_t grants_ = 0;
  std::uint64_t skipped_ = 0;
  std::uint64_t pushes_ = 0;
  std::uint64_t missed_ = 0;
  std::uint64_t restart_pulls_ = 0;
  std::uint64_t restart_updates_ = 0;
  double predicted_us_ = 0;
  double actual_us_ = 0;
  std::uint64_t predicted_ = 0;
  std::uint64_t actual_ = 0;
};

void Observer::after_start(Simulation& /*simulation*/, Rank /*rank*/) {}
void Observer::after_data(Simulation& /*simulation*/, Rank /*from*/, Rank /*to*/,
                          Iteration /*iteration*/) {}
void Observer::after_collected(Simulation& /*simulation*/, Rank /*rank*/, Iteration /*iteration*/,
                               const std::vector<wire::PeerUpdate>& /*updates*/) {}

Simulation::Simulation(Options options)
    : impl_(std::make_unique<Impl>(*this, std::move(options))) {}
Simulation::~Simulation() = default;
Result Simulation::run() {
  return impl_->run();
}
const Engine& Simulation::engine() const {
  return impl_->engine();
}
Micros Simulation::now() const {
  return impl_->now();
}
std::vector<WaitReport> Simulation::waits() {
  return impl_->waits();
}

std::optional<Result> simulate(const Options& options, std::string& error) {
  error = check_options(options);
  if (!error.empty()) return std::nullopt;
  return Simulation(options).run();
}

}  // namespace syncd::sim
