// See peer_world.h.
#include "peer_world.h"

#include <algorithm>
#include <cmath>

namespace syncd::test {
namespace {

constexpr Micros kGrace = 1000;
constexpr Iteration kLast = 25;  // where a worker leaves when all is let run to its end

std::string host_of(std::size_t process) {
  return "host" + std::to_string(process % 3);
}

JobSpec spec_of(const PeerWorldOptions& options) {
  JobSpec spec;
  spec.name = "train";
  spec.policy = options.policy;
  spec.expected_workers = options.workers;
  spec.worker_grace_us = kGrace;
  if (options.membership) {  // also if some die before they ever begin
    spec.min_workers = 1;
    spec.start_timeout_us = kGrace;
  }
  spec.evict_after_us = 0;
  spec.warn_after_us = 0;
  return spec;
}

}  // namespace

topology::Graph graph_of(const PeerWorldOptions& options) {
  std::string error;
  auto spec = topology::parse_graph_spec(options.graph, error);
  std::vector<std::string> hosts;
  for (std::uint32_t i = 0; i < options.workers; ++i) hosts.push_back(host_of(i));
  auto graph = spec ? topology::generate(*spec, options.workers, hosts, error) : std::nullopt;
  if (!graph) throw PeerViolation(error);
  return std::move(*graph);
}

PeerWorld::PeerWorld(const PeerWorldOptions& options)
    : options_(options), random_(options.seed * 1'000'003 + 17), graph_(graph_of(options)) {
  if (!options.membership) {
    topology::GapSetting setting;
    using Kind = topology::GapSetting::Kind;
    if (options.notify_ack) {
      setting.kind = Kind::kNotifyAck;
    } else if (!options.backup.empty()) {
      setting.kind = options.staleness ? Kind::kHybrid : Kind::kBackup;
    } else if (options.staleness) {
      setting = {Kind::kStaleness, *options.staleness};
    }
    std::optional<std::int64_t> max_ig;
    if (!options.notify_ack) max_ig = options.max_ig;
    bounds_ = std::make_unique<topology::GapBounds>(topology::gap_bounds(graph_, setting, max_ig));
    distances_ = std::make_unique<topology::Distances>(graph_);
  }
  // One update queue per edge: two slots are enough where an ACK comes before the next update.
  slot_count_ = options.notify_ack ? 1
                                   : options.max_ig + 1 + options.staleness.value_or(0) +
                                         (options.skip > 0 ? 1 : 0);
  engine_ = std::make_unique<Engine>(EngineOptions{});
  Effects effects;
  std::string error;
  if (!engine_->declare_job(spec_of(options), now_, effects, error)) throw PeerViolation(error);
  drive(effects);
  for (std::uint32_t i = 0; i < options.workers; ++i) {
    Process process;
    process.name = "w" + std::to_string(i);
    process.slowness = random_() % 4 == 0 ? 8 : 1;
    processes_.push_back(process);
    join(i, false);
  }
}

void PeerWorld::fail(const std::string& what) const {
  std::string text = what + "\n  " + options_.policy + ", " + std::to_string(options_.workers) +
                     " workers, seed " + std::to_string(options_.seed) +
                     (options_.serial ? ", serial" : "") +
                     (options_.membership ? ", membership changes" : "");
  for (const Process& p : processes_) {
    text += "\n  " + p.name + " rank " + std::to_string(p.ref.rank) + " at " +
            std::to_string(static_cast<int>(p.at)) + (p.stands ? " asking" : "") + " k " +
            std::to_string(p.k) + " granted " + std::to_string(p.granted) + " pushed " +
            std::to_string(p.pushed) + " collected " + std::to_string(p.collected) + " consumed " +
            std::to_string(p.consumed) + (p.done ? " done" : "");
  }
  throw PeerViolation(text);
}

std::size_t PeerWorld::process_of(Rank rank) const {
  for (std::size_t p = 0; p < processes_.size(); ++p) {
    if (processes_[p].joined && processes_[p].ref.rank == rank) return p;
  }
  return processes_.size();
}

// ---- messages

void PeerWorld::send(std::size_t p, wire::Body body) {
  Process& process = processes_[p];
  process.stands = true;
  process.request = next_request_++;
  step(Request{{process.connection, process.request}, std::move(body)});
}

void PeerWorld::step(Event event) {
  Effects effects;
  engine_->step(std::move(event), now_, effects);
  drive(effects);
}

void PeerWorld::drive(const Effects& effects) {
  for (const Record& record : effects.records) {
    records_.push_back(record);
    if (record.kind == RecordKind::kPush) {
      pushes_[static_cast<Rank>(record.rank)].insert(record.iteration);
    }
  }
  for (const Reply& reply : effects.replies) {
    for (std::size_t p = 0; p < processes_.size(); ++p) {
      Process& process = processes_[p];
      if (process.connection != reply.to.connection || process.request != reply.to.request)
        continue;
      process.stands = false;
      answer(p, reply.body);
      break;
    }
  }
  for (const Notification& notification : effects.notifications) {
    for (Process& process : processes_) {
      if (process.connection == notification.connection &&
          std::holds_alternative<wire::FencedNotice>(notification.body)) {
        process.at = At::kGone;
      }
    }
  }
  check();
}

void PeerWorld::join(std::size_t p, bool again) {
  Process& process = processes_[p];
  process.connection = next_connection_++;
  wire::Join join;
  join.job = "train";
  join.name = process.name;
  join.host = host_of(p);
  if (again) {
    join.rank = static_cast<std::int32_t>(process.ref.rank);
    join.incarnation = process.ref.incarnation;
    join.granted = process.granted;
    join.pushed = process.pushed;
    join.collected = process.collected;
    join.consumed = process.consumed;
  } else {
    process.granted = process.pushed = process.collected = process.consumed = -1;
    process.at = At::kBegin;
    process.reading.clear();
  }
  process.joined = false;
  send(p, std::move(join));
}

// ---- the worker's side

void PeerWorld::answer(std::size_t p, const wire::Body& body) {
  Process& process = processes_[p];
  if (const auto* error = std::get_if<wire::Error>(&body)) {
    if (error->status == Status::kCancelled) return;  // it came back over another connection
    fail(process.name + " is refused: " + error->message);
  }
  if (const auto* joined = std::get_if<wire::Joined>(&body)) {
    process.joined = true;
    process.ref = joined->worker;
    if (!joined->resumed) {
      process.at = At::kBegin;
      process.k = joined->iteration;
      process.granted = process.pushed = process.collected = process.consumed =
          joined->iteration - 1;
      process.reading.clear();
    }
    return;
  }
  if (const auto* granted = std::get_if<wire::Granted>(&body)) {
    const bool jumps = granted->iteration != process.k;
    if (jumps != ((granted->flags & wire::kStepSkip) != 0)) fail("a jump without its flag");
    if (granted->iteration <= process.granted) fail("granted iterations must rise");
    if (jumps && options_.skip == 0) fail("a jump where none is allowed");
    if (jumps && granted->iteration - process.k + 1 > options_.skip) fail("a jump too far");
    jumps_ += jumps ? 1 : 0;
    process.k = process.granted = granted->iteration;
    process.reading.clear();
    process.sent = process.computed = false;
    process.compute_left = static_cast<int>(random_() % 3) * process.slowness;
    process.at = At::kCompute;
    if (!options_.serial && !options_.notify_ack) process.at = At::kTargets;
    // The set that a jump renews the parameters from.
    if (jumps) {
      process.at = At::kCollect;
    }
  } else if (const auto* targets = std::get_if<wire::TargetsReply>(&body)) {
    if (targets->iteration != process.k) fail("targets of another iteration");
    process.targets = targets->ranks;
    for (const Rank to : targets->ranks) {
      if (to == process.ref.rank) fail("a worker is told to send to itself");
      Iteration& slot = slots_[{process.ref.rank, to}][process.k % slot_count_];
      const std::size_t receiver = process_of(to);
      if (receiver < processes_.size()) {
        for (const wire::PeerUpdate& update : processes_[receiver].reading) {
          if (update.rank == process.ref.rank &&
              update.iteration % slot_count_ == process.k % slot_count_ &&
              update.iteration != process.k && !options_.membership &&
              !(options_.notify_ack && processes_[receiver].consumed >= update.iteration)) {
            fail("iteration " + std::to_string(process.k) + " of rank " +
                 std::to_string(process.ref.rank) + " overwrites iteration " +
                 std::to_string(update.iteration) + ", which rank " + std::to_string(to) +
                 " is reading");
          }
        }
      }
      slot = process.k;
    }
    process.at = At::kPush;
  } else if (const auto* pushed = std::get_if<wire::Pushed>(&body)) {
    if (pushed->late) fail("a decentralized push is never late");
    process.pushed = process.k;
    process.sent = true;
    process.at = options_.serial || options_.notify_ack ? At::kCollect : At::kCompute;
  } else if (const auto* collected = std::get_if<wire::CollectReply>(&body)) {
    check_collect(p, *collected);
    ++reduces_;
    process.reading = collected->updates;
    if (collected->iteration == process.k - 1) {  // after a jump
      process.collected = process.k - 1;
      process.at = options_.serial ? At::kCompute : At::kTargets;
      return;
    }
    process.collected = process.k;
    process.at = At::kConsumed;
  } else if (std::holds_alternative<wire::Ok>(body)) {
    process.consumed = process.k;
    process.at = At::kBegin;
    process.k = process.granted + 1;
  }
}

bool PeerWorld::can_act(const Process& p) const {
  return p.joined && !p.stands && !p.done && p.at != At::kGone;
}

void PeerWorld::act(std::size_t p) {
  Process& process = processes_[p];
  switch (process.at) {
    case At::kBegin:
      return send(p, wire::Begin{process.ref, process.k});
    case At::kCompute:
      if (process.compute_left-- > 0) return;
      process.computed = true;
      process.at = process.sent ? At::kCollect : At::kTargets;
      return;
    case At::kTargets:
      return send(p, wire::Targets{process.ref, process.k});
    case At::kPush:
      return send(p, wire::Push{process.ref, process.k, {}, 0, 0});
    case At::kCollect:
      return send(
          p, wire::Collect{process.ref, process.pushed == process.k ? process.k : process.k - 1});
    case At::kConsumed:
      return send(p, wire::Consumed{process.ref, process.k});
    case At::kGone:
      return;
  }
}

// ---- what must hold

void PeerWorld::check_reading(std::size_t p, const wire::PeerUpdate& update) {
  const Rank me = processes_[p].ref.rank;
  if (!pushes_[update.rank].contains(update.iteration)) {
    fail("rank " + std::to_string(me) + " is given an update that was never pushed: " +
         std::to_string(update.iteration) + " of " + std::to_string(update.rank));
  }
  if (options_.membership) return;
  const auto& slots = slots_[{update.rank, me}];
  const auto it = slots.find(update.iteration % slot_count_);
  if (it == slots.end() || it->second != update.iteration) {
    fail("rank " + std::to_string(me) + " is given iteration " + std::to_string(update.iteration) +
         " of rank " + std::to_string(update.rank) + ", whose slot holds " +
         (it == slots.end() ? "nothing" : std::to_string(it->second)));
  }
}

void PeerWorld::check_collect(std::size_t p, const wire::CollectReply& reply) {
  const Process& process = processes_[p];
  const Iteration k = reply.iteration;
  double sum = 0;
  std::set<Rank> seen;
  for (const wire::PeerUpdate& update : reply.updates) {
    sum += update.weight;
    if (update.weight < -1e-12 || update.weight > 1 + 1e-12) fail("an impossible weight");
    if (!seen.insert(update.rank).second) fail("two updates of one neighbour");
    if (update.rank == process.ref.rank) continue;
    check_reading(p, update);
    if (options_.staleness ? update.iteration < k - *options_.staleness : update.iteration != k) {
      fail("an update of iteration " + std::to_string(update.iteration) + " in collect(" +
           std::to_string(k) + ")");
    }
  }
  if (std::abs(sum - 1) > 1e-9) fail("weights do not sum up to 1");
  if (!seen.contains(process.ref.rank)) fail("the own update is missing");
  if (options_.membership) return;
  const std::size_t in = graph_.in(process.ref.rank).size();
  const std::size_t got = reply.updates.size() - 1;
  std::size_t backup = 0;
  if (!options_.backup.empty()) {
    backup = static_cast<std::size_t>(options_.backup[process.ref.rank]);
  }
  for (const Rank rank : seen) {
    if (rank != process.ref.rank && !graph_.has_edge(rank, process.ref.rank)) {
      fail("an update of one that is no in-neighbour");
    }
  }
  for (const wire::PeerUpdate& update : reply.updates) {
    if (update.rank == process.ref.rank) continue;
    const auto known = reduced_.try_emplace({update.rank, process.ref.rank}, -1).first;
    if (update.iteration <= known->second) fail("an update is reduced twice");
    known->second = update.iteration;
  }
  if (options_.staleness) {
    // Enough of the in-neighbours have sent something that is not too old, used before or not.
    std::size_t recent = 0;
    for (const Rank from : graph_.in(process.ref.rank)) {
      const auto it = pushes_.find(from);
      const Iteration newest =
          it == pushes_.end() || it->second.empty() ? -1 : *it->second.rbegin();
      recent += newest >= k - *options_.staleness ? 1 : 0;
    }
    if (recent + backup < in) {
      fail("collect(" + std::to_string(k) + ") is answered when " + std::to_string(recent) +
           " of " + std::to_string(in) + " in-neighbours have sent something recent");
    }
    return;
  }
  missing_ += in - got;
  if (got + backup < in) {
    fail("collect(" + std::to_string(k) + ") gives " + std::to_string(got) + " of " +
         std::to_string(in) + " updates");
  }
}

// Table 1: how far apart two workers are, and how many tokens a queue holds.
void PeerWorld::check() {
  if (!bounds_) return;
  for (const Process& a : processes_) {
    if (!a.joined) continue;
    for (const Process& b : processes_) {
      if (!b.joined) continue;
      const Rank i = a.ref.rank;
      const Rank j = b.ref.rank;
      const std::int64_t gap = a.granted - b.granted;
      if (i != j && (*bounds_)(i, j) && gap > *(*bounds_)(i, j)) {
        fail("rank " + std::to_string(i) + " is " + std::to_string(gap) + " ahead of rank " +
             std::to_string(j) + ", allowed are " + std::to_string(*(*bounds_)(i, j)));
      }
      // TokenQ(j -> i) is kept for the edge i's out-neighbour j.
      if (!options_.notify_ack && graph_.has_edge(i, j)) {
        const std::int64_t tokens = b.granted - a.granted + options_.max_ig;
        if (tokens < 0) fail("a token queue that is owed tokens");
        if (options_.backup.empty() && !options_.staleness &&
            tokens > topology::tokens_max(options_.max_ig, (*distances_)(j, i))) {
          fail("a token queue holds " + std::to_string(tokens));
        }
      }
    }
  }
}

// ---- disorder

void PeerWorld::restart_daemon() {
  auto engine = std::make_unique<Engine>(EngineOptions{});
  std::string error;
  JobSnapshot snapshot;
  std::vector<Record> tail;
  // From the whole history, or from a snapshot as it would lie in the store.
  const bool from_snapshot = random_() % 2 == 0 && engine_->snapshot(1, snapshot);
  if (!engine->restore(from_snapshot ? &snapshot : nullptr, from_snapshot ? tail : records_,
                       error)) {
    fail("recovery: " + error);
  }
  engine_ = std::move(engine);
  engine_->finish_restore(now_);
  for (std::size_t p = 0; p < processes_.size(); ++p) {
    Process& process = processes_[p];
    if (process.done || process.at == At::kGone || !process.joined) continue;
    join(p, true);
  }
}

void PeerWorld::disorder() {
  const std::size_t p = random_() % processes_.size();
  Process& process = processes_[p];
  switch (random_() % 6) {
    case 0:  // it dies, and is declared lost
      if (process.at == At::kGone || process.done) return;
      process.at = At::kGone;
      process.joined = false;
      step(Disconnected{process.connection});
      process.connection = 0;
      return;
    case 1:  // it reconnects
      if (!can_act(process) && !process.stands) return;
      if (process.at == At::kGone || process.done || !process.joined) return;
      step(Disconnected{process.connection});
      return join(p, true);
    case 2:  // a dead one's name comes back as a new process
      if (process.at != At::kGone) return;
      return join(p, false);
    case 3:  // a new one
      if (processes_.size() >= options_.workers + 4) return;
      processes_.push_back({});
      processes_.back().name = "w" + std::to_string(processes_.size() - 1);
      return join(processes_.size() - 1, false);
    case 4:  // a process is replaced at once, before it is given up
      if (process.at == At::kGone || process.done || !process.joined) return;
      step(Disconnected{process.connection});
      return join(p, false);
    default:
      if (random_() % 8 == 0) restart_daemon();
  }
}

Iteration PeerWorld::furthest() const {
  Iteration furthest = -1;
  for (const Process& process : processes_) furthest = std::max(furthest, process.granted);
  return furthest;
}

void PeerWorld::run() {
  for (int i = 0; i < options_.steps; ++i) {
    now_ += 10;
    if (options_.membership && random_() % 25 == 0) disorder();
    Effects effects;
    engine_->tick(now_, effects);
    drive(effects);
    const std::size_t p = random_() % processes_.size();
    if (can_act(processes_[p])) act(p);
  }
  // Everything that is left may go on: all of it must get somewhere (no deadlock).
  const Iteration goal = std::max(kLast, furthest());
  for (int idle = 0, rounds = 0;; ++rounds) {
    now_ += kGrace / 4;
    Effects effects;
    engine_->tick(now_, effects);
    drive(effects);
    bool acted = false;
    bool unfinished = false;
    for (std::size_t p = 0; p < processes_.size(); ++p) {
      Process& process = processes_[p];
      if (process.done || process.at == At::kGone) continue;
      if (process.joined && process.at == At::kBegin && !process.stands && process.k > goal) {
        process.done = true;
        // On a fixed graph it stays: nobody needs an iteration after the last one of all.
        if (options_.membership) send(p, wire::Leave{process.ref});
        acted = true;
        continue;
      }
      unfinished = true;
      if (!can_act(process)) continue;
      acted = true;
      act(p);
    }
    if (!unfinished) return;
    idle = acted ? 0 : idle + 1;
    if (idle > 8) fail("nobody gets on (deadlock)");  // also not after worker_grace
    if (rounds > 1'000'000) fail("it never ends");
  }
}

}  // namespace syncd::test
