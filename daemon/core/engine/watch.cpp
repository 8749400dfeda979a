// See watch.h.
#include "daemon/core/engine/watch.h"

#include <algorithm>
#include <iterator>

#include "daemon/core/engine/limits.h"

namespace syncd {
namespace {

std::string who(const Worker& worker) {
  return fmt::format("worker {} ({})", worker.rank, worker.host);
}

}  // namespace

// ---- waits
// ---------------------------------------------------------------------------------------------

Micros Watch::threshold() const {
  if (spec_.hang_after_us > 0) return spec_.hang_after_us;
  const Micros age = engine_.now() - threshold_at_;
  if (threshold_at_ < 0 || age < 0 || age >= limits::kHangLookUs) {
    threshold_us_ = find_threshold();
    threshold_at_ = engine_.now();
  }
  return threshold_us_;
}

// Left to the daemon: that of the worker whose iterations take longest. The others wait for it
// each time.
Micros Watch::find_threshold() const {
  if (!roster_.running()) return limits::kHangAfterUnknown;
  Micros highest = limits::kHangAfterFloor;
  for (const Rank rank : roster_.active()) {
    const UsualSpan usual = roster_.at(rank).spans.usual();
    if (usual.spans == 0) return limits::kHangAfterUnknown;
    const Micros slow_us =
        limits::kLateMedians * usual.median_us + limits::kLateSpreads * usual.spread_us;
    const Micros own = std::min(limits::kHangPerWarn * slow_us, limits::kHangAfterCeiling);
    highest = std::max({highest, own, 2 * usual.median_us});
  }
  return highest;
}

Micros Watch::said_every() const {
  if (spec_.hang_after_us < 0) return limits::kExchangeSaidMaxUs;
  return std::clamp(spec_.hang_after_us / 4, limits::kExchangeSaidMinUs,
                    limits::kExchangeSaidMaxUs);
}

Micros Watch::exchanging_since(const Worker& worker) const {
  const auto seen = seen_.find(worker.rank);
  const bool exchanges = seen != seen_.end() && worker.computing() &&
                         seen->second.exchanging == worker.granted && is_member(worker.state);
  return exchanges ? seen->second.since : -1;
}

Micros Watch::waits_since(const Worker& worker) const {
  return worker.waiting ? worker.waiting->since : exchanging_since(worker);
}

Watch::Waits Watch::find_waits(const Worker* but) const {
  Waits waits;
  const Micros now = engine_.now();
  const Micros threshold_us = threshold();
  Micros longest_exchange = kNever, longest_pending = kNever;
  roster_.each([&](const Worker& worker) {
    if (&worker == but || !is_member(worker.state)) return;
    const Micros since = waits_since(worker);
    if (since < 0) return;
    const Micros due = since + threshold_us + engine_.stalled_since(since);
    if (due > now) {
      waits.next_due = std::min(waits.next_due, due);
    } else if (worker.waiting && since < longest_pending) {
      longest_pending = since;
      waits.pending = &worker;
    } else if (!worker.waiting && since < longest_exchange) {
      longest_exchange = since;
      waits.exchanging = &worker;
    }
  });
  return waits;
}

// ---- events
// ---------------------------------------------------------------------------------------------

void Watch::set_timer(Micros at) {
  timer_at_ = at;
  engine_.set_timer(kNoRank, kTimerWatch, at);
}

void Watch::start() {
  if (!is_on()) return;
  hang_.reset();
  threshold_at_ = -1;
  set_timer(engine_.now() +
            (spec_.hang_after_us > 0 ? spec_.hang_after_us : limits::kHangAfterFloor));
}

void Watch::exchanging(const Worker& worker, Iteration iteration, Micros for_us) {
  if (!is_on() || !worker.computing() || iteration != worker.granted) return;
  const Micros now = engine_.now();
  Seen& seen = seen_[worker.rank];
  if (seen.exchanging != iteration) {
    seen.exchanging = iteration;
    const Micros longest = worker.granted_at >= 0 ? now - worker.granted_at : for_us;
    seen.since = now - std::clamp<Micros>(for_us, 0, std::max<Micros>(longest, 0));
  }
  seen.heard = now;
  const bool alone = std::ranges::any_of(
      gone_, [&](Rank rank) { return leaves_alone(worker, rank, seen_.at(rank)); });
  const Micros due = alone && roster_.running() ? now : seen.since + threshold();
  if (due < timer_at_) set_timer(std::max(due, now));
}

void Watch::gone(const Worker& worker, const std::string& reason) {
  if (!is_on()) return;
  if (gone_.size() >= limits::kHangRanksMax && !gone_.contains(worker.rank)) {
    const Rank oldest =
        *std::ranges::min_element(gone_, {}, [this](Rank rank) { return seen_.at(rank).gone_at; });
    seen_.erase(oldest);
    gone_.erase(oldest);
  }
  gone_.insert(worker.rank);
  Seen& seen = seen_[worker.rank];
  seen = {};
  seen.gone_at = engine_.now();
  seen.lost = worker.state == WorkerState::kLost;
  seen.reason = reason;
  if (engine_.effects() != nullptr) set_timer(engine_.now());
}

bool Watch::look() {
  const Micros now = engine_.now();
  timer_at_ = kNever;
  const Waits waits = find_waits();
  Micros next = now + (spec_.hang_after_us > 0 ? spec_.hang_after_us : limits::kHangAfterFloor);
  next = std::min(next, waits.next_due);

  std::vector<Rank> ranks = find_gone();
  const Worker* waiting = waits.exchanging != nullptr ? waits.exchanging : waits.pending;
  if (!ranks.empty() && waits.exchanging == nullptr) {
    // Its wait has only begun.
    roster_.each([&](const Worker& worker) {
      if (exchanging_since(worker) >= 0 && !worker.waiting) waiting = &worker;
    });
  }
  bool is_hang = !ranks.empty();
  if (!is_hang && waiting != nullptr) {
    ranks = !roster_.running()            ? find_not_begun()
            : waits.exchanging != nullptr ? find_minority()
                                          : find_waited_for(*waiting);
    Micros phase_end = kNever;
    const bool anybody = !ranks.empty();
    ranks = without_phases(ranks, phase_end);
    is_hang = !anybody || !ranks.empty();
    next = std::min(next, phase_end);
  }

  bool has_begun = false;
  if (is_hang) {
    has_begun = open(describe(ranks, *waiting));
    next = std::min(next, now + limits::kHangLookUs);
  } else if (hang_) {
    answers_.log(LogLevel::kInfo, "hang_resolved", nullptr);
    hang_.reset();
  }
  set_timer(std::max(next, now + 1));
  return has_begun;
}

bool Watch::open(Hang hang) {
  const bool fresh = !hang_;
  const bool news = fresh || hang.causes != hang_->causes;
  hang_ = std::move(hang);
  if (!news) return false;
  if (fresh) {
    ++counters_.hangs;
    Record record = recorder_.make(RecordKind::kHang);
    record.iteration = hang_->iteration;
    record.wait_us = hang_->waiting_us;
    record.reason = hang_->text;
    record.values.assign(hang_->ranks.begin(), hang_->ranks.end());
    recorder_.commit(std::move(record), [](const Record&) {});
  }
  tell(fresh ? "hang_detected" : "hang_changed", *hang_);
  return fresh;
}

void Watch::tell(const char* event, const Hang& hang) {
  const std::int32_t first = hang.ranks.empty() ? -1 : static_cast<std::int32_t>(hang.ranks[0]);
  answers_.log(LogLevel::kWarn, event, nullptr,
               {{"iteration", std::to_string(hang.iteration)},
                {"waiting", format_duration(hang.waiting_us)},
                {"at_fault", std::to_string(hang.count)},
                {"why", hang.text}});
  roster_.each([&](const Worker& worker) {
    if (!is_member(worker.state) || (worker.notices & wire::kNoticeHang) == 0) return;
    answers_.notify(worker.connection, wire::HangNotice{answers_.ref(worker), first, hang.iteration,
                                                        hang.waiting_us, hang.text});
  });
}

Micros Watch::keeps_until(const Worker& worker) const {
  if (!is_on() || hang_) return 0;
  const Waits waits = find_waits(&worker);
  const bool named_now = waits.exchanging != nullptr || waits.pending != nullptr;
  return named_now || waits.next_due == kNever ? 0 : waits.next_due;
}

// ---- who is at fault
// ---------------------------------------------------------------------------------------------

bool Watch::leaves_alone(const Worker& worker, Rank gone, const Seen& seen) const {
  if (seen.gone_at < 0 || worker.waiting || exchanging_since(worker) < 0) return false;
  const Worker& other = roster_.at(gone);
  return !is_member(other.state) && seen.gone_at >= worker.granted_at &&
         other.answered() < worker.granted;
}

std::vector<Rank> Watch::find_gone() const {
  std::vector<Rank> ranks;
  if (!roster_.running()) return ranks;
  for (const Rank gone : gone_) {
    if (is_member(roster_.at(gone).state)) continue;
    const Seen& seen = seen_.at(gone);
    if (std::ranges::any_of(roster_.active(),
                            [&](Rank one) { return leaves_alone(roster_.at(one), gone, seen); })) {
      ranks.push_back(gone);
    }
  }
  if (ranks.empty()) return ranks;
  // One whose connection has closed may be what made the others go.
  for (const Rank rank : roster_.active()) {
    if (roster_.at(rank).disconnected_at >= 0) ranks.push_back(rank);
  }
  const auto since = [&](Rank rank) {
    const Worker& worker = roster_.at(rank);
    return is_member(worker.state) ? worker.disconnected_at : seen_.at(rank).gone_at;
  };
  std::stable_sort(ranks.begin(), ranks.end(), [&](Rank a, Rank b) { return since(a) < since(b); });
  return ranks;
}

std::vector<Rank> Watch::find_not_begun() const {
  std::vector<Rank> ranks;
  for (const RankRange& range : roster_.missing().first(limits::kHangRanksMax)) {
    for (Rank rank = range.first; rank <= range.last; ++rank) {
      if (ranks.size() == limits::kHangRanksMax) return ranks;
      ranks.push_back(rank);
    }
  }
  return ranks;
}

// `others_speak`: some worker that exchanges has said so lately.
Watch::Place Watch::place(const Worker& worker, bool others_speak) const {
  if (worker.disconnected_at >= 0) return {kNoIteration, Stage::kCut};
  if (worker.waiting) return {worker.waiting->iteration, Stage::kWaits};
  if (!loop_.in_iteration(worker)) return {loop_.due(worker), Stage::kBetween};
  if (exchanging_since(worker) < 0) return {worker.granted, Stage::kComputes};
  const Seen& seen = seen_.at(worker.rank);
  const bool silent = others_speak && engine_.now() - seen.heard > 3 * said_every();
  return {worker.granted, silent ? Stage::kSilent : Stage::kExchanges};
}

bool Watch::has_silent_majority() const {
  std::size_t silent = 0, exchange = 0;
  for (const Rank rank : roster_.active()) {
    if (exchanging_since(roster_.at(rank)) < 0) continue;
    ++exchange;
    silent += engine_.now() - seen_.at(rank).heard > 3 * said_every();
  }
  return 2 * silent >= exchange;
}

std::vector<Rank> Watch::find_minority() const {
  const bool others_speak = !has_silent_majority();
  std::map<Place, std::size_t> counts;
  for (const Rank rank : roster_.active()) ++counts[place(roster_.at(rank), others_speak)];
  std::vector<Rank> ranks;
  const auto collect = [&](auto at_fault) {
    for (const Rank rank : roster_.active()) {
      if (at_fault(place(roster_.at(rank), others_speak))) ranks.push_back(rank);
    }
    return ranks;
  };
  const auto is_apart = [](const Place& place) { return place.stage >= Stage::kSilent; };
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != counts.end() && !is_apart(most->first) &&
      2 * most->second > roster_.active().size()) {
    return collect([&](const Place& place) { return place != most->first; });
  }
  if (std::any_of(counts.begin(), counts.end(), [&](const auto& c) { return is_apart(c.first); })) {
    return collect(is_apart);
  }
  return collect([&](const Place& place) { return place == counts.begin()->first; });
}

