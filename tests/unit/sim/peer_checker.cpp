// See peer_checker.h.
#include "tests/unit/sim/peer_checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace syncd::test {
namespace {

using wire::PeerUpdate;

constexpr std::uint64_t kLookEvery = 20;  // events
constexpr Iteration kEmpty = -1;          // a slot that nothing was written to

std::string worker_text(Rank rank) {
  return "worker " + std::to_string(rank);
}

std::string call_text(const char* call, Rank rank, Iteration k) {
  return std::string(call) + "(" + std::to_string(k) + ") of " + worker_text(rank);
}

std::string text_of(const std::vector<Rank>& ranks) {
  std::string text;
  for (const Rank rank : ranks) text += " " + std::to_string(rank);
  return text.empty() ? " nobody" : text;
}

std::string text_of(const std::vector<PeerUpdate>& updates) {
  std::string text;
  for (const PeerUpdate& update : updates) {
    text += " " + std::to_string(update.rank) + ":" + std::to_string(update.iteration) + "*" +
            std::to_string(update.weight);
  }
  return text;
}

bool same(const std::vector<PeerUpdate>& a, const std::vector<PeerUpdate>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.rank == y.rank && x.iteration == y.iteration && std::abs(x.weight - y.weight) < 1e-9;
  });
}

}  // namespace

void PeerTotals::add(const PeerTotals& other) {
  runs += other.runs;
  grants += other.grants;
  jumps += other.jumps;
  reduces += other.reduces;
  updates += other.updates;
  missing += other.missing;
  left_out += other.left_out;
  stale += other.stale;
  overwritten += other.overwritten;
  changes += other.changes;
  answers_to_changes += other.answers_to_changes;
  bounds += other.bounds;
  bounds_hold += other.bounds_hold;
  changed_bounds += other.changed_bounds;
  changed_bounds_hold += other.changed_bounds_hold;
  reached += other.reached;
  token_checks += other.token_checks;
  longest_wait = std::max(longest_wait, other.longest_wait);
}

PeerChecker::PeerChecker(const PeerRules& rules, std::uint32_t ranks)
    : rules_(rules),
      model_(rules, ranks),
      general_(rules.text()),
      queues_(std::size_t{ranks} * ranks),
      reading_(ranks) {
  totals_.runs = 1;
}

void PeerChecker::breach(const std::string& what) {
  if (breaches_.size() < 10) breaches_.push_back("at " + std::to_string(now_) + " us: " + what);
}

// ---- what the engine sees and says
// ------------------------------------------------------------------------

// The model's worker that speaks over this connection; null for the operator, and for a process
// that another has taken the place of.
PeerModel::Worker* PeerChecker::speaker(ConnectionId connection, Rank& rank) {
  rank = static_cast<Rank>(connection & UINT32_MAX) - 1;
  if (rank >= model_.ranks()) return nullptr;
  PeerModel::Worker& worker = model_.worker(rank);
  return worker.connection == connection ? &worker : nullptr;
}

void PeerChecker::take_request(const Request& request) {
  asking_ = request.caller.connection;
  Rank rank = 0;
  PeerModel::Worker* worker = speaker(asking_, rank);
  if (worker == nullptr) return;
  std::visit(
      [&](const auto& body) {
        using T = std::decay_t<decltype(body)>;
        if constexpr (std::is_same_v<T, wire::Begin>) {
          worker->standing = {Call::kBegin, body.iteration};
        } else if constexpr (std::is_same_v<T, wire::Targets>) {
          worker->standing = {Call::kTargets, body.iteration};
        } else if constexpr (std::is_same_v<T, wire::Collect>) {
          worker->standing = {Call::kCollect, body.iteration};
        } else if constexpr (std::is_same_v<T, wire::Consumed>) {
          worker->consumed = std::max(worker->consumed, body.iteration);
          if (!rules_.notify_ack) return;
          std::erase_if(reading_[rank], [&](const Reading& reading) {
            return reading.iteration <= body.iteration;
          });
        } else if constexpr (std::is_same_v<T, wire::Leave>) {
          worker->standing.reset();
        }
      },
      request.body);
}

