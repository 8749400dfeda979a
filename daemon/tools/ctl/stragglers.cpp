// See stragglers.h.
#include "daemon/tools/ctl/stragglers.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace syncd::ctl {
namespace {

void sort_by_loss(std::vector<StragglerShare>& shares) {
  std::sort(shares.begin(), shares.end(), [](const StragglerShare& a, const StragglerShare& b) {
    return std::tie(b.lost_us, a.rank, a.host) < std::tie(a.lost_us, b.rank, b.host);
  });
}

}  // namespace

void Stragglers::add(const Record& record) {
  if (record.rank < 0) return;
  if (record.kind == RecordKind::kWorkerJoined) {
    StragglerShare& share = shares_[record.rank].sum;
    share.name = record.name;
    share.host = record.host;
    last_us_[record.rank] = record.time_us;
    return;
  }
  if (record.kind == RecordKind::kWorkerLeft || record.kind == RecordKind::kWorkerLost) {
    last_us_.erase(record.rank);
    note(record);
    return;
  }
  if (record.kind != RecordKind::kPush) return;
  if (record.span_us >= 0) {
    const Micros granted_us = record.time_us - record.span_us;
    const bool is_marked = record.exchange_us() >= 0;
    const Micros computed_at_us = is_marked ? granted_us + record.computed_us : record.time_us;
    if (computed_at_us >= since_us_) {
      computed_us_ += computed_at_us - std::max(granted_us, since_us_);
    }
    if (is_marked && computed_at_us >= since_us_ && !record.late) add_exchange(record);
    if (record.waited_us > 0 && granted_us >= since_us_) {
      charge(granted_us - record.waited_us, granted_us);
    }
  }
  last_us_[record.rank] = record.time_us;
  // A late push ends no wait: the others had continued without it.
  if (!record.late) note(record);
}

void Stragglers::note(const Record& record) {
  // The clock may have been set back between two runs of the daemon: what was before then ended no
  // wait that is still to come.
  if (!events_.empty() && record.time_us < events_.back().time_us) events_.clear();
  events_.push_back({record.time_us, record.rank});
  if (events_.size() >= forget_at_) forget_old();
}

void Stragglers::charge(Micros begun_us, Micros ended_us) {
  const auto after =
      std::upper_bound(events_.begin(), events_.end(), ended_us,
                       [](Micros time_us, const Event& event) { return time_us < event.time_us; });
  const Micros waited_us = ended_us - begun_us;
  if (after == events_.begin() || std::prev(after)->time_us != ended_us) {
    other_us_ += waited_us;
    return;
  }
  auto at = std::prev(after);
  Share& share = shares_[at->rank];
  share.sum.rank = at->rank;
  share.sum.lost_us += waited_us;
  share.sum.longest_us = std::max(share.sum.longest_us, waited_us);
  ++share.sum.waits;
  if (share.last_moment_us != ended_us) ++share.sum.moments;
  share.last_moment_us = ended_us;
  lost_us_ += waited_us;
  const std::int64_t rank = at->rank;
  while (at != events_.begin() && at->rank == rank && at->time_us > begun_us) --at;
  const Micros others_us = at->rank == rank ? begun_us : std::max(begun_us, at->time_us);
  share.sum.alone_us += ended_us - others_us;
}

void Stragglers::add_exchange(const Record& record) {
  std::vector<Exchange>& round = rounds_[record.iteration];
  round.push_back({record.exchange_us(), record.rank});
  const bool is_complete = round.size() >= last_us_.size();
  if (!is_complete && rounds_.size() <= kRoundsMax) return;
  const auto ended = is_complete ? rounds_.find(record.iteration) : rounds_.begin();
  charge_round(ended->second);
  rounds_.erase(ended);
}

void Stragglers::charge_round(const std::vector<Exchange>& round) {
  const auto shorter = [](const Exchange& a, const Exchange& b) {
    return std::tie(a.us, a.rank) < std::tie(b.us, b.rank);
  };
  const Exchange last = *std::min_element(round.begin(), round.end(), shorter);
  Micros next_us = INT64_MAX;  // of the one who came last but one
  for (const Exchange& one : round) {
    if (one.rank != last.rank) next_us = std::min(next_us, one.us);
  }
  StragglerShare charged;
  for (const Exchange& one : round) {
    exchange_us_ += last.us;
    const Micros waited_us = one.us - last.us;
    if (waited_us == 0 || one.rank == last.rank) continue;
    charged.lost_us += waited_us;
    charged.alone_us += next_us - last.us;
    charged.longest_us = std::max(charged.longest_us, waited_us);
    ++charged.waits;
  }
  if (charged.waits == 0) return;
  StragglerShare& sum = shares_[last.rank].sum;
  sum.rank = last.rank;
  sum.lost_us += charged.lost_us;
  sum.alone_us += charged.alone_us;
  sum.longest_us = std::max(sum.longest_us, charged.longest_us);
  sum.waits += charged.waits;
  ++sum.moments;
  lost_us_ += charged.lost_us;
}

Stragglers Stragglers::with_open_rounds() const {
  Stragglers all = *this;
  for (const auto& [iteration, round] : std::exchange(all.rounds_, {})) all.charge_round(round);
  return all;
}

Micros Stragglers::lost_us() const {
  return rounds_.empty() ? lost_us_ : with_open_rounds().lost_us_;
}

Micros Stragglers::exchange_us() const {
  return rounds_.empty() ? exchange_us_ : with_open_rounds().exchange_us_;
}

void Stragglers::forget_old() {
  Micros needed_us = events_.back().time_us;
  for (const auto& [rank, time_us] : last_us_) needed_us = std::min(needed_us, time_us);
  while (events_.front().time_us < needed_us) events_.pop_front();
  forget_at_ = std::max<std::size_t>(4096, 2 * events_.size());
}

std::vector<StragglerShare> Stragglers::by_worker() const {
  if (!rounds_.empty()) return with_open_rounds().by_worker();
  std::vector<StragglerShare> found;
  for (const auto& [rank, share] : shares_) {
    if (share.sum.waits > 0) found.push_back(share.sum);
  }
  sort_by_loss(found);
  return found;
}

std::vector<StragglerShare> Stragglers::by_host() const {
  if (!rounds_.empty()) return with_open_rounds().by_host();
  std::map<std::string, StragglerShare> hosts;
  for (const auto& [rank, share] : shares_) {
    if (share.sum.waits == 0) continue;
    StragglerShare& host = hosts[share.sum.host];
    host.host = share.sum.host;
    host.lost_us += share.sum.lost_us;
    host.alone_us += share.sum.alone_us;
    host.longest_us = std::max(host.longest_us, share.sum.longest_us);
    host.waits += share.sum.waits;
    host.moments += share.sum.moments;
  }
  std::vector<StragglerShare> found;
  for (auto& [name, host] : hosts) found.push_back(std::move(host));
  sort_by_loss(found);
  return found;
}

void SlowEpisodes::add(std::int64_t rank, Iteration iteration, Micros span_us) {
  const auto open = open_.find(rank);
  const auto verdict = detector_.push(tracks_[rank], open != open_.end(), span_us);
  if (!verdict) return;
  const auto before = iteration - static_cast<Iteration>(verdict->pushes);
  if (verdict->is_straggler) {
    open_[rank] = found_.size();
    found_.push_back({rank, before + 1, std::nullopt, verdict->factor});
  } else {
    found_[open->second].to = before;
    open_.erase(open);
  }
}

}  // namespace syncd::ctl