// The policy's own word, less those that wait for others themselves.
std::vector<Rank> Watch::find_waited_for(const Worker& waiting) const {
  std::vector<Rank> all, at_fault;
  const Reason reason = loop_.policy().explain(loop_, waiting.rank);
  for (const RankRange& range : reason.waiting_for.shown()) {
    for (Rank rank = range.first; rank <= range.last; ++rank) {
      const Worker* worker = roster_.find(rank);
      if (worker == nullptr || all.size() == limits::kHangRanksMax) continue;
      all.push_back(rank);
      if (waits_since(*worker) < 0 || worker->disconnected_at >= 0) at_fault.push_back(rank);
    }
  }
  return at_fault.empty() ? all : at_fault;
}

std::vector<Rank> Watch::without_phases(const std::vector<Rank>& ranks, Micros& phase_end) const {
  std::vector<Rank> left;
  for (const Rank rank : ranks) {
    const Worker* worker = roster_.find(rank);
    const bool in_phase = worker != nullptr && is_member(worker->state) && !worker->phase.empty() &&
                          worker->phase_us + worker->phase_lease_us > engine_.now();
    if (in_phase) {
      phase_end = std::min(phase_end, worker->phase_us + worker->phase_lease_us);
    } else {
      left.push_back(rank);
    }
  }
  return left;
}

