// See lease_keeper.h.
#include "daemon/edge/cluster/lease_keeper.h"

#include <chrono>
#include <utility>

#include "proto/base/clock.h"

namespace syncd::cluster {
namespace {

// Longer than any read of the log, and than the start of a store takes.
constexpr Micros kHeldMax = 90'000'000;

}  // namespace

Clocks read_clocks() {
  return {clock_ns(CLOCK_BOOTTIME) / 1000, clock_ns(CLOCK_REALTIME) / 1000};
}

Micros LeaseKeeper::boot_us() {
  return clock_ns(CLOCK_BOOTTIME) / 1000;
}

LeaseKeeper::LeaseKeeper(Options options, LeaseId id, Etcd& etcd)
    : options_(std::move(options)),
      id_(id),
      etcd_(etcd),
      turned_us_(boot_us()),
      lease_(options_.lease),
      thread_([this] { run(); }) {}

LeaseKeeper::~LeaseKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake_.notify_one();
  }
  thread_.join();
}

Micros LeaseKeeper::left() const {
  const std::lock_guard lock(mutex_);
  return lease_.left(read_clocks());
}

bool LeaseKeeper::is_lost() const {
  const std::lock_guard lock(mutex_);
  return lease_.is_lost();
}

std::string LeaseKeeper::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

void LeaseKeeper::hold(bool held) {
  turned();
  held_.store(held);
}

bool LeaseKeeper::loop_turns() const {
  const Micros allowed = held_.load() ? kHeldMax : options_.lease / 3;
  return boot_us() - turned_us_.load() < allowed;
}

Etcd::LeaseAnswer LeaseKeeper::ask(bool granted) {
  // At most a sixth: an endpoint that is silent is left for the next one.
  const Micros timeout = options_.lease / 6;
  Etcd::LeaseAnswer answer;
  if (!granted) {
    answer = etcd_.grant(id_, options_.lease, timeout);
    const std::string why = answer.error;
    // A grant whose answer was lost shows itself as a lease that can be kept alive.
    if (!answer.known) answer = etcd_.keep_alive(id_, timeout);
    if (answer.known && answer.ttl <= 0) answer = {false, 0, 0, why};
  } else {
    answer = etcd_.keep_alive(id_, timeout);
  }
  if (answer.known && answer.ttl <= 0) answer.error = "etcd has ended the lease";
  if (!answer.known || answer.ttl <= 0) return answer;
  const Transaction read{{}, {{Op::Kind::kGet, options_.read_key}}, {}};
  const Answer confirmed = etcd_.transact(read, 0, timeout);
  if (confirmed.kind != Answer::Kind::kThen) {
    return {false, 0, 0, "a read that confirms a keep-alive failed: " + confirmed.error};
  }
  if (confirmed.raft_term == answer.raft_term) return answer;
  return {false, 0, 0, "etcd's own leader changed while a keep-alive was confirmed"};
}

void LeaseKeeper::run() {
  bool granted = false;
  const std::chrono::microseconds look_every(options_.lease / 20);
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!lease_.is_lost() && lease_.is_due(read_clocks())) {
      if (!loop_turns()) {
        problem_ = "the daemon's loop has not turned for a third of the lease";
      } else if (const auto number = lease_.send(read_clocks())) {
        lock.unlock();
        const Etcd::LeaseAnswer answer = ask(granted);
        lock.lock();
        problem_ = answer.error;
        if (answer.known) {
          granted = true;
          lease_.on_answer(*number, answer.ttl);
        } else {
          lease_.abandon();
        }
      }
    }
    wake_.wait_for(lock, look_every);
  }
}

}  // namespace syncd::cluster
