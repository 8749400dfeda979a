// Thread-pool work; see the header.
#include "daemon/edge/server/background.h"

#include <exception>
#include <memory>
#include <utility>

#include "daemon/edge/net/loop_guard.h"

namespace syncd::server {

struct Background::Task {
  uv_work_t request{};
  Background* owner = nullptr;
  std::function<void()> work;
  std::function<void()> done;
  std::exception_ptr failure = nullptr;  // of `work`
};

void Background::run(std::function<void()> work, std::function<void()> done) {
  auto* task = new Task{{}, this, std::move(work), std::move(done)};
  task->request.data = task;
  ++outstanding_;
  // Fails only for a null callback.
  uv_queue_work(
      loop_, &task->request,
      [](uv_work_t* request) {
        auto* running = static_cast<Task*>(request->data);
        try {
          running->work();
        } catch (...) {
          running->failure = std::current_exception();
        }
      },
      net::guarded([](uv_work_t* request, int) {
        const std::unique_ptr<Task> finished(static_cast<Task*>(request->data));
        if (finished->failure) std::rethrow_exception(finished->failure);
        --finished->owner->outstanding_;
        finished->done();
      }));
}

}  // namespace syncd::server
