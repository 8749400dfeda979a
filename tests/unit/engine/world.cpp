// World: the engine with its twin and its model, time, and the store. One thread.
#include "world.h"

#include <algorithm>
#include <span>

#include "tests/support/effects_text.h"

namespace syncd::test {
namespace {

constexpr std::size_t kTraceLines = 120;

JobSpec make_spec(const WorldOptions& options, Random& random) {
  JobSpec spec;
  spec.name = "train";
  spec.policy = options.rules.text;
  spec.expected_workers = static_cast<std::uint32_t>(
      std::max<std::int64_t>(options.rules.backup + 1, random.between(1, options.processes)));
  if (random.one_in(2)) {
    spec.min_workers =
        static_cast<std::uint32_t>(random.between(options.rules.backup + 1, spec.expected_workers));
  }
  spec.start_timeout_us = 3'000'000;
  spec.worker_grace_us = random.one_in(8) ? 0 : 2'000'000;
  spec.warn_after_us = random.one_in(2) ? 0 : 1'000'000;
  spec.evict_after_us = random.one_in(2) ? 0 : 5'000'000;
  return spec;
}

std::string text_of(const Event& event) {
  if (const auto* request = std::get_if<Request>(&event)) {
    return "c" + std::to_string(request->caller.connection) + "r" +
           std::to_string(request->caller.request) + " " + to_text(request->body);
  }
  if (const auto* gone = std::get_if<Disconnected>(&event)) {
    return "disconnected c" + std::to_string(gone->connection);
  }
  if (const auto* store = std::get_if<StoreState>(&event)) {
    return store->writable ? "store up" : "store down";
  }
  return "event";
}

bool same(const Effects& a, const Effects& b) {
  const auto same_reply = [](const Reply& x, const Reply& y) {
    return x.to == y.to && x.after_records == y.after_records && x.body == y.body;
  };
  const auto same_notice = [](const Notification& x, const Notification& y) {
    return x.connection == y.connection && x.after_records == y.after_records && x.body == y.body;
  };
  const auto same_line = [](const LogLine& x, const LogLine& y) {
    return x.level == y.level && x.event == y.event && x.fields == y.fields;
  };
  return a.records == b.records && a.snapshots == b.snapshots &&
         std::equal(a.replies.begin(), a.replies.end(), b.replies.begin(), b.replies.end(),
                    same_reply) &&
         std::equal(a.notifications.begin(), a.notifications.end(), b.notifications.begin(),
                    b.notifications.end(), same_notice) &&
         std::equal(a.log.begin(), a.log.end(), b.log.begin(), b.log.end(), same_line);
}

// Times alone may differ between an engine and one made from its records.
JobSnapshot comparable(JobSnapshot snapshot) {
  snapshot.time_us = 0;
  for (WorkerSnapshot& worker : snapshot.workers) {
    worker.granted = kNoIteration;
    // No record tells of the begin, or of the worker's own word, that has ended a lease.
    worker.leased_phase.clear();
    worker.phase_us = worker.phase_lease_us = 0;
    // Sums on their way begin anew after a snapshot.
    worker.usual.reset();
  }
  snapshot.noise = 0;
  return snapshot;
}

// 0: it has none.
Micros lease_end(const WorkerSnapshot& worker) {
  return worker.leased_phase.empty() ? 0 : worker.phase_us + worker.phase_lease_us;
}

}  // namespace

World::World(const WorldOptions& options)
    : options_(options),
      random_(options.seed),
      spec_(make_spec(options, random_)),
      model_(options.rules, spec_),
      faults_one_in_(std::uint64_t{4} << random_.below(4)) {
  engine_options_.durable = options.durable;
  engine_options_.snapshot_every_records = static_cast<std::uint64_t>(random_.between(3, 40));
}

void World::note(const std::string& line) {
  if (!options_.traced) return;
  trace_.push_back(seconds_text(now_) + " " + line);
  if (trace_.size() > kTraceLines) trace_.pop_front();
}

void World::note_effects() {
  if (!options_.traced) return;
  const std::string said = to_text(effects_, now_);
  for (std::size_t at = 0; at < said.size();) {
    const std::size_t end = said.find('\n', at);
    note("    " + said.substr(at, end - at));
    at = end + 1;
  }
}

void World::count_effects() {
  for (const Record& record : effects_.records) {
    ++counts_[std::string(to_string(record.kind)) + (record.late ? " LATE" : "") +
              (record.resumed ? " resumed" : "") + (record.returned ? " returned" : "")];
  }
  for (const Reply& reply : effects_.replies) {
    std::string kind(wire::body_name(reply.body));
    if (const auto* error = std::get_if<wire::Error>(&reply.body)) {
      kind = status_name(error->status);
    } else if (const auto* granted = std::get_if<wire::Granted>(&reply.body)) {
      kind += " " + flags_text(granted->flags);
    } else if (const auto* pushed = std::get_if<wire::Pushed>(&reply.body)) {
      kind += std::string(pushed->late ? " LATE" : "") + (pushed->duplicate ? " duplicate" : "");
    } else if (const auto* joined = std::get_if<wire::Joined>(&reply.body)) {
      kind += joined->resumed ? " resumed" : "";
    }
    ++counts_[kind];
  }
  for (const Notification& notice : effects_.notifications) {
    ++counts_[std::string(wire::body_name(notice.body))];
  }
  for (const LogLine& line : effects_.log) ++counts_[line.event];
}

std::string World::trace() const {
  std::string text =
      "policy " + spec_.policy + ", expected " + std::to_string(spec_.expected_workers) + ", min " +
      std::to_string(spec_.min_workers) + ", grace " + seconds_text(spec_.worker_grace_us) +
      ", warn " + seconds_text(spec_.warn_after_us) + ", evict " +
      seconds_text(spec_.evict_after_us) + (options_.durable ? ", durable" : ", fast") + "\n";
  for (const std::string& line : trace_) text += line + "\n";
  return text;
}

void World::start_engine() {
  engine_ = std::make_unique<Engine>(engine_options_);
  twin_ = std::make_unique<Engine>(engine_options_);
}

// ---- events

void World::step(const Event& event) {
  // A server fires what is due before it lets anything else happen.
  advance(0);
  if (options_.traced) note(text_of(event));
  engine_->step(event, now_, effects_);
  note_effects();
  twin_->step(event, now_, twin_effects_);
  model_.observe(event, now_, effects_, engine_->next_deadline());
  absorb();
}

void World::refused_step(const Event& event) {
  advance(0);
  JobSnapshot before, after;
  engine_->snapshot(1, before);
  const Micros deadline = engine_->next_deadline();
  step(event);
  engine_->snapshot(1, after);
  before.time_us = after.time_us = 0;
  require(before == after && deadline == engine_->next_deadline(),
          "a refused request has changed something");
}

// Fires timers one after another, each at its own time.
void World::advance(Micros span) {
  const Micros until = now_ + span;
  while (engine_->next_deadline() <= until) {
    now_ = std::max(now_, engine_->next_deadline());
    note("tick");
    engine_->tick(now_, effects_);
    note_effects();
    twin_->tick(now_, twin_effects_);
    model_.observe_tick(now_, effects_, engine_->next_deadline());
    absorb();
  }
  now_ = until;
}

// What the engine said goes to the store and to the connections.
void World::absorb() {
  require(same(effects_, twin_effects_), "two engines answer the same events differently:\n" +
                                             to_text(effects_, now_) + "and\n" +
                                             to_text(twin_effects_, now_));
  count_effects();
  stored_.insert(stored_.end(), effects_.records.begin(), effects_.records.end());
  for (const JobSnapshot& snapshot : effects_.snapshots) {
    model_.check_live(snapshot);
    snapshots_.push_back(snapshot);
  }
  for (const Reply& reply : effects_.replies) {
    if (reply.after_records && options_.durable) {
      held_.push_back({stored_.size(), reply});
    } else if (const auto at = inbox_.find(reply.to.connection); at != inbox_.end()) {
      at->second.emplace_back(reply.to.request, reply.body);
    }
  }
  for (const Notification& notice : effects_.notifications) {
    if (notice.after_records && options_.durable) {
      held_.push_back({stored_.size(), {{notice.connection, 0}, true, notice.body}});
    } else if (const auto at = inbox_.find(notice.connection); at != inbox_.end()) {
      at->second.emplace_back(0, notice.body);
    }
  }
  commit(committed_);
}

// ---- the store

// `records` of them are on the disk now: answers that waited for them go out.
void World::commit(std::size_t records) {
  committed_ = std::max(committed_, records);
  while (!held_.empty() && held_.front().needed <= committed_) {
    const Reply& reply = held_.front().reply;
    const auto at = inbox_.find(reply.to.connection);
    if (at != inbox_.end()) at->second.emplace_back(reply.to.request, reply.body);
    held_.pop_front();
  }
}

// The daemon dies and is started again on what its store has: all that it called committed, and
// some of the rest. In fast mode nothing was called committed in this sense, so any part may be
// gone.
void World::crash() {
  const std::size_t surely = options_.durable ? committed_ : 0;
  std::size_t kept = surely + random_.below(stored_.size() - surely + 1);
  if (!options_.durable && !random_.one_in(4))
    kept = std::max(kept, stored_.size() - std::min<std::size_t>(stored_.size(), 4));
  stored_.resize(kept);
  committed_ = std::min(committed_, kept);
  held_.clear();
  inbox_.clear();
  late_.clear();
  cut_.clear();
  for (auto& process : processes_) forget_connection(*process);
  while (!snapshots_.empty() && snapshots_.back().sequence > kept) snapshots_.pop_back();
  // A store gives back its latest snapshot. Without one, those that are left are void: they know of
  // jumps that nobody remembers.
  if (random_.one_in(2)) snapshots_.clear();
  const JobSnapshot* snapshot = snapshots_.empty() ? nullptr : &snapshots_.back();
  note("crash, " + std::to_string(kept) + " records are left" +
       (snapshot != nullptr ? ", snapshot at " + std::to_string(snapshot->sequence) : ""));

  ++counts_[kept == 0             ? "crash with an empty store"
            : snapshot != nullptr ? "crash with a snapshot"
                                  : "crash"];
  start_engine();
  model_.restart(stored_, snapshot, now_);
  std::string error;
  for (Engine* engine : {engine_.get(), twin_.get()}) {
    if (kept > 0) {
      const std::span<const Record> rest =
          std::span(stored_).subspan(snapshot != nullptr ? snapshot->sequence : 0);
      require(engine->restore(snapshot, rest, error), "not restored: " + error);
    }
    engine->finish_restore(now_);
  }
  if (kept > 0) return;
  require(engine_->declare_job(spec_, now_, effects_, error), error);
  require(twin_->declare_job(spec_, now_, twin_effects_, error), error);
  model_.observe_declared(now_, effects_);
  absorb();
  commit(stored_.size());
}

// I5: an engine made from all records, and one made from a snapshot and the records after it, are
// in the state of the one that made them.
void World::check_replay() {
  ++counts_["replay"];
  JobSnapshot live;
  require(engine_->snapshot(1, live), "the job is gone");
  model_.check_live(live);
  for (int way = 0; way < 3; ++way) {
    if (way > 0 && snapshots_.empty()) return;
    const JobSnapshot* from = way == 0   ? nullptr
                              : way == 1 ? &snapshots_.back()
                                         : &random_.pick(snapshots_);
    Engine other(engine_options_);
    std::string error;
    const std::span<const Record> rest =
        std::span(stored_).subspan(from != nullptr ? from->sequence : 0);
    require(other.restore(from, rest, error), "not restored: " + error);
    JobSnapshot rebuilt;
    other.snapshot(1, rebuilt);
    model_.check_rebuilt(rebuilt);
    for (std::size_t w = 0; w < live.workers.size(); ++w) {
      require(rebuilt.workers[w].clock <= live.workers[w].clock, "a rebuilt clock is ahead");
      rebuilt.workers[w].clock = live.workers[w].clock;
      require(lease_end(live.workers[w]) == 0 ||
                  lease_end(live.workers[w]) == lease_end(rebuilt.workers[w]),
              "a lease is lost");
    }
    rebuilt.highest_clock = live.highest_clock;
    require(comparable(rebuilt) == comparable(live),
            "replay differs\n" + to_text(rebuilt, 0) + "\nfrom\n" + to_text(live, 0));
  }
}

}  // namespace syncd::test