void PeerChecker::take_record(const Record& record, std::vector<Change>& changes) {
  const Rank rank = static_cast<Rank>(record.rank);
  switch (record.kind) {
    case RecordKind::kWorkerJoined: {
      PeerModel::Worker& worker = model_.worker(rank);
      worker.host = record.host;
      worker.connection = asking_;
      if (!model_.started()) return;
      const Clock expected = model_.entry_clock(rank);
      if (record.clock != expected) {
        breach(worker_text(rank) + " enters at clock " + std::to_string(record.clock) + ", not " +
               std::to_string(expected));
      }
      changes.push_back({Change::Kind::kEnter, rank, record.clock, {}});
      return;
    }
    case RecordKind::kJobStarted: {
      Change start{Change::Kind::kStart, 0, 0, {}};
      for (Rank member = 0; member < model_.ranks(); ++member) {
        if (model_.worker(member).connection != 0) start.members.push_back(member);
      }
      changes.push_back(std::move(start));
      return;
    }
    case RecordKind::kWorkerLeft:
    case RecordKind::kWorkerLost:
      if (model_.worker(rank).active) changes.push_back({Change::Kind::kExit, rank, 0, {}});
      model_.worker(rank).connection = 0;
      return;
    case RecordKind::kPush:
      if (record.late) breach("a late push of " + worker_text(rank));
      if (record.iteration != model_.worker(rank).clock) {
        breach(call_text("push", rank, record.iteration) + ", which is in iteration " +
               std::to_string(model_.worker(rank).clock));
      }
      model_.pushed(rank, record.iteration);
      return;
    default:
      return;
  }
}

void PeerChecker::apply(const Change& change) {
  switch (change.kind) {
    case Change::Kind::kStart:
      model_.start(change.members);
      return;
    case Change::Kind::kEnter:
      reading_[change.rank].clear();
      model_.enter(change.rank, change.clock);
      break;
    case Change::Kind::kExit:
      reading_[change.rank].clear();
      model_.exit(change.rank);
      break;
  }
  ++totals_.changes;
  changed_ = true;
  for (const Rank rank : model_.active()) check_gaps(rank);
}

void PeerChecker::after_event(sim::Simulation& simulation, const Event* event,
                              const Effects& effects) {
  general_.after_event(simulation, event, effects);
  now_ = simulation.now();
  asking_ = 0;
  if (event != nullptr) {
    if (const auto* request = std::get_if<Request>(event)) take_request(*request);
    if (const auto* gone = std::get_if<Disconnected>(event)) {
      Rank rank = 0;
      if (PeerModel::Worker* worker = speaker(gone->connection, rank)) worker->standing.reset();
    }
  }
  std::vector<Change> changes;
  for (const Record& record : effects.records) take_record(record, changes);

  // Each change is followed by the answers that it allows, and then by the next one.
  const bool loses = !changes.empty() && changes[0].kind == Change::Kind::kExit;
  auto reply = effects.replies.begin();
  for (const Change& change : changes) {
    while (reply != effects.replies.end() && take_reply(*reply).empty()) ++reply;
    apply(change);
  }
  for (; reply != effects.replies.end(); ++reply) {
    const std::string wrong = take_reply(*reply);
    if (!wrong.empty()) breach(wrong);
  }
  if (loses) {
    totals_.answers_to_changes += static_cast<std::uint64_t>(
        std::count_if(effects.replies.begin(), effects.replies.end(), [](const Reply& each) {
          return std::holds_alternative<wire::Granted>(each.body) ||
                 std::holds_alternative<wire::CollectReply>(each.body) ||
                 std::holds_alternative<wire::TargetsReply>(each.body);
        }));
  }
  if (++events_ % kLookEvery == 0 || !changes.empty()) look_around();
}

