// How far apart the iterations of two workers can ever be (Hop, table 1). Pure functions; any
// thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/topology/graph.h"

namespace syncd::topology {

// What lets a worker enter its next iteration.
struct GapSetting {
  enum class Kind : std::uint8_t {
    kStandard,   // the update of the last iteration from every in-neighbour
    kStaleness,  // one at most `staleness` iterations old from every in-neighbour
    kBackup,     // all updates of the last iteration but some
    kHybrid,     // backup and staleness together
    kNotifyAck,  // standard, and the last update sent was consumed by every out-neighbour
  };
  Kind kind = Kind::kStandard;
  std::int64_t staleness = 0;  // iterations; kStaleness only
};

// No job comes near these; with them no bound can overflow.
inline constexpr std::int64_t kStalenessMax = 1'000'000'000;
inline constexpr std::int64_t kMaxIgMax = 1'000'000'000;

// "standard", "staleness:S", "backup", "hybrid" or "notify_ack". Empty: `error` says what is wrong
// and what is allowed.
std::optional<GapSetting> parse_gap_setting(std::string_view text, std::string& error);

// "standard, staleness:S, ...": for messages and --help.
const char* known_gap_settings();

// A bound for every pair of workers.
class GapBounds {
 public:
  explicit GapBounds(std::size_t size) : size_(size), bounds_(size * size) {}
  std::size_t size() const { return size_; }
  // The most that c_i - c_j can be, in iterations; empty: it is not bounded.
  std::optional<std::int64_t>& operator()(Node i, Node j) { return bounds_[i * size_ + j]; }
  const std::optional<std::int64_t>& operator()(Node i, Node j) const {
    return bounds_[i * size_ + j];
  }

 private:
  std::size_t size_;
  std::vector<std::optional<std::int64_t>> bounds_;
};

// Hop, table 1 and theorems 1 and 2, for workers that stay the same. With |P(j->i)| for the length
// of the shortest path from j to i, c_i - c_j is at most
//   standard |P(j->i)|; staleness (s + 1) |P(j->i)|; backup and hybrid unbounded;
//   notify_ack min(|P(j->i)|, 2 |P(i->j)|);
// and with token queues, which `max_ig` says there are, also at most max_ig |P(i->j)|.
// Preconditions: 1 <= max_ig <= kMaxIgMax, and no max_ig with kNotifyAck, which has no token
// queues. Takes 20 n^2 bytes; O(n (n + m)).
GapBounds gap_bounds(const Graph& graph, const GapSetting& setting,
                     std::optional<std::int64_t> max_ig = std::nullopt);

}  // namespace syncd::topology
