// Job: views, and rounds of workers that train together. Runs on the engine's thread.
#include "daemon/core/engine/job.h"

namespace syncd {

void Job::on(const Caller& caller, const wire::Arrive& arrive) {
  if (answers_.check(caller, arrive.worker) == nullptr) return;
  answers_.refuse(caller, Status::kUnsupported, "job '{}' has no views: begin without data",
                  spec_.name);
}

void Job::on(const Caller& caller, const wire::ViewRequest& request) {
  if (answers_.check(caller, request.worker) == nullptr) return;
  answers_.refuse(caller, Status::kUnsupported, "job '{}' has no views", spec_.name);
}

void Job::exclude(const Caller& caller, const wire::ExcludeRequest&) {
  answers_.refuse(caller, Status::kUnsupported,
                  "job '{}' has policy '{}': hosts can be excluded only under gather", spec_.name,
                  loop_.policy().name());
}

}  // namespace syncd
