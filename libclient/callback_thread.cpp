// See callback_thread.h.
#include "libclient/callback_thread.h"

#include <pthread.h>

#include <string>
#include <utility>

#include "proto/base/thread.h"

namespace syncd::client {

bool CallbackThread::post(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  std::string error;
  if (stopping_) return false;
  if (!thread_.joinable() && !start_without_signals(
                                 thread_, [this] { run(); }, error)) {
    return false;
  }
  if (calls_.size() >= kWaitingMax) return true;
  calls_.push_back(std::move(call));
  posted_.notify_one();
  return true;
}

void CallbackThread::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    posted_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void CallbackThread::run() {
  pthread_setname_np(pthread_self(), name_);
  std::unique_lock lock(mutex_);
  while (true) {
    posted_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
    if (stopping_) return;
    const std::function<void()> call = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    call();
    lock.lock();
  }
}

}  // namespace syncd::client