// ---- what is said
// ---------------------------------------------------------------------------------------------

// `cause`: the same text as long as it is for the same reason.
std::string Watch::phrase(Rank rank, std::string& cause) const {
  const Worker* worker = roster_.find(rank);
  const Micros now = engine_.now();
  const auto ago = [&](Micros at) { return format_duration(now - at); };
  const auto gone_when = [&](Micros at) { return at == now ? "just now" : ago(at) + " ago"; };
  const auto of = [&](const char* why) { cause = fmt::format("{} {}", rank, why); };
  const auto seen = seen_.find(rank);
  if (worker == nullptr || !is_member(worker->state)) {
    if (worker == nullptr || seen == seen_.end() || seen->second.gone_at < 0) {
      of("not joined");
      return fmt::format("worker {}, which has not joined", rank);
    }
    of("gone");
    const Seen& gone = seen->second;
    const std::string when = gone_when(gone.gone_at);
    return fmt::format("{}, {} {}{}{}", who(*worker), gone.lost ? "lost" : "which left", when,
                       gone.reason.empty() ? "" : ": ", gone.reason);
  }
  if (worker->disconnected_at >= 0) {
    of("cut");
    return fmt::format("{}, its connection {} {}", who(*worker),
                       worker->closed ? "closed" : "was lost", gone_when(worker->disconnected_at));
  }
  if (worker->waiting) {
    of("waits");
    return fmt::format("{}, waiting in {}({}) for {}", who(*worker),
                       to_string(worker->waiting->call), worker->waiting->iteration,
                       ago(worker->waiting->since));
  }
  if (!loop_.in_iteration(*worker)) {
    of("between");
    if (worker->last_push_us < 0 || worker->answered() == kNoIteration) {
      return fmt::format("{}, which has not begun", who(*worker));
    }
    return fmt::format("{}, which has not begun iteration {}, {} after its last push", who(*worker),
                       loop_.due(*worker), ago(worker->last_push_us));
  }
  const Micros since = exchanging_since(*worker);
  if (since >= 0) {
    of("exchanges");
    const Micros silent = now - seen->second.heard;
    const std::string silence =
        silent > 3 * said_every() ? ", silent for " + format_duration(silent) : std::string();
    return fmt::format("{}, exchanging in iteration {} for {}{}", who(*worker), worker->granted,
                       ago(since), silence);
  }
  of("computes");
  if (!worker->phase.empty()) return who(*worker) + ", " + liveness_.describe(*worker, true);
  const std::string spent = worker->granted_at >= 0 ? " for " + ago(worker->granted_at) : "";
  return fmt::format("{}, in iteration {}{}, still computing", who(*worker), worker->granted,
                     spent);
}

