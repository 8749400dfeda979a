// A begin that was asked for without waiting, and its answer once it has come. Written by whichever
// thread reads the answer, read by the worker's; the descriptor by anybody.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "libclient/driver.h"
#include "proto/base/file.h"

namespace syncd::capi {

class Arrival final : public client::Call {
 public:
  // Before it is submitted, which keeps `self` alive until the answer has come. False: one was
  // asked for already, and its answer was not taken yet.
  bool start(std::shared_ptr<Arrival> self);

  // Any thread, without the lock.
  bool asked() const { return asked_.load(std::memory_order_relaxed); }
  // The answer, if it is there: the next start() is for another one. Waits for it until
  // `deadline_us` (the driver's clock), or not at all.
  std::optional<client::Completion> take();
  std::optional<client::Completion> take_until(client::TimeUs deadline_us);

  // Becomes readable when there is an answer to take, and ceases to be when it is taken. -1, with
  // errno set, if the system has none left.
  int descriptor();
  // The descriptor is the system's again.
  void close_descriptor() noexcept;

 private:
  void finish(client::Completion&& completion) noexcept override;
  std::optional<client::Completion> take_locked();

  std::mutex mutex_;
  std::condition_variable answered_;
  std::atomic<bool> asked_{false};
  std::shared_ptr<Arrival> self_;  // while the client has it
  std::optional<client::Completion> answer_;
  UniqueFd descriptor_;
};

}  // namespace syncd::capi
