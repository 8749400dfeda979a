// What of the operating system a daemon's process sets up, and signals as calls on a libuv loop.
// Loop thread.
#pragma once

#include <uv.h>

#include <functional>
#include <initializer_list>
#include <list>

namespace syncd::server {

// Signals of failing writes are errors of these instead, and as many descriptors may be open as the
// system allows: one per connection.
void prepare_process();

class Signals {
 public:
  explicit Signals(std::function<void(int number)> on_signal) : on_signal_(std::move(on_signal)) {}
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  void listen(uv_loop_t* loop, std::initializer_list<int> numbers);
  // The object may be destroyed when the loop has closed the handles.
  void close();

 private:
  const std::function<void(int)> on_signal_;
  std::list<uv_signal_t> handles_;
};

}  // namespace syncd::server
