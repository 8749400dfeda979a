// Roster: changes of membership, and the figures that follow from them. Runs on the engine's
// thread.
#include "daemon/core/engine/roster.h"

#include <algorithm>

namespace syncd {

// ---- views
// --------------------------------------------------------------------------------------------

const Worker* Roster::find(const std::string& name, const std::string& host) const {
  const auto it = by_name_.find({name, host});
  return it == by_name_.end() ? nullptr : &at(it->second);
}

std::pair<const Worker*, const Worker*> Roster::named(const std::string& name) const {
  std::pair<const Worker*, const Worker*> found{};
  auto it = by_name_.lower_bound({name, {}});
  if (it == by_name_.end() || it->first.first != name) return found;
  found.first = &at(it->second);
  if (++it != by_name_.end() && it->first.first == name) found.second = &at(it->second);
  return found;
}

const Worker* Roster::find_member(const std::string& name) const {
  for (auto it = by_name_.lower_bound({name, {}}); it != by_name_.end() && it->first.first == name;
       ++it) {
    if (const Worker& worker = at(it->second); is_member(worker.state)) return &worker;
  }
  return nullptr;
}

Clock Roster::highest_clock(Clock least) const {
  each([&](const Worker& worker) { least = std::max(least, worker.clock); });
  return least;
}

Clock Roster::highest_relative() const {
  Clock highest = 0;
  each([&](const Worker& worker) { highest = std::max(highest, worker.relative()); });
  return highest;
}

RankList Roster::active_below(Clock q) const {
  return below_.get(q, clocks_.changes(), [&](RankList& below) {
    for (const Rank rank : active_) {
      if (at(rank).relative() < q) below.push_back(rank);
    }
  });
}

Rank Roster::free_rank() const {
  return next_fresh_rank_ >= expected_ && !vacant_.empty() ? *vacant_.begin() : next_fresh_rank_;
}

std::vector<std::int64_t> Roster::not_begun() const {
  std::vector<std::int64_t> ranks;
  each([&](const Worker& worker) {
    if (worker.state == WorkerState::kRegistered) ranks.push_back(worker.rank);
  });
  return ranks;
}

// ---- the job's state
// ----------------------------------------------------------------------------------

void Roster::start(std::span<const std::int64_t> left_out, Micros now) {
  state_ = JobState::kRunning;
  missing_.clear();
  idle_clocks_.clear();
  each([&](Worker& worker) {
    if (!is_member(worker.state)) return;
    if (!std::binary_search(left_out.begin(), left_out.end(), worker.rank)) activate(worker, now);
  });
}

void Roster::wait() {
  state_ = JobState::kWaiting;
  each([&](const Worker& worker) {
    idle_clocks_.add(worker.clock);
    if (is_member(worker.state)) missing_.join(worker.rank);
  });
}

void Roster::expect(std::uint32_t workers) {
  expected_ = workers;
  missing_.expect(workers);
}

void Roster::stop() {
  state_ = JobState::kStopped;
  missing_.clear();
  idle_clocks_.clear();
  each([&](const Worker& worker) { idle_clocks_.add(worker.clock); });
}

// ---- members
// ------------------------------------------------------------------------------------------

Worker& Roster::make(Rank rank) {
  auto& worker = workers_.get(rank);
  worker = std::make_unique<Worker>();
  worker->rank = rank;
  while (workers_.find(next_fresh_rank_) != nullptr) ++next_fresh_rank_;
  return *worker;
}

Worker& Roster::add(Rank rank) {
  Worker& worker = make(rank);
  if (state_ == JobState::kWaiting) {
    idle_clocks_.add(worker.clock);
    missing_.join(rank);
  }
  ++members_;
  return worker;
}

void Roster::readmit(Worker& worker) {
  worker.state = WorkerState::kRegistered;
  vacant_.erase(worker.rank);
  ++members_;
  if (state_ == JobState::kWaiting) missing_.join(worker.rank);
}

void Roster::remove(Worker& worker, WorkerState gone) {
  if (state_ == JobState::kWaiting) {
    if (worker.state == WorkerState::kReady) missing_.unready(worker.rank);
    missing_.leave(worker.rank);
  }
  --members_;
  vacant_.insert(worker.rank);
  if (worker.active()) deactivate(worker);
  worker.state = gone;
}

void Roster::rename(Worker& worker, const std::string& name, const std::string& host) {
  const auto before = by_name_.find({worker.name, worker.host});
  if (before != by_name_.end() && before->second == worker.rank) by_name_.erase(before);
  by_name_[{name, host}] = worker.rank;
  if (worker.active() && worker.host != host) {
    leave_host(worker.host);
    ++by_host_[host];
  }
  worker.name = name;
  worker.host = host;
}

void Roster::set_ready(Worker& worker, bool ready) {
  worker.state = ready ? WorkerState::kReady : WorkerState::kRegistered;
  if (ready) {
    missing_.ready(worker.rank);
  } else {
    missing_.unready(worker.rank);
  }
}

void Roster::activate(Worker& worker, Micros now) {
  worker.state = WorkerState::kRunning;
  worker.active_at = now;
  active_.insert(std::lower_bound(active_.begin(), active_.end(), worker.rank), worker.rank);
  ++by_host_[worker.host];
  count(worker);
}

void Roster::deactivate(Worker& worker) {
  active_.erase(std::lower_bound(active_.begin(), active_.end(), worker.rank));
  leave_host(worker.host);
  if (worker.state == WorkerState::kDraining) --draining_;
  uncount(worker);
  worker.state = WorkerState::kRegistered;
}

void Roster::leave_host(const std::string& host) {
  const auto known = by_host_.find(host);
  if (--known->second == 0) by_host_.erase(known);
}

void Roster::set_draining(Worker& worker, bool draining) {
  if ((worker.state == WorkerState::kDraining) == draining) return;
  worker.state = draining ? WorkerState::kDraining : WorkerState::kRunning;
  draining_ += draining ? 1 : -1;
}

// ---- clocks
// -------------------------------------------------------------------------------------------

void Roster::count(const Worker& worker) {
  clocks_.add(worker.relative());
  absolute_clocks_.add(worker.clock);
  if (worker.exchange_us >= 0) exchanges_.add(worker.exchange_us);
}

void Roster::uncount(const Worker& worker) {
  clocks_.remove(worker.relative());
  absolute_clocks_.remove(worker.clock);
  if (worker.exchange_us >= 0) exchanges_.remove(worker.exchange_us);
}

void Roster::change_exchange(Worker& worker, Micros exchange_us) {
  if (worker.active() && worker.exchange_us >= 0) exchanges_.remove(worker.exchange_us);
  worker.exchange_us = exchange_us;
  if (worker.active() && exchange_us >= 0) exchanges_.add(exchange_us);
}

void Roster::set_clock(Worker& worker, Clock clock, Clock base) {
  if (worker.active()) uncount(worker);
  change_clock(worker, clock);
  worker.base = base;
  if (worker.active()) count(worker);
}

void Roster::rebase() {
  clocks_.clear();
  each([&](Worker& worker) {
    worker.base = worker.clock;
    if (worker.active()) clocks_.add(0);
  });
}

void Roster::begin_anew(Worker& worker, Clock clock) {
  set_clock(worker, clock, 0);
  worker.granted = worker.pushed = worker.late = kNoIteration;
  worker.before_jump = worker.after_jump = kNoIteration;
  worker.own_pushes = 0;
  worker.last_push_us = worker.previous_push_us = -1;
  set_exchange(worker, -1);
  worker.forget_grant();
}

// ---- recovery
// -----------------------------------------------------------------------------------------

Worker& Roster::restore(const WorkerSnapshot& stored) {
  Worker& worker = make(stored.rank);
  static_cast<WorkerSnapshot&>(worker) = stored;
  // A worker is ready only once it has asked.
  if (worker.state == WorkerState::kReady) worker.state = WorkerState::kRegistered;
  // Of several by one name, the latest.
  const auto [named, fresh] = by_name_.try_emplace({worker.name, worker.host}, worker.rank);
  if (!fresh && at(named->second).incarnation < worker.incarnation) named->second = worker.rank;
  if (!running()) idle_clocks_.add(worker.clock);
  if (!is_member(worker.state)) {
    vacant_.insert(worker.rank);
    return worker;
  }
  ++members_;
  if (state_ == JobState::kWaiting) missing_.join(worker.rank);
  if (worker.active()) {
    active_.push_back(worker.rank);
    ++by_host_[worker.host];
    count(worker);
    if (worker.state == WorkerState::kDraining) ++draining_;
  }
  return worker;
}

}  // namespace syncd
