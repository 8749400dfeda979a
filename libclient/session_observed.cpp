// Jobs under observation: a worker that exchanges for long says so. Same thread as the session.
#include <algorithm>

#include "libclient/session.h"

namespace syncd::client {
namespace {

constexpr TimeUs kSayEveryMinUs = 50'000;
constexpr TimeUs kSayEveryMaxUs = 1'000'000;

}  // namespace

// Well before it has waited for hang_after. -1: the daemon chooses that, and it is long.
void Session::observe(Worker& worker, TimeUs hang_after_us) {
  worker.say_every_us = hang_after_us == 0 ? 0
                        : hang_after_us < 0
                            ? kSayEveryMaxUs
                            : std::clamp(hang_after_us / 4, kSayEveryMinUs, kSayEveryMaxUs);
  if (worker.open) expect_exchange(worker);
}

// The mark makes no call: whether there is one is looked at from time to time.
void Session::expect_exchange(const Worker& worker) {
  if (worker.say_every_us > 0) say_at_us_ = std::min(say_at_us_, add(now_, worker.say_every_us));
}

void Session::say_exchanges() {
  say_at_us_ = kNever;
  for (auto& [id, worker] : workers_) {
    if (worker.say_every_us == 0 || !worker.open || worker.params.signals == nullptr) continue;
    expect_exchange(worker);
    if (worker.membership != Membership::kJoined || !link_.usable()) continue;
    const TimeUs for_us = worker.params.signals->exchanging_us(now_);
    if (for_us < worker.say_every_us / 4) continue;
    // Nobody waits for its answer.
    send(id, kSlots, wire::Exchanging{worker.ref, worker.granted, for_us});
  }
}

}  // namespace syncd::client
