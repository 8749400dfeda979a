// Keeps exceptions out of libuv, whose frames are C's: one that leaves a callback ends the loop,
// and run_loop() throws it to its caller. Each function is for the loop's own thread.
#pragma once

#include <uv.h>

#include <exception>
#include <utility>

namespace syncd::net {

// What a callback of this thread's loop has thrown. From then on no other one runs: what they work
// on may be between two states.
inline thread_local std::exception_ptr loop_failure;

template <class Work>
void run_guarded(uv_loop_t* loop, Work&& work) noexcept {
  if (loop_failure != nullptr) return;
  try {
    std::forward<Work>(work)();
  } catch (...) {
    loop_failure = std::current_exception();
    uv_stop(loop);
  }
}

inline uv_loop_t* loop_of(const uv_write_t* request) {
  return request->handle->loop;
}
template <class HandleOrWork>
uv_loop_t* loop_of(const HandleOrWork* handle) {
  return handle->loop;
}

// A callback for libuv out of a lambda that captures nothing: guarded([](uv_timer_t* timer) {...}).
template <class Callback>
class Guarded {
 public:
  template <class First, class... Others>
  using Function = void (*)(First*, Others...);

  template <class First, class... Others>
  operator Function<First, Others...>() const {  // NOLINT(google-explicit-constructor)
    return [](First* first, Others... others) {
      run_guarded(loop_of(first), [&] { Callback()(first, others...); });
    };
  }
};
template <class Callback>
Guarded<Callback> guarded(Callback) {
  return {};
}

// uv_run() until nothing is left. Throws what a callback has thrown; the loop and its handles are
// then as that callback has left them.
inline void run_loop(uv_loop_t* loop) {
  loop_failure = nullptr;
  uv_run(loop, UV_RUN_DEFAULT);
  if (loop_failure != nullptr) std::rethrow_exception(loop_failure);
}

// After run_loop() has thrown: closes every handle, and its socket, without any callback, so
// that clients see the end. What owns the handles must stay in memory.
void close_all_handles(uv_loop_t* loop);

}  // namespace syncd::net