std::string PeerChecker::take_reply(const Reply& reply) {
  Rank rank = 0;
  PeerModel::Worker* worker = speaker(reply.to.connection, rank);
  if (worker == nullptr) return {};
  if (std::holds_alternative<wire::Error>(reply.body)) {  // refused, which the other checker tells
    worker->standing.reset();
    return {};
  }
  if (const auto* granted = std::get_if<wire::Granted>(&reply.body)) {
    if ((granted->flags & wire::kStepStop) == 0) return take_granted(rank, *granted);
    worker->standing.reset();
  } else if (const auto* targets = std::get_if<wire::TargetsReply>(&reply.body)) {
    return take_targets(rank, *targets);
  } else if (const auto* collected = std::get_if<wire::CollectReply>(&reply.body)) {
    return take_updates(rank, *collected);
  }
  return {};
}

std::string PeerChecker::take_granted(Rank rank, const wire::Granted& granted) {
  PeerModel::Worker& worker = model_.worker(rank);
  const std::string what = call_text("begin", rank, granted.iteration) + " is granted";
  if (!worker.active || !worker.standing || worker.standing->call != Call::kBegin) {
    return what + ", which it does not wait for";
  }
  const auto entry = model_.begin(rank);
  if (!entry) return what + " without a token of every out-neighbour";
  if (entry->iteration != granted.iteration) {
    return what + ", but it should be " + std::to_string(entry->iteration);
  }
  const bool jumps = granted.iteration != worker.standing->iteration;
  if (jumps != ((granted.flags & wire::kStepSkip) != 0)) return what + " with the wrong flags";
  if (worker.collected < worker.clock) {
    return what + " before collect(" + std::to_string(worker.clock) + ") was answered";
  }
  const std::int64_t lag = model_.lag(rank, granted.iteration);
  if (granted.staleness != lag) {
    return what + " with staleness " + std::to_string(granted.staleness) + ", not " +
           std::to_string(lag);
  }
  ++totals_.grants;
  totals_.jumps += jumps ? 1 : 0;
  model_.granted(rank, *entry);
  reading_[rank].clear();
  if (entry->jump_set) reading_[rank].push_back({granted.iteration - 1, *entry->jump_set});
  check_gaps(rank);
  check_tokens(rank);
  return {};
}

std::string PeerChecker::take_targets(Rank rank, const wire::TargetsReply& reply) {
  PeerModel::Worker& worker = model_.worker(rank);
  const std::string what = call_text("targets", rank, reply.iteration);
  if (!worker.active || !worker.standing || worker.standing->call != Call::kTargets ||
      worker.standing->iteration != reply.iteration || worker.clock != reply.iteration) {
    return what + " is answered, which it does not wait for";
  }
  const auto targets = model_.targets(rank, reply.iteration);
  if (!targets) return what + " is answered before every acknowledgement";
  if (*targets != reply.ranks) {
    return what + " names" + text_of(reply.ranks) + ", not" + text_of(*targets);
  }
  worker.standing.reset();
  for (const Rank to : model_.out(rank)) {
    totals_.left_out += reply.iteration >= model_.edge(rank, to).first &&
                                !std::binary_search(targets->begin(), targets->end(), to)
                            ? 1
                            : 0;
  }
  return {};
}

