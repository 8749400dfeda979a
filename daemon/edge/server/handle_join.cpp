// What makes a job: a join of one that is not there, and a request for one. Who may, how many, and
// the graph's file are the server's to see to; the engine answers. Loop thread.
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "daemon/core/engine/request_traits.h"
#include "daemon/core/policies/graph_file.h"
#include "daemon/edge/server/server.h"

namespace syncd::server {

void Server::handle(const Caller& caller, wire::Join& join) {
  // Stacks are not sent in plain text over a network.
  if (access_.is_overheard(caller.connection)) join.notices &= ~wire::kNoticeInspect;
  const std::string* policy = core_.engine().policy_to_make(join);
  // Whoever joins a job that is there needs neither a file nor room for another job.
  if (policy == nullptr) return core_.on_request({caller, std::move(join)});
  make_job(caller, join, *policy);
}

void Server::handle(const Caller& caller, wire::CreateJobRequest& create) {
  make_job(caller, create, *core_.engine().policy_to_make(create));
}

template <class Message>
void Server::make_job(const Caller& caller, Message& body, const std::string& policy) {
  std::optional<topology::GraphSpec> file = graph_file_of(policy);
  if (std::string why; file && !access_.may_name_file(caller.connection, why)) {
    return refuse_asker(caller, wire::body_name(std::move(body)), std::move(why));
  }
  if (std::string why =
          quota_.refusal(network_.identity(caller.connection), options_.jobs_per_identity_max);
      !why.empty()) {
    return refuse(caller, Status::kLimit, std::move(why));
  }
  if constexpr (std::is_same_v<Message, wire::Join>) {
    if (!begin_audit(caller, wire::Joined{}, audit_fields(body, policy))) return;
  }
  std::shared_ptr<const topology::GraphFile> graph;
  if (file) {
    graph = read_graph_file(*std::move(file), topology::FileErrors::kForClients,
                            options_.engine.graph_edges_max);
  }
  if (const JobId job = quota_.take_one_to_forget(); job != 0) core_.forget_job(job);
  const std::string name = body.*kTraits<Message>.job;
  const JobId before = core_.engine().find_job(name);
  core_.on_request({caller, std::move(body), std::move(graph)});
  const JobId made = core_.engine().find_job(name);
  if (made != before) quota_.add(network_.identity(caller.connection), made);
}

}  // namespace syncd::server
