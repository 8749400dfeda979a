// When a worker that computes gains most by pulling again, from when the others are expected to
// push: SpecSync by forecast. Where workers push in clusters, one that pulls just after a cluster
// misses less of the next; restarts keep the clusters together. One job's; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "daemon/core/engine/types.h"

namespace syncd::planners {

class PushForecast {
 public:
  // A push is expected at `due`, after `span` of computing, both in microseconds. The key takes it
  // back, once. O(log of spans / kParts).
  Micros add(Micros due, Micros span);
  void remove(Micros key);

  // A worker that computes since its pull, of an iteration that takes `span` >= 1.
  struct View {
    Micros now = 0;
    Micros pull = 0;
    Micros span = 0;
    std::int64_t seen = 0;    // pushes by others since the pull
    std::int64_t others = 1;  // workers beside it; more pushes than these count as these
    Micros own_key = kNever;  // of its own expected push
  };
  // The time t >= now at which it should pull again: that of the greatest
  //     (pushes by others in (pull, t]) / others  -  price * (t - pull) / span,
  // with those foreseen that are still to come. Nothing: it is positive nowhere. `price` >= 1: the
  // share of all updates that a restart must bring for each share of an iteration that it throws
  // away. A push that is overdue, or due within 1 / kLate of a span, counts as coming then. A
  // push that is overdue by more than 1 / kLost of a span does not: its worker is held up.
  // O(keys within span / price).
  std::optional<Micros> best(const View& view, double price) const;

 private:
  static constexpr std::int64_t kParts = 512;  // of a span, within which pushes count as one time
  static constexpr std::int64_t kLate = 32;
  static constexpr std::int64_t kLost = 8;

  std::map<Micros, std::int64_t> due_;  // how many, by key
};

// The lowest price at which clusters hold together, from how long iterations are and by how much
// forecasts of them are off, both means in the same unit: the less they are off, the denser a
// cluster, and the more a restart brings for what it costs.
double forecast_price(double span, double error);

}  // namespace syncd::planners
