// Thread-pool work; see the header.
#include "daemon/server/background.h"

#include <memory>
#include <utility>

namespace syncd::server {

struct Background::Task {
  uv_work_t request{};
  Background* owner = nullptr;
  std::function<void()> work;
  std::function<void()> done;
};

void Background::run(std::function<void()> work, std::function<void()> done) {
  auto* task = new Task{{}, this, std::move(work), std::move(done)};
  task->request.data = task;
  ++outstanding_;
  // Fails only for a null callback.
  uv_queue_work(
      loop_, &task->request, [](uv_work_t* request) { static_cast<Task*>(request->data)->work(); },
      [](uv_work_t* request, int) {
        const std::unique_ptr<Task> finished(static_cast<Task*>(request->data));
        --finished->owner->outstanding_;
        finished->done();
      });
}

}  // namespace syncd::server