std::string PeerChecker::take_updates(Rank rank, const wire::CollectReply& reply) {
  PeerModel::Worker& worker = model_.worker(rank);
  const Iteration k = reply.iteration;
  const std::string what = call_text("collect", rank, k);
  const bool after_jump = worker.jump_set.has_value() && k == worker.clock - 1;
  if (!worker.active || !worker.standing || worker.standing->call != Call::kCollect ||
      worker.standing->iteration != k || (k != worker.clock && !after_jump)) {
    return what + " is answered, which it does not wait for";
  }
  const auto updates = model_.collect(rank, k);
  if (!updates) return what + " is answered before enough updates are there";
  if (!same(*updates, reply.updates)) {
    return what + " names" + text_of(reply.updates) + ", not" + text_of(*updates);
  }
  double sum = 0;
  std::int64_t named = 0;
  for (const PeerUpdate& update : reply.updates) {
    sum += update.weight;
    if (update.weight < 0 || update.weight > 1 + 1e-9) breach(what + " has an impossible weight");
    if (update.rank == rank) continue;
    ++named;
    if (!model_.worker(update.rank).pushes.contains(update.iteration)) {
      breach(what + " names an update that was never pushed: " + std::to_string(update.iteration) +
             " of " + worker_text(update.rank));
    }
    // Whole, and one: of this very iteration, but with staleness.
    const bool right =
        rules_.staleness ? update.iteration >= k - *rules_.staleness : update.iteration == k;
    if (!right) breach(what + " names an update of iteration " + std::to_string(update.iteration));
    totals_.stale += update.iteration < k ? 1 : 0;
  }
  if (std::abs(sum - 1) > 1e-9) breach(what + " has weights of sum " + std::to_string(sum));
  std::int64_t counted = 0;
  for (const Rank from : model_.in(rank)) counted += k >= model_.edge(from, rank).first ? 1 : 0;
  if (!after_jump && rules_.has_backup()) {
    totals_.missing += static_cast<std::uint64_t>(counted - named);
  } else if (!after_jump && !rules_.staleness && counted != named) {
    breach(what + " names " + std::to_string(named) + " of " + std::to_string(counted) +
           " in-neighbours");
  }
  worker.standing.reset();
  model_.collected(rank, k, reply.updates);
  if (!after_jump) reading_[rank].push_back({k, reply.updates});
  return {};
}

// ---- Table 1
// ----------------------------------------------------------------------------------------------

// After worker i has moved: how far it is ahead of the others.
void PeerChecker::check_gaps(Rank i) {
  const Clock own = model_.worker(i).clock;
  for (const Rank j : model_.active()) {
    if (j == i) continue;
    const Clock other = model_.worker(j).clock;
    bool reached = false;
    for (const PeerModel::Bound& bound : {model_.by_updates(i, j), model_.by_tokens(i, j)}) {
      if (!bound.exists) continue;
      const bool holds = other + bound.gap >= bound.free;
      const Clock highest = std::max(other + bound.gap, bound.free);
      ++(changed_ ? totals_.changed_bounds : totals_.bounds);
      if (holds) ++(changed_ ? totals_.changed_bounds_hold : totals_.bounds_hold);
      reached = reached || (holds && own == highest);
      if (own > highest) {
        breach(worker_text(i) + " is in iteration " + std::to_string(own) + " and " +
               worker_text(j) + " in " + std::to_string(other) + ", allowed are " +
               std::to_string(bound.gap) + " between them" +
               (holds ? "" : ", or iteration " + std::to_string(bound.free)));
      }
    }
    totals_.reached += reached ? 1 : 0;
  }
}

// TokenQ(j -> i), for out-neighbours j of i, holds c_j - c_i + max_ig.
void PeerChecker::check_tokens(Rank rank) {
  if (rules_.notify_ack) return;
  const auto check = [&](Rank i, Rank j) {
    ++totals_.token_checks;
    const Clock taker = model_.worker(i).clock;
    const Clock giver = model_.worker(j).clock;
    const std::int64_t tokens = giver - taker + rules_.max_ig;
    const std::string queue = "TokenQ(" + std::to_string(j) + "->" + std::to_string(i) + ")";
    // A new edge may find its taker too far ahead already; it then stays where it is.
    if (tokens < 0 && taker > model_.edge(i, j).sender_at) {
      breach(queue + " is owed " + std::to_string(-tokens));
    }
    const PeerModel::Bound way = model_.by_tokens(j, i);
    if (way.exists && taker + way.gap >= way.free && tokens > way.gap + rules_.max_ig) {
      breach(queue + " holds " + std::to_string(tokens) + ", allowed are " +
             std::to_string(way.gap + rules_.max_ig));
    }
  };
  for (const Rank to : model_.out(rank)) check(rank, to);
  for (const Rank from : model_.in(rank)) check(from, rank);
}

