// A member's lease, on which its leader keys hang: until when the member may grant. The clocks are
// read by the caller: at the start of each turn, and before anything leaves. No I/O; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "daemon/core/engine/types.h"

namespace syncd::cluster {

// CLOCK_BOOTTIME, which a paused virtual machine stops, and CLOCK_REALTIME, which is set.
struct Clocks {
  Micros boot = 0;
  Micros real = 0;
};

class Lease {
 public:
  explicit Lease(Micros asked) : asked_(asked) {}

  // Takes note that the lease's grant or a keep-alive is sent now, before it is, and gives the
  // number that its answer is known by. Nothing: the answer to one is outstanding.
  std::optional<std::uint64_t> send(const Clocks& now) {
    if (outstanding_) return std::nullopt;
    outstanding_ = now;
    return ++number_;
  }
  // The stream is given up: its answer is dropped when it comes.
  void abandon() { outstanding_.reset(); }
  // TTL as etcd says it, 0 or less where there is no such lease: it is not renewed.
  void on_answer(std::uint64_t number, Micros ttl) {
    if (!outstanding_ || number != number_) return;
    if (ttl > 0 && !lost_) {
      counts_from_ = outstanding_;
      span_ = std::min(ttl, asked_);
    } else {
      lost_ = true;
    }
    outstanding_.reset();
  }

  // For how long the member may grant; 0: it may not, and is deposed for all shards.
  Micros left(const Clocks& now) const {
    if (!counts_from_ || lost_) return 0;
    return std::max<Micros>(span_ - span_ / 10 - advance(*counts_from_, now), 0);
  }
  bool may_grant(const Clocks& now) const { return left(now) > 0; }
  // A third of the lease has passed since the last one that counts was sent, or there was none.
  bool is_due(const Clocks& now) const {
    return !outstanding_ && (!counts_from_ || advance(*counts_from_, now) >= asked_ / 3);
  }
  // etcd has said so. Another one is asked for.
  bool is_lost() const { return lost_; }

 private:
  static Micros advance(const Clocks& from, const Clocks& to) {
    return std::max(to.boot - from.boot, to.real - from.real);
  }

  Micros asked_;
  std::optional<Clocks> outstanding_;  // when it was sent
  std::optional<Clocks> counts_from_;
  Micros span_ = 0;
  std::uint64_t number_ = 0;
  bool lost_ = false;
};

}  // namespace syncd::cluster
