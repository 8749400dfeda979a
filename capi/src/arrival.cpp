// See arrival.h.
#include "arrival.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "libclient/driver.h"

namespace syncd::capi {
namespace {

// Neither can fail: the counter is 0 or 1, and the descriptor ours.
void raise(int descriptor) {
  const std::uint64_t one = 1;
  if (descriptor >= 0) static_cast<void>(!::write(descriptor, &one, sizeof one));
}
void lower(int descriptor) {
  std::uint64_t count = 0;
  if (descriptor >= 0) static_cast<void>(!::read(descriptor, &count, sizeof count));
}

}  // namespace

// Nobody else has it, so that the lock is not needed; in a child of fork() it may be held for ever.
Arrival::~Arrival() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool Arrival::start() {
  const std::lock_guard lock(mutex_);
  return !asked_.exchange(true);
}

void Arrival::withdraw() {
  const std::lock_guard lock(mutex_);
  asked_ = false;
}

void Arrival::finish(client::Completion completion) noexcept {
  const std::lock_guard lock(mutex_);
  answer_ = std::move(completion);
  raise(descriptor_);
  answered_.notify_all();
}

std::optional<client::Completion> Arrival::take_locked() {
  if (!answer_) return std::nullopt;
  asked_ = false;
  lower(descriptor_);
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
  if (descriptor_ < 0) {
    descriptor_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (answer_) raise(descriptor_);
  }
  return descriptor_;
}

void Arrival::close_descriptor() noexcept {
  const std::lock_guard lock(mutex_);
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

}  // namespace syncd::capi
