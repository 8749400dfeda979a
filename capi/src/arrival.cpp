// See arrival.h.
#include "arrival.h"

#include <sys/eventfd.h>

#include <chrono>
#include <cstdint>
#include <utility>

namespace syncd::capi {

bool Arrival::start(std::shared_ptr<Arrival> self) {
  const std::lock_guard lock(mutex_);
  if (asked_.exchange(true)) return false;
  self_ = std::move(self);
  return true;
}

void Arrival::finish(client::Completion&& completion) noexcept {
  const std::shared_ptr<Arrival> self = std::move(self_);  // outlives the lock
  const std::lock_guard lock(mutex_);
  answer_ = std::move(completion);
  if (descriptor_) eventfd_write(descriptor_.get(), 1);
  answered_.notify_all();
}

std::optional<client::Completion> Arrival::take_locked() {
  if (!answer_) return std::nullopt;
  asked_ = false;
  eventfd_t count = 0;
  if (descriptor_) eventfd_read(descriptor_.get(), &count);
  return std::exchange(answer_, std::nullopt);
}

std::optional<client::Completion> Arrival::take() {
  const std::lock_guard lock(mutex_);
  return take_locked();
}

std::optional<client::Completion> Arrival::take_until(client::TimeUs deadline_us) {
  std::unique_lock lock(mutex_);
  while (!answer_) {
    if (deadline_us == client::kNever) {
      answered_.wait(lock);
      continue;
    }
    const client::TimeUs left_us = deadline_us - client::Driver::now_us();
    if (left_us <= 0) break;
    answered_.wait_for(lock, std::chrono::microseconds(left_us));
  }
  return take_locked();
}

int Arrival::descriptor() {
  const std::lock_guard lock(mutex_);
  if (!descriptor_) descriptor_.reset(::eventfd(answer_ ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK));
  return descriptor_.get();
}

void Arrival::close_descriptor() noexcept {
  const std::lock_guard lock(mutex_);
  descriptor_.reset();
}

}  // namespace syncd::capi
