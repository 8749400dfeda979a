// See the header.
#include "daemon/edge/net/loop_guard.h"

#include <unistd.h>

namespace syncd::net {

void close_all_handles(uv_loop_t* loop) {
  // Of a failure outside the loop, whose callbacks are not called either.
  if (loop_failure == nullptr) loop_failure = std::current_exception();
  const auto close = [](uv_handle_t* handle, void*) {
    if (uv_is_closing(handle) != 0) return;
    // libuv closes the sockets that it was given; of those that it polls it knows the number.
    uv_os_fd_t polled = -1;
    if (handle->type == UV_POLL && uv_fileno(handle, &polled) != 0) polled = -1;
    uv_close(handle, nullptr);
    if (polled >= 0) ::close(polled);
  };
  uv_walk(loop, close, nullptr);
  // Callbacks that are still due return at once.
  uv_run(loop, UV_RUN_DEFAULT);
}

}  // namespace syncd::net
