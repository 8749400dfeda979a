// The connections of a job's workers, and whether those that close are exits of processes: where
// many close within a second, something between (a proxy that is loaded anew) has closed them. One
// thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>

#include "daemon/core/engine/types.h"

namespace syncd {

class ConnectionEnds {
 public:
  static constexpr Micros kTogetherUs = 1'000'000;
  // So many may close together and still be exits, or a quarter of the job's if that is more.
  static constexpr std::size_t kFewMost = 2;

  // A worker speaks over this connection now, or no longer. 0: none.
  void attach(ConnectionId connection) {
    if (connection != 0) ++workers_[connection];
  }
  void detach(ConnectionId connection) {
    const auto it = workers_.find(connection);
    if (it != workers_.end() && --it->second == 0) workers_.erase(it);
  }

  // The other side has closed this one. True: with so many others that its workers may live.
  bool closed(ConnectionId connection, Micros now) {
    while (!latest_.empty() && now - latest_.front().at > kTogetherUs) latest_.pop_front();
    if (latest_.empty() || latest_.back().connection != connection) {
      latest_.push_back({now, connection});
    }
    const std::size_t others = workers_.size() - workers_.count(connection);
    return latest_.size() > std::max(kFewMost, (others + latest_.size()) / 4);
  }

 private:
  struct End {
    Micros at;
    ConnectionId connection;
  };
  std::map<ConnectionId, std::uint32_t> workers_;  // how many speak over each
  std::deque<End> latest_;                         // within kTogetherUs
};

}  // namespace syncd
