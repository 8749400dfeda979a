// See the header.
#include "daemon/edge/server/signals.h"

#include <sys/resource.h>

#include <csignal>

#include "daemon/edge/net/loop_guard.h"

namespace syncd::server {

void prepare_process() {
  std::signal(SIGPIPE, SIG_IGN);
  // A limit on the size of files is like a full disk, which the store outlives.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void Signals::listen(uv_loop_t* loop, std::initializer_list<int> numbers) {
  for (const int number : numbers) {
    uv_signal_t& handle = handles_.emplace_back();
    uv_signal_init(loop, &handle);
    handle.data = this;
    uv_signal_start(&handle, net::guarded([](uv_signal_t* signal, int which) {
      static_cast<Signals*>(signal->data)->on_signal_(which);
    }),
                    number);
  }
}

void Signals::close() {
  for (uv_signal_t& handle : handles_) uv_close(reinterpret_cast<uv_handle_t*>(&handle), nullptr);
}

}  // namespace syncd::server
