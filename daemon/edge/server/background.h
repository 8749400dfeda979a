// Work that would take too long on the loop, on libuv's thread pool. Owned and called by the loop
// thread; `work` runs on a pool thread, `done` on the loop thread again.
#pragma once

#include <uv.h>

#include <cstddef>
#include <functional>

namespace syncd::server {

class Background {
 public:
  explicit Background(uv_loop_t* loop) : loop_(loop) {}
  ~Background() = default;  // its owner checks that outstanding() is 0
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // `work` must touch nothing that the loop thread may change meanwhile. Every `work` runs, and its
  // `done` is called exactly once; where `work` has thrown, the loop ends with that instead.
  void run(std::function<void()> work, std::function<void()> done);
  std::size_t outstanding() const { return outstanding_; }

 private:
  struct Task;
  uv_loop_t* loop_;
  std::size_t outstanding_ = 0;
};

}  // namespace syncd::server
