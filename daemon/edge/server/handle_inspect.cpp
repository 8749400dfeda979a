// Where a worker's process is: stacks, which name files, functions and lines of a trainer. Loop
// thread.
#include <utility>

#include "daemon/edge/server/server.h"

namespace syncd::server {

void Server::handle(const Caller& caller, wire::InspectRequest& request) {
  if (access_.is_overheard(caller.connection)) {
    return conclude(caller, wire::Error{Status::kAuth,
                                        "stacks are not sent in plain text to another machine: ask "
                                        "on the daemon's machine, or set tls.certificate"});
  }
  core_.on_request({caller, std::move(request)});
}

}  // namespace syncd::server