// Nobody waits who could be answered, nor for what cannot come.
void PeerChecker::look_around() {
  for (const Rank rank : model_.active()) {
    const auto& standing = model_.worker(rank).standing;
    if (standing && model_.can_answer(rank)) {
      breach(call_text(to_string(standing->call), rank, standing->iteration) +
             " is not answered although it could be");
    }
  }
  const std::vector<Rank> stuck = model_.deadlocked();
  if (!stuck.empty()) breach("these wait for one another for ever:" + text_of(stuck));
}

// ---- what passes between workers
// ----------------------------------------------------------------------------

void PeerChecker::after_start(sim::Simulation& /*simulation*/, Rank rank) {
  for (Rank from = 0; from < model_.ranks(); ++from) queue(from, rank).clear();
  reading_[rank].clear();
}

void PeerChecker::after_data(sim::Simulation& simulation, Rank from, Rank to, Iteration iteration) {
  now_ = simulation.now();
  std::vector<Iteration>& slots = queue(from, to);
  if (slots.empty()) slots.resize(static_cast<std::size_t>(rules_.slots()), kEmpty);
  Iteration& slot = slots[static_cast<std::size_t>(iteration % rules_.slots())];
  const Iteration old = std::exchange(slot, iteration);
  if (old == kEmpty) return;
  ++totals_.overwritten;
  const std::string what = "iteration " + std::to_string(iteration) + " of " + worker_text(from) +
                           " takes the slot of iteration " + std::to_string(old) + " at " +
                           worker_text(to);
  if (old >= iteration) breach(what + ", which is not older");
  for (const Reading& reading : reading_[to]) {
    for (const PeerUpdate& update : reading.updates) {
      if (update.rank == from && update.iteration == old) breach(what + ", which reads it");
    }
  }
  const PeerModel::Worker& reader = model_.worker(to);
  const PeerModel::Edge& way = model_.edge(from, to);
  const Iteration next = reader.collected >= reader.clock ? reader.clock + 1 : reader.clock;
  if (way.live && old >= way.first && old >= next - rules_.staleness.value_or(0)) {
    breach(what + ", which has still to collect it");
  }
}

void PeerChecker::after_collected(sim::Simulation& simulation, Rank rank, Iteration iteration,
                                  const std::vector<PeerUpdate>& updates) {
  now_ = simulation.now();
  ++totals_.reduces;
  for (const PeerUpdate& update : updates) {
    if (update.rank == rank) continue;
    ++totals_.updates;
    const std::vector<Iteration>& slots = queue(update.rank, rank);
    const Iteration there =
        slots.empty() ? kEmpty : slots[static_cast<std::size_t>(update.iteration % rules_.slots())];
    if (there != update.iteration) {
      breach("the reduce of iteration " + std::to_string(iteration) + " of " + worker_text(rank) +
             " finds " + (there == kEmpty ? "nothing" : "iteration " + std::to_string(there)) +
             " where iteration " + std::to_string(update.iteration) + " of " +
             worker_text(update.rank) + " should be");
    }
  }
}

// ---- the end
// ----------------------------------------------------------------------------------------------

std::vector<std::string> PeerChecker::breaches(const sim::Result& result) const {
  std::vector<std::string> all = breaches_;
  const std::vector<std::string> general = general_.breaches(result);
  all.insert(all.end(), general.begin(), general.end());
  return all;
}

sim::Result run_peers_checked(sim::Options options, const PeerRules& rules, PeerTotals& totals) {
  std::uint32_t ranks = options.workers;
  for (const sim::TimedEvent& event : options.events) ranks = std::max(ranks, event.rank + 1);
  options.policy = rules.text();
  options.graph_file = rules.file;
  if (const std::string error = sim::check_options(options); !error.empty()) {
    ADD_FAILURE() << error;
    return {};
  }
  PeerChecker checker(rules, ranks);
  options.observer = &checker;
  sim::Result result = sim::Simulation(options).run();
  for (const std::string& breach : checker.breaches(result)) ADD_FAILURE() << breach;
  totals.add(checker.totals());
  totals.longest_wait = std::max(totals.longest_wait, result.longest_wait_us);
  return result;
}

}  // namespace syncd::test
