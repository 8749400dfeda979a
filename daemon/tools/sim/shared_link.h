// The link of a simulated parameter server: all transfers under way share it equally, as TCP
// streams nearly do, and each is as long as the others. One thread at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>

#include "daemon/core/engine/types.h"

namespace syncd::sim {

class SharedLink {
 public:
  // Of a whole transfer that has the link to itself.
  explicit SharedLink(Micros alone_us) : alone_us_(static_cast<double>(alone_us)) {}

  // The transfer that ends next: transfers are equal, so the oldest one. `order` is the number of
  // its start among equal times.
  struct Next {
    Micros at = 0;
    std::uint64_t order = 0;
    Rank worker = 0;
  };

  bool idle() const { return transfers_.empty(); }
  // Precondition: not idle. O(1).
  Next next() const {
    const Transfer& first = transfers_.front();
    const double left = (first.ends_at - progress_) * static_cast<double>(transfers_.size());
    // Ends are rounded up to microseconds: one may have been passed by a part of one.
    return {since_ + static_cast<Micros>(std::ceil(std::max(left, 0.0))), first.order,
            first.worker};
  }
  void start(Micros now, std::uint64_t order, Rank worker) {
    advance(now);
    transfers_.push_back({progress_ + alone_us_, order, worker});
  }
  // The one that ends next has ended. Precondition: not idle.
  void end(Micros now) {
    advance(now);
    transfers_.pop_front();
  }
  // The worker's transfer, if it has one, stops half-way. O(transfers).
  void cancel(Micros now, Rank worker) {
    advance(now);
    std::erase_if(transfers_, [&](const Transfer& t) { return t.worker == worker; });
  }

 private:
  struct Transfer {
    double ends_at = 0;  // in progress_
    std::uint64_t order = 0;
    Rank worker = 0;
  };

  void advance(Micros now) {
    if (!transfers_.empty()) {
      progress_ += static_cast<double>(now - since_) / static_cast<double>(transfers_.size());
    }
    since_ = now;
  }

  double alone_us_;
  double progress_ = 0;  // how far each transfer that was there all along has come, as alone_us_
  Micros since_ = 0;     // when progress_ was brought up to date
  std::deque<Transfer> transfers_;  // in the order of their starts and ends
};

}  // namespace syncd::sim
