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

// "3 of 4 workers of host node-b are slow": more than half of them, and at least two. O(n).
std::string StragglerWatch::host_note(const Worker& worker, bool is_slow) const {
  std::uint32_t all = 1, slow = is_slow ? 1 : 0;
  for (const Rank rank : roster_.active()) {
    const Worker& other = roster_.at(rank);
    if (&other == &worker || other.host != worker.host) continue;
    ++all;
    if (other.slow_since_us >= 0) ++slow;
  }
  if (slow < 2 || 2 * slow <= all) return {};
  return fmt::format("{} of {} workers of host {} are slow", slow, all, worker.host);
}

void StragglerWatch::announce_verdict(Worker& worker, Iteration pushed) {
  const StragglerVerdict verdict = *std::exchange(verdict_, std::nullopt);
  const std::string note = host_note(worker, verdict.is_straggler);
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
    worker.slow_since_us = verdict.time_us - std::max<Micros>(verdict.span_us, 0);
    worker.slow_factor = verdict.factor;
    slow_.insert(worker.rank);
  } else {
    worker.slow_since_us = -1;
    worker.slow_factor = 0;
    slow_.erase(worker.rank);
  }
}

void StragglerWatch::forget(Worker& worker) {
  detector_.leave_out(worker.speed);
  worker.speed = {};
  worker.slow_since_us = -1;
  worker.slow_factor = 0;
  slow_.erase(worker.rank);
}

void StragglerWatch::restore(Worker& worker) {
  if (worker.usual) StragglerDetector::restore(worker.speed, *worker.usual);
  if (worker.active() && worker.slow_since_us >= 0) slow_.insert(worker.rank);
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
