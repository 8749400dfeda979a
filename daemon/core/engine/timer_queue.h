// Timers by key: at most one per key, O(log n) to set, move, cancel and fire. Fires in order of
// (time, key), so that equal times have one order. A heap whose entries know their places; what is
// known of a key stays until its job's timers are all cancelled, so that a worker that sets and
// cancels one in each iteration asks for no memory. One thread at a time.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/core/engine/record.h"
#include "daemon/core/engine/types.h"

namespace syncd {

struct TimerKey {
  JobId job = 0;
  std::int64_t rank = kNoRank;  // kNoRank: the job's own
  std::uint32_t kind = 0;       // below kPolicyTimerKinds the engine's, from there the policy's
  auto operator<=>(const TimerKey&) const = default;
};

inline constexpr std::uint32_t kTimerLiveness = 0;
inline constexpr std::uint32_t kTimerStart = 1;
inline constexpr std::uint32_t kTimerRestored = 2;
inline constexpr std::uint32_t kTimerWatch = 3;
inline constexpr std::uint32_t kTimerInspect = 4;
inline constexpr std::uint32_t kTimerCheckpoint = 5;
inline constexpr std::uint32_t kTimerIdle = 6;
inline constexpr std::uint32_t kPolicyTimerKinds = 16;

class TimerQueue {
 public:
  TimerQueue() = default;
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;

  void set(const TimerKey& key, Micros at) {
    OfJob* of_job = find(key.job);
    if (of_job == nullptr) of_job = &timers_[key.job];
    Timer& timer = (*of_job)[within_job(key)];
    timer.at = at;
    if (timer.place == kNotSet) {
      timer.key = key;
      timer.place = heap_.size();
      heap_.push_back(&timer);
    }
    sift(timer.place);
  }

  void cancel(const TimerKey& key) {
    OfJob* of_job = find(key.job);
    if (of_job == nullptr) return;
    const auto found = of_job->find(within_job(key));
    if (found != of_job->end()) take_out(found->second);
  }

  Micros next() const { return heap_.empty() ? kNever : heap_.front()->at; }

  // Takes the first timer that is due at `now`. False: none is.
  bool pop(Micros now, TimerKey& key) {
    if (heap_.empty() || next() > now) return false;
    key = heap_.front()->key;
    take_out(*heap_.front());
    return true;
  }

  // Those of one job, of this kind and above.
  void cancel_job(JobId job, std::uint32_t first_kind = 0) {
    OfJob* of_job = find(job);
    if (of_job == nullptr) return;
    for (auto& [within, timer] : *of_job) {
      if (timer.key.kind >= first_kind) take_out(timer);
    }
    if (first_kind != 0) return;
    latest_ = nullptr;
    timers_.erase(job);
  }

 private:
  static constexpr std::size_t kNotSet = SIZE_MAX;
  struct Timer {
    TimerKey key;
    Micros at = 0;
    std::size_t place = kNotSet;  // in heap_
  };
  using OfJob = std::unordered_map<std::uint64_t, Timer>;  // by what of the key is within the job

  // A rank has 32 bits and kNoRank is -1.
  static std::uint64_t within_job(const TimerKey& key) {
    return static_cast<std::uint64_t>(key.rank + 1) << 32 | key.kind;
  }
  static bool is_before(const Timer& one, const Timer& other) {
    return one.at != other.at ? one.at < other.at : one.key < other.key;
  }

  // Null: the job has none. Mostly it is the same job again.
  OfJob* find(JobId job) {
    if (latest_ != nullptr && job == latest_job_) return latest_;
    const auto found = timers_.find(job);
    if (found == timers_.end()) return nullptr;
    latest_job_ = job;
    return latest_ = &found->second;
  }
  void put(std::size_t place, Timer* timer) {
    heap_[place] = timer;
    timer->place = place;
  }
  // Moves the one at this place to where it belongs.
  void sift(std::size_t place) {
    Timer* timer = heap_[place];
    for (std::size_t parent; place > 0; place = parent) {
      parent = (place - 1) / 2;
      if (!is_before(*timer, *heap_[parent])) break;
      put(place, heap_[parent]);
    }
    for (std::size_t child; (child = 2 * place + 1) < heap_.size(); place = child) {
      if (child + 1 < heap_.size() && is_before(*heap_[child + 1], *heap_[child])) ++child;
      if (!is_before(*heap_[child], *timer)) break;
      put(place, heap_[child]);
    }
    put(place, timer);
  }
  void take_out(Timer& timer) {
    if (timer.place == kNotSet) return;
    const std::size_t place = std::exchange(timer.place, kNotSet);
    Timer* last = heap_.back();
    heap_.pop_back();
    if (last == &timer) return;
    put(place, last);
    sift(place);
  }

  // Their order decides nothing: timers fire in the heap's, and no two keys are equal.
  std::unordered_map<JobId, OfJob> timers_;
  OfJob* latest_ = nullptr;  // the one found last, of latest_job_
  JobId latest_job_ = 0;
  std::vector<Timer*> heap_;  // those that are set, the first in front
};

}  // namespace syncd
