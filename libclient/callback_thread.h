// A thread that calls the caller's functions, started when the first is to be called: what they
// wait for (a lock of an interpreter, for instance) does not hold up the connection.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace syncd::client {

class CallbackThread {
 public:
  explicit CallbackThread(const char* name) : name_(name) {}
  CallbackThread(const CallbackThread&) = delete;
  CallbackThread& operator=(const CallbackThread&) = delete;
  ~CallbackThread() { stop(); }

  // So many wait at most, while one does not return.
  static constexpr std::size_t kWaitingMax = 1024;

  // Any thread. After those that were posted before; one more than kWaitingMax is dropped. False:
  // the system starts no thread now, or stop() was called; it is not called then.
  bool post(std::function<void()> call);
  // What has not begun is not called any more; waits for what has. Not on this thread.
  void stop() noexcept;

 private:
  void run();

  const char* name_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> calls_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace syncd::client
