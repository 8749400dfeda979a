// A job's history, as the store has it. Loop thread; another one reads.
#include <utility>

#include "daemon/edge/server/log_text.h"
#include "daemon/edge/server/server.h"

namespace syncd::server {
namespace {

// For shares among clients: who it is, or the connection of whom nothing is known.
std::string client_text(const net::Identity* identity, const Caller& caller) {
  if (identity != nullptr && !identity->is_owner) {
    const std::vector<std::string> names = identity->counted();
    if (!names.empty()) return names.front();
  }
  return "connection " + std::to_string(caller.connection);
}

}  // namespace

void Server::handle(const Caller& caller, const wire::HistoryRequest& request) {
  // Answers repeat the job's name, and must fit a frame.
  if (std::string wrong = job_name_too_long(request.job); !wrong.empty()) {
    return answer(caller, wire::Error{Status::kInvalid, std::move(wrong)});
  }
  const JobId job = core_.engine().stored_job(request.job);
  if (job == 0) {
    return answer(caller,
                  wire::Error{Status::kUnknownJob, "there is no job '" + request.job + "'"});
  }
  histories_.read(client_text(network_.identity(caller.connection), caller), job, request,
                  [this, caller, name = request.job](wire::Body body) {
                    auto* error = std::get_if<wire::Error>(&body);
                    if (error != nullptr && error->status == Status::kStore) {
                      network_.warn("history_unreadable",
                                    {{"job", job_shown(name)}, {"reason", error->message}});
                      if (!access_.may_see_paths(caller.connection)) {
                        error->message =
                            std::string("the daemon cannot read the history of job '") + name +
                            "': " + kReasonForClients;
                      }
                    }
                    answer(caller, std::move(body));
                    close_store_if_idle();
                  });
}

}  // namespace syncd::server
