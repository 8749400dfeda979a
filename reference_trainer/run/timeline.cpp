// The choice of a window: see timeline.h. No thread of its own.
#include "reference_trainer/run/timeline.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "daemon/core/policies/registry.h"
#include "reference_trainer/run/run_board.h"

namespace syncd::trainer {
namespace {

constexpr std::int64_t kFirstLookUs = 500'000;
constexpr std::size_t kWindowsMax = 5;  // with a quarter between them: the last two thirds of a run

struct Window {
  std::int64_t start_us = 0;
  std::int64_t end_us = 0;
};

std::int64_t middle_of(std::int64_t start_us, std::int64_t end_us) {
  return start_us + (end_us - start_us) / 2;
}

// How long an iteration takes the average worker, or 0. Only whole ones count, whatever they were
// made of: one minibatch or several, and some of them for nothing.
std::int64_t mean_iteration_us(const SpanRecord& record) {
  std::int64_t iterations = 0;
  std::int64_t workers = 0;
  for (const auto& spans : record.workers) {
    if (!spans.empty()) ++workers;
    std::int64_t latest = -1;
    for (const Span& span : spans) {
      const bool is_known = span.start_us >= record.start_us && span.end_us <= record.end_us;
      const bool is_minibatch = span.kind == SpanKind::kComputing || span.kind == SpanKind::kWasted;
      if (!is_minibatch || !is_known || span.iteration == latest) continue;
      latest = span.iteration;
      ++iterations;
    }
  }
  return iterations > 0 ? (record.end_us - record.start_us) * workers / iterations : 0;
}

// The superstep around the middle, and its neighbours while they fit into the wanted length.
Window superstep_window(const std::vector<std::int64_t>& barriers, std::int64_t middle_us,
                        std::int64_t wanted_us) {
  std::size_t first = 0;
  const auto distance = [&](std::size_t i) {
    return std::abs(middle_of(barriers[i], barriers[i + 1]) - middle_us);
  };
  for (std::size_t i = 1; i + 1 < barriers.size(); ++i) {
    if (distance(i) < distance(first)) first = i;
  }
  std::size_t last = first + 1;
  while (last + 1 < barriers.size() && barriers[last + 1] - barriers[first] <= wanted_us) ++last;
  while (first > 0 && barriers[last] - barriers[first - 1] <= wanted_us) --first;
  return {barriers[first], barriers[last]};
}

// Where something was started over, dropped or jumped over, nearest to the middle, with room for
// half a window on both sides; or the middle.
std::int64_t event_near(const SpanRecord& record, std::int64_t middle_us, std::int64_t room_us) {
  std::int64_t nearest_us = middle_us;
  bool any = false;
  for (const auto& spans : record.workers) {
    for (const Span& span : spans) {
      const bool is_event =
          span.kind == SpanKind::kWasted || (span.flags & (kSpanLate | kSpanSkip)) != 0;
      if (!is_event || span.end_us - room_us < record.start_us ||
          span.end_us + room_us > record.end_us) {
        continue;
      }
      if (!any || std::abs(span.end_us - middle_us) < std::abs(nearest_us - middle_us)) {
        nearest_us = span.end_us;
        any = true;
      }
    }
  }
  return nearest_us;
}

// What overlaps with the window; computing that came to nothing marked as such; moments relative to
// the origin.
std::vector<Span> cut(const std::vector<Span>& spans, Window window, std::int64_t origin_us) {
  std::set<std::int64_t> late;
  for (const Span& span : spans) {
    if ((span.flags & kSpanLate) != 0) late.insert(span.iteration);
  }
  std::vector<Span> result;
  for (Span span : spans) {
    if (span.end_us < window.start_us || span.start_us > window.end_us) continue;
    if (span.kind == SpanKind::kComputing && late.contains(span.iteration)) {
      span.kind = SpanKind::kWasted;
    }
    span.start_us -= origin_us;
    span.end_us -= origin_us;
    result.push_back(span);
  }
  return result;
}

}  // namespace

std::vector<std::int64_t> barrier_moments(const std::vector<std::vector<Span>>& workers) {
  std::vector<std::pair<std::int64_t, std::size_t>> grants;
  for (std::size_t worker = 0; worker < workers.size(); ++worker) {
    for (const Span& span : workers[worker]) {
      if ((span.flags & kSpanBarrier) != 0) grants.emplace_back(span.end_us, worker);
    }
  }
  std::sort(grants.begin(), grants.end());
  std::vector<std::int64_t> moments;
  std::set<std::size_t> released;
  for (const auto& [moment_us, worker] : grants) {
    if (moments.empty() || released.contains(worker)) {
      moments.push_back(moment_us);
      released.clear();
    }
    released.insert(worker);
  }
  return moments;
}

std::int64_t superstep_of(std::string_view policy) {
  return traits_or_none(policy).barrier_every;
}

void mark_supersteps(SpanRecord& record, std::int64_t superstep) {
  if (superstep <= 0) return;
  for (auto& spans : record.workers) {
    for (Span& span : spans) {
      const bool ends_with_grant = span.kind == SpanKind::kWaiting;
      if (ends_with_grant && span.iteration % superstep == 0) span.flags |= kSpanBarrier;
    }
  }
}

Timeline choose_window(const SpanRecord& record, std::int64_t middle_us, std::int64_t origin_us) {
  const std::int64_t iteration_us = mean_iteration_us(record);
  if (iteration_us <= 0 || record.end_us <= record.start_us) return {};
  const std::int64_t wanted_us =
      std::min(kTimelineIterations * iteration_us, record.end_us - record.start_us);
  std::vector<std::int64_t> barriers = barrier_moments(record.workers);
  std::erase_if(barriers, [&](std::int64_t moment_us) {
    return moment_us < record.start_us || moment_us > record.end_us;
  });
  Timeline timeline;
  Window window;
  if (barriers.size() >= 2) {
    timeline.is_superstep = true;
    window = superstep_window(barriers, middle_us, wanted_us);
  } else {
    window.start_us = std::clamp(event_near(record, middle_us, wanted_us / 2) - wanted_us / 2,
                                 record.start_us, record.end_us - wanted_us);
    window.end_us = window.start_us + wanted_us;
  }
  timeline.start_us = window.start_us - origin_us;
  timeline.end_us = window.end_us - origin_us;
  for (const std::int64_t moment_us : barriers) {
    if (moment_us < window.start_us || moment_us > window.end_us) continue;
    timeline.barriers_us.push_back(moment_us - origin_us);
  }
  for (const auto& spans : record.workers)
    timeline.workers.push_back(cut(spans, window, origin_us));
  return timeline;
}

void TimelineRecorder::look(const RunBoard& board, std::int64_t started_us, std::int64_t now_us) {
  if (started_us == 0 || now_us - started_us < std::max(next_look_us_, kFirstLookUs)) return;
  next_look_us_ = (now_us - started_us) * 5 / 4;
  Timeline window = choose_window(record_of(board, started_us, now_us), now_us, started_us);
  if (window.empty()) return;
  if (windows_.size() == kWindowsMax) windows_.erase(windows_.begin());
  windows_.push_back(std::move(window));
}

// What the rings hold of all workers. A worker that still runs is known up to the end of its latest
// span; one whose ring is full, from the beginning of its oldest one.
SpanRecord TimelineRecorder::record_of(const RunBoard& board, std::int64_t started_us,
                                       std::int64_t now_us) const {
  SpanRecord record{.start_us = started_us, .end_us = now_us, .workers = {}};
  std::int64_t known_until_us = now_us;
  for (int worker = 0; worker < board.workers(); ++worker) {
    const WorkerSlot& slot = board.slot(worker);
    const bool is_full = slot.spans.is_full();
    record.workers.push_back(slot.spans.read());
    const std::vector<Span>& spans = record.workers.back();
    if (spans.empty()) continue;
    if (is_full) record.start_us = std::max(record.start_us, spans.front().start_us);
    if (!slot.has_ended()) known_until_us = std::min(known_until_us, spans.back().end_us);
  }
  if (known_until_us > record.start_us) record.end_us = known_until_us;
  mark_supersteps(record, superstep_);
  return record;
}

Timeline TimelineRecorder::finish(const RunBoard& board, std::int64_t started_us,
                                  std::int64_t ended_us) {
  if (started_us == 0) return {};
  const std::int64_t middle_us = middle_of(started_us, ended_us);
  Timeline best = choose_window(record_of(board, started_us, ended_us), middle_us, started_us);
  const auto distance = [&](const Timeline& window) {
    return std::abs(middle_of(window.start_us, window.end_us) - (middle_us - started_us));
  };
  for (Timeline& window : windows_) {
    if (best.empty() || distance(window) < distance(best)) best = std::move(window);
  }
  return best;
}

}  // namespace syncd::trainer