Watch::Hang Watch::describe(const std::vector<Rank>& ranks, const Worker& waiting) const {
  Hang hang;
  hang.count = ranks.size();
  hang.ranks.assign(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                       ranks.size(), limits::kHangRanksMax)));
  hang.iteration = waiting.waiting ? waiting.waiting->iteration : waiting.granted;
  hang.waiting_us = engine_.now() - waits_since(waiting);
  if (ranks.empty()) {
    hang.causes = "nobody differs";
    hang.text =
        fmt::format("{} workers have {} iteration {} for {}, and nobody differs from them",
                    roster_.active().size(), waiting.waiting ? "waited to begin" : "exchanged in",
                    hang.iteration, format_duration(hang.waiting_us));
    return hang;
  }
  hang.text =
      ranks.size() == 1 ? "waiting for " : fmt::format("waiting for {} workers: ", ranks.size());
  for (std::size_t i = 0; i < hang.ranks.size(); ++i) {
    std::string cause;
    const std::string one = phrase(hang.ranks[i], cause);
    hang.causes += cause + "\n";
    if (i < limits::kHangNamedMax) hang.text += (i > 0 ? "; " : "") + one;
  }
  if (ranks.size() > limits::kHangNamedMax) {
    hang.text += fmt::format("; and {} more", ranks.size() - limits::kHangNamedMax);
  }
  return hang;
}

}  // namespace syncd
