// A copy of the store. Loop thread; another one copies.
#include <memory>
#include <utility>

#include "daemon/edge/server/server.h"

namespace syncd::server {

// Refused here what must not reach the disk: a path that depends on where the daemon was started.
void Server::handle(const Caller& caller, const wire::CheckpointRequest& request) {
  const std::string& path = request.path;
  if (path.empty() || path.front() != '/' || path.find('\0') != std::string::npos) {
    return conclude(caller, wire::Error{Status::kInvalid,
                                        "'" + path +
                                            "' is not the absolute path of a directory that is not "
                                            "there yet on the daemon's machine"});
  }
  if (checkpointing_) {
    return conclude(caller,
                    wire::Error{Status::kLimit, "this daemon copies its store already: try again"});
  }
  struct Copying {
    std::string error;
    bool ok = false;
  };
  auto copying = std::make_shared<Copying>();
  checkpointing_ = true;
  background_.run([copying, path,
                   store = store_.get()] { copying->ok = store->checkpoint(path, copying->error); },
                  [this, copying, caller] {
                    checkpointing_ = false;
                    if (copying->ok) {
                      conclude(caller, wire::Ok{});
                    } else {
                      conclude(caller, wire::Error{Status::kStore, copying->error});
                    }
                    close_store_if_idle();
                  });
}

}  // namespace syncd::server
