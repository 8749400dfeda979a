// The variants of ZipLine that go through the ends in the order of time, and the grid scans that
// they were measured against (ElasticBSP paper, section 5).
#include <cstdlib>
#include <deque>

#include "daemon/core/planners/zipline_parts.h"

namespace syncd::planners {

namespace {

// Keeps the first of the least waits that it is offered.
class Best {
 public:
  void offer(Micros time, Micros earliest) {
    if (any_ && time - earliest >= barrier_.wait) return;
    any_ = true;
    barrier_ = {time, time - earliest};
  }
  bool any() const { return any_; }
  Barrier barrier() const { return barrier_; }

 private:
  bool any_ = false;
  Barrier barrier_;
};

struct Picked {
  Micros time;
  std::uint32_t worker;
};

bool operator<(const Picked& a, const Picked& b) {
  return std::tie(a.time, a.worker) < std::tie(b.time, b.worker);
}

// The picked ends Z, at most one per worker, oldest first. Taking one out moves the shorter side;
// mostly the older one, for the worker that ends next ended long ago.
using PickedQueue = std::deque<Picked>;

// Z in time order. `find(queue, worker)` returns the worker's present end, if it has one. A new end
// can only lessen the wait if it replaces the oldest (theorem 3).
// `seen` counts each worker's ends before the present one where it has an entry for each.
template <class Find>
Barrier scan_in_order(const EndTimes& ends, std::span<std::uint32_t> seen, Find&& find) {
  PickedQueue picked;
  Best best;
  TimeOrder(MatrixRows(ends)).each([&](Micros time, std::uint32_t worker) {
    const bool complete = picked.size() == ends.workers();
    const bool oldest = complete && picked.front().worker == worker;
    if (oldest) {
      picked.pop_front();
    } else if (const auto old = find(picked, worker); old != picked.end()) {
      picked.erase(old);
    }
    picked.push_back({time, worker});
    if (!seen.empty()) ++seen[worker];
    const bool now_complete = !complete && picked.size() == ends.workers();
    if (oldest || now_complete) best.offer(time, picked.front().time);
  });
  return best.barrier();
}

}  // namespace

// Section 5.1, algorithm 1. Every end of the worker that ends first is designated in turn, with
// everybody else's nearest end. O(R^2 n).
ZiplinePlan grid_scan(const EndTimes& ends) {
  std::size_t designated = 0;
  for (std::size_t p = 1; p < ends.workers(); ++p) {
    if (ends.row(p).front() < ends.row(designated).front()) designated = p;
  }
  Best best;
  std::vector<std::uint32_t> picks(ends.workers());
  ZiplinePlan plan;
  for (const Micros end : ends.row(designated)) {
    Micros earliest = end;
    Micros latest = end;
    for (std::size_t p = 0; p < ends.workers(); ++p) {
      const std::span<const Micros> row = ends.row(p);
      std::size_t nearest = 0;
      for (std::size_t j = 1; j < row.size(); ++j) {
        if (std::abs(row[j] - end) < std::abs(row[nearest] - end)) nearest = j;
      }
      picks[p] = static_cast<std::uint32_t>(nearest + 1);
      earliest = std::min(earliest, row[nearest]);
      latest = std::max(latest, row[nearest]);
    }
    if (best.any() && latest - earliest >= best.barrier().wait) continue;
    best.offer(latest, earliest);
    plan.iterations = picks;
  }
  plan.sync_time = best.barrier().time;
  plan.wait = best.barrier().wait;
  plan.algorithm = ZiplineAlgorithm::kGridScan;
  return plan;
}

// Section 5.1. Every end of every worker is designated in turn, with everybody else's latest end
// at or before it: the nearest end, as in the paper, misses the optimum for some inputs of four
// workers or more. Two rows at a time are gone through side by side: O(R n^2), the paper's listing
// O(R^2 n^2).
Barrier full_grid_scan(const EndTimes& ends) {
  constexpr Micros kNone = -kTimeMax - 1;
  Barrier best;
  bool any = false;
  std::vector<Micros> earliest;  // for each end of the designated row: the earliest pick
  for (std::size_t p = 0; p < ends.workers(); ++p) {
    const std::span<const Micros> designated = ends.row(p);
    earliest.assign(designated.begin(), designated.end());
    for (std::size_t other = 0; other < ends.workers(); ++other) {
      const std::span<const Micros> row = ends.row(other);
      std::size_t gone_by = 0;
      for (std::size_t j = 0; j < designated.size(); ++j) {
        while (gone_by < row.size() && row[gone_by] <= designated[j]) ++gone_by;
        earliest[j] = gone_by == 0 ? kNone : std::min(earliest[j], row[gone_by - 1]);
      }
    }
    for (std::size_t j = 0; j < designated.size(); ++j) {
      if (earliest[j] == kNone) continue;
      const Barrier here{designated[j], designated[j] - earliest[j]};
      if (any && std::tie(here.wait, here.time) >= std::tie(best.wait, best.time)) continue;
      any = true;
      best = here;
    }
  }
  return best;
}

// Section 5.2, algorithm 2. Z in no order: each new end is put in the place of the same worker's
// older one, and the earliest end is looked for anew. O(R n^2).
Barrier zipline(const EndTimes& ends) {
  std::vector<Picked> picked;
  picked.reserve(ends.workers());
  Best best;
  TimeOrder(MatrixRows(ends)).each([&](Micros time, std::uint32_t worker) {
    const auto old = std::find_if(picked.begin(), picked.end(),
                                  [&](const Picked& one) { return one.worker == worker; });
    if (old == picked.end()) {
      picked.push_back({time, worker});
    } else {
      old->time = time;
    }
    if (picked.size() < ends.workers()) return;
    Micros earliest = time;
    for (const Picked& one : picked) earliest = std::min(earliest, one.time);
    best.offer(time, earliest);
  });
  return best.barrier();
}

// Section 5.3.1. The end to replace is looked for from the oldest on. O(R n) to O(R n^2).
Barrier zipline_opt(const EndTimes& ends) {
  return scan_in_order(ends, {}, [](PickedQueue& picked, std::uint32_t worker) {
    return std::find_if(picked.begin(), picked.end(),
                        [&](const Picked& one) { return one.worker == worker; });
  });
}

// Section 5.3.2. The time of the end to replace is known from the matrix, so that it is found in
// O(log n); those of one time lie in the order of workers.
Barrier zipline_opt_bs(const EndTimes& ends) {
  std::vector<std::uint32_t> seen(ends.workers());  // ends of each worker gone by before this one
  return scan_in_order(ends, seen, [&](PickedQueue& picked, std::uint32_t worker) {
    if (seen[worker] == 0) return picked.end();
    const Picked old{ends.row(worker)[seen[worker] - 1], worker};
    return std::lower_bound(picked.begin(), picked.end(), old);
  });
}

// A linked list through one node per worker, oldest pick first: taking a worker's pick out and
// putting its new one at the end are a few assignments. O(R n) after the sort.
Barrier zipline_linked(std::size_t workers, const TimeOrder& order) {
  struct Node {
    Micros time;
    std::uint32_t before;
    std::uint32_t after;
  };
  const auto head = static_cast<std::uint32_t>(workers);  // of the ring
  std::vector<Node> nodes(workers + 1);
  // Not picked yet: a node that is its own neighbour can be taken out without a question.
  for (std::uint32_t p = 0; p <= head; ++p) nodes[p] = {0, p, p};
  std::size_t missing = workers;
  Best best;
  order.each([&](Micros time, std::uint32_t worker) {
    Node& node = nodes[worker];
    const bool first = node.after == worker;
    const bool oldest = node.before == head;
    nodes[node.before].after = node.after;
    nodes[node.after].before = node.before;
    const std::uint32_t tail = nodes[head].before;
    node = {time, tail, head};
    nodes[tail].after = worker;
    nodes[head].before = worker;
    missing -= first ? 1 : 0;
    // By theorem 3 only these can lessen the wait.
    if (missing == 0 && (oldest || first)) best.offer(time, nodes[nodes[head].after].time);
  });
  return best.barrier();
}

}  // namespace syncd::planners
