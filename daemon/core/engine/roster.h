// Who is in a job: its workers, their places, names and clocks, and what is counted of them.
//
// The roster keeps the count and decides nothing: it knows no policy, sends nothing, records
// nothing and reads no clock. Only the job changes it, and only what a record says; whether a
// worker is ready is the exception, for that does not outlive the daemon. Of a Worker it alone
// changes `rank`, `name`, `host`, `state`, `clock`, `base` and `exchange_us`, because its figures
// depend on them.
//
// What always holds:
// - Workers are never removed: one that has gone keeps its rank until another process gets it.
// - members() counts those that have neither left nor are lost; the ranks of the others are vacant.
// - active() has the ranks of active workers, in order, and active_on() counts them by host;
//   clocks() has their relative clocks, absolute_clocks() their clocks, exchanges() the exchanges
//   of those that mark them, and draining() counts those among them that drain.
// - While the job waits for its start, missing() knows each member and who of them is ready. Later
//   it is empty.
// - idle_clocks() has the clock of every worker while the job does not run, and is empty while it
//   does.
// - A name and host lead to the worker that had them last.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/core/engine/missing_ranks.h"
#include "daemon/core/engine/rank_list.h"
#include "daemon/core/engine/rank_map.h"
#include "daemon/core/engine/record.h"
#include "daemon/core/engine/relative_clocks.h"
#include "daemon/core/engine/types.h"
#include "daemon/core/engine/worker.h"

namespace syncd {

class Roster {
 public:
  explicit Roster(std::uint32_t expected) : expected_(expected), missing_(expected) {}

  // ---- the workers. Pointers and references stay valid as long as the roster.
  Worker* find(Rank rank) {
    auto* worker = workers_.find(rank);
    return worker != nullptr ? worker->get() : nullptr;
  }
  const Worker* find(Rank rank) const {
    const auto* worker = workers_.find(rank);
    return worker != nullptr ? worker->get() : nullptr;
  }
  Worker& at(Rank rank) { return *workers_.at(rank); }  // of a known worker
  const Worker& at(Rank rank) const { return *workers_.at(rank); }
  const Worker* find(const std::string& name, const std::string& host) const;
  // The first two by this name, in the order of their hosts; null: there are not so many.
  std::pair<const Worker*, const Worker*> named(const std::string& name) const;
  const Worker* find_member(const std::string& name) const;  // of any host; null: none
  // f(worker) for all in rank order.
  template <class F>
  void each(F f) {
    workers_.for_each([&](Rank, const std::unique_ptr<Worker>& worker) { f(*worker); });
  }
  template <class F>
  void each(F f) const {
    workers_.for_each([&](Rank, const auto& worker) { f(std::as_const(*worker)); });
  }
  // The same from this rank on, until f returns false. O(workers looked at).
  template <class F>
  void walk(Rank first, F f) const {
    workers_.walk_from(first, [&](Rank, const auto& worker) { return f(std::as_const(*worker)); });
  }

  // ---- figures
  JobState state() const { return state_; }
  bool running() const { return state_ == JobState::kRunning; }
  std::uint32_t known() const { return static_cast<std::uint32_t>(workers_.size()); }
  std::uint32_t members() const { return members_; }
  std::uint32_t draining() const { return draining_; }
  const std::vector<Rank>& active() const { return active_; }
  std::uint32_t active_on(const std::string& host) const {
    const auto known = by_host_.find(host);
    return known == by_host_.end() ? 0 : known->second;
  }
  const MissingRanks& missing() const { return missing_; }
  const RelativeClocks& clocks() const { return clocks_; }
  const RelativeClocks& absolute_clocks() const { return absolute_clocks_; }
  const RelativeClocks& idle_clocks() const { return idle_clocks_; }
  const RelativeClocks& exchanges() const { return exchanges_; }  // in microseconds
  // Of all workers there ever were, but never below `least`.
  Clock highest_clock(Clock least) const;
  Clock highest_relative() const;  // likewise of relative clocks; never below 0
  RankList active_below(Clock q) const;
  Rank rank_limit() const { return workers_.limit(); }  // one more than the largest rank
  // For a newcomer that asks for none: one that was never used as long as the job expects more
  // workers, then the lowest vacant one. It may lie beyond limits::kWorkersPerJobMax.
  Rank free_rank() const;
  // Members that have not asked to begin, in rank order.
  std::vector<std::int64_t> not_begun() const;

  // ---- the job's state
  // Members become active, except those of `left_out` (in rank order).
  void start(std::span<const std::int64_t> left_out, Micros now);
  void wait();                         // for another start; nobody is active
  void expect(std::uint32_t workers);  // so many from now on
  void stop();

  // ---- members
  Worker& add(Rank rank);                         // a new member, of a rank that was never used
  void readmit(Worker& worker);                   // one that had gone is a member again
  void remove(Worker& worker, WorkerState gone);  // a member leaves, or is lost
  void rename(Worker& worker, const std::string& name, const std::string& host);
  void set_ready(Worker& worker, bool ready);  // while the job waits
  void activate(Worker& worker, Micros now);
  void deactivate(Worker& worker);                   // it stays a member
  void set_draining(Worker& worker, bool draining);  // of one that is active

  // ---- clocks
  void set_clock(Worker& worker, Clock clock) {
    if (clock == worker.clock) return;
    if (worker.active()) {
      clocks_.move(worker.relative(), clock - worker.base);
      absolute_clocks_.move(worker.clock, clock);
    }
    change_clock(worker, clock);
  }
  void set_clock(Worker& worker, Clock clock, Clock base);
  void rebase();  // every relative clock is 0 from now on
  // How long its latest iteration exchanged; -1: not known.
  void set_exchange(Worker& worker, Micros exchange_us) {
    if (exchange_us != worker.exchange_us) change_exchange(worker, exchange_us);
  }
  // Its place begins anew with this clock: of what was granted and pushed in it nothing counts. Of
  // a worker that is not active.
  void begin_anew(Worker& worker, Clock clock);

  // ---- recovery: before anything else, the state, then every worker
  void restore(JobState state) { state_ = state; }
  Worker& restore(const WorkerSnapshot& stored);  // of a rank that is not known yet

 private:
  void change_exchange(Worker& worker, Micros exchange_us);
  void leave_host(const std::string& host);
  Worker& make(Rank rank);
  void count(const Worker& worker);
  void uncount(const Worker& worker);
  void change_clock(Worker& worker, Clock clock) {
    if (state_ == JobState::kWaiting) idle_clocks_.move(worker.clock, clock);
    worker.clock = clock;
  }

  std::uint32_t expected_;
  JobState state_ = JobState::kWaiting;
  std::uint32_t members_ = 0;
  std::uint32_t draining_ = 0;
  RankMap<std::unique_ptr<Worker>> workers_;
  std::map<std::pair<std::string, std::string>, Rank> by_name_;  // (name, host)
  Rank next_fresh_rank_ = 0;                                     // the lowest that was never used
  std::set<Rank> vacant_;
  std::vector<Rank> active_;
  std::unordered_map<std::string, std::uint32_t>
      by_host_;  // active workers; looked up, never walked
  RelativeClocks clocks_;
  mutable KnownLists below_;  // of active_below(), while clocks_ does not change
  RelativeClocks absolute_clocks_;
  RelativeClocks idle_clocks_;
  RelativeClocks exchanges_;
  MissingRanks missing_;
};

}  // namespace syncd
