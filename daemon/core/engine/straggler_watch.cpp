// See straggler_watch.h.
#include "daemon/core/engine/straggler_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace syncd {

void StragglerWatch::judge(Worker& worker, const Record& push) {
  if (push.in_phase) return detector_.leave_out(worker.speed);
  const Micros span_us = push.own_span_us();
  verdict_ = detector_.push(worker.speed, worker.slow_since_us >= 0, span_us);
  // The first of those that may lead to a verdict.
  if (worker.speed.since == 1) worker.turned_at = push.time_us - std::max(push.span_us, span_us);
}

// "3 of 4 workers of host node-b are slow": more than half of them, and at least two, once one more
// is slow or has recovered.
std::string StragglerWatch::host_note(const std::string& host, bool one_more) const {
  const auto known = slow_on_.find(host);
  const std::uint32_t before = known == slow_on_.end() ? 0 : known->second;
  const std::uint32_t slow = one_more ? before + 1 : before - std::min(before, 1U);
  const std::uint32_t all = roster_.active_on(host);
  if (slow < 2 || 2 * slow <= all) return {};
  return fmt::format("{} of {} workers of host {} are slow", slow, all, host);
}

void StragglerWatch::set_slow(Worker& worker, Micros since, double factor) {
  worker.slow_since_us = since;
  worker.slow_factor = factor;
  if (slow_.insert(worker.rank).second) ++slow_on_[worker.host];
}

void StragglerWatch::set_usual(Worker& worker) {
  worker.slow_since_us = -1;
  worker.slow_factor = 0;
  if (slow_.erase(worker.rank) == 0) return;
  const auto on_host = slow_on_.find(worker.host);
  if (--on_host->second == 0) slow_on_.erase(on_host);
}

void StragglerWatch::announce_verdict(Worker& worker, Iteration pushed) {
  const StragglerVerdict verdict = *std::exchange(verdict_, std::nullopt);
  const std::string note = host_note(worker.host, verdict.is_straggler);
  const Micros since = std::min(worker.turned_at, engine_.now());
  Record record = recorder_.make(
      verdict.is_straggler ? RecordKind::kStragglerDetected : RecordKind::kStragglerRecovered,
      &worker);
  record.iteration = std::max<Iteration>(pushed - verdict.pushes + 1, 0);
  record.span_us = engine_.now() - since;
  record.factor = verdict.factor;
  record.name = worker.name;
  record.host = worker.host;
  record.reason = note;
  const Iteration from = record.iteration;
  recorder_.commit(std::move(record), [this](const Record& made) { apply(made); });
  if (verdict.is_straggler) ++counters_.stragglers;
  Answers::Fields fields = {{"factor", fmt::format("{:.2f}", verdict.factor)},
                            {"for", format_duration(engine_.now() - since)},
                            {"iteration", std::to_string(from)}};
  if (!note.empty()) fields.emplace_back("on_host", note);
  answers_.log(verdict.is_straggler ? LogLevel::kWarn : LogLevel::kInfo,
               verdict.is_straggler ? "straggler_detected" : "straggler_recovered", &worker,
               std::move(fields));
  tell(worker, verdict, since, note);
}

// The worker itself, and one more: a thousand that say the same would drown it.
void StragglerWatch::tell(const Worker& worker, const StragglerVerdict& verdict, Micros since,
                          const std::string& host_note) {
  if (!has_listeners_) return;
  const auto listens = [this](Rank rank) {
    return (roster_.at(rank).notices & wire::kNoticeStragglers) != 0;
  };
  const auto notify = [&](const Worker& told) {
    answers_.notify(told.connection,
                    wire::StragglerNotice{answers_.ref(told), worker.rank, worker.name, worker.host,
                                          !verdict.is_straggler, verdict.factor, since, host_note});
  };
  if (listens(worker.rank)) notify(worker);
  const auto first = std::ranges::find_if(roster_.active(), listens);
  if (first != roster_.active().end() && *first != worker.rank) notify(roster_.at(*first));
}

void StragglerWatch::apply(const Record& verdict) {
  Worker& worker = roster_.at(static_cast<Rank>(verdict.rank));
  if (!worker.active()) return;
  if (verdict.kind == RecordKind::kStragglerDetected) {
    set_slow(worker, verdict.time_us - std::max<Micros>(verdict.span_us, 0), verdict.factor);
  } else {
    set_usual(worker);
  }
}

void StragglerWatch::forget(Worker& worker) {
  detector_.leave_out(worker.speed);
  worker.speed = {};
  set_usual(worker);
}

void StragglerWatch::restore(Worker& worker) {
  if (worker.usual) StragglerDetector::restore(worker.speed, *worker.usual);
  if (worker.active() && worker.slow_since_us >= 0) {
    set_slow(worker, worker.slow_since_us, worker.slow_factor);
  }
}

std::string StragglerWatch::text() const {
  std::string out;
  std::size_t shown = 0;
  for (const Rank rank : slow_) {
    if (shown++ == kRangesShownMax) {
      out += ", ...";
      break;
    }
    out += fmt::format("{}{} ({:.1f} times)", out.empty() ? "slow: " : ", ", rank,
                       roster_.at(rank).slow_factor);
  }
  return out;
}

}  // namespace syncd
