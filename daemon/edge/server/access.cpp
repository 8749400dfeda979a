// Who may ask for what; see the header.
#include "daemon/edge/server/access.h"

#include <utility>
#include <vector>

#include "daemon/edge/server/server.h"

namespace syncd::server {

bool Access::permits(ConnectionId connection, Asker asker, const std::string& job,
                     std::string& why) const {
  if (asker >= Asker::kAdministrator && has_control() && !network_.over_control(connection)) {
    why =
        "this daemon accepts requests that change jobs over its control socket alone "
        "(listen.control)";
    return false;
  }
  const net::Identity* identity = network_.identity(connection);
  if (identity == nullptr || admission_ == nullptr) return true;
  if (asker == Asker::kJobUser) return may_use(*identity, job, why);
  if (asker == Asker::kAdministrator) return admission_->may_change(*identity, job, why);
  return asker != Asker::kOwner ||
         admission_->may_copy_store(*identity, counts_as_here(connection), why);
}

// `job` may be "#" and a number. The rules speak of names, and the refusal does not tell whose
// number it is.
bool Access::may_use(const net::Identity& identity, const std::string& job,
                     std::string& why) const {
  const std::string* name = engine_.job_name(engine_.find_job(job));
  if (admission_->may_use(identity, name == nullptr ? job : *name, why)) return true;
  why = net::Admission::may_not_use(identity, job);
  return false;
}

bool Access::has_control() const {
  return !options_.control_tcp.empty() || !options_.control_unix_path.empty();
}

// Whether being on this machine says anything of a client: where certificates do, it does not.
bool Access::counts_as_here(ConnectionId connection) const {
  return network_.is_here(connection) && options_.tls.client_ca_file.empty();
}

bool Access::is_overheard(ConnectionId connection) const {
  return !network_.is_here(connection) && options_.tls.certificate_file.empty();
}

bool Access::may_name_file(ConnectionId connection, std::string& why) const {
  const net::Identity* identity = network_.identity(connection);
  return identity != nullptr && admission_ != nullptr &&
         admission_->may_name_files(*identity, counts_as_here(connection), why);
}

bool Access::is_restricted(ConnectionId connection) const {
  const net::Identity* identity = network_.identity(connection);
  return identity != nullptr && admission_ != nullptr && !admission_->is_admin(*identity);
}

// An administrator, who comes where requests of administrators are taken.
bool Access::may_see_paths(ConnectionId connection) const {
  return !is_restricted(connection) && (!has_control() || network_.over_control(connection));
}

bool Access::is_hidden(const net::Identity& client, JobId job) const {
  const std::string* name = engine_.job_name(job);
  std::string ignored;
  return name != nullptr && !admission_->is_admin(client) &&
         !admission_->may_use(client, *name, ignored);
}

Engine::Visible Access::visible_to(ConnectionId connection) const {
  const net::Identity* identity = network_.identity(connection);
  std::vector<std::string> patterns;
  if (identity != nullptr) patterns = admission_->jobs_of(*identity);
  return [patterns = std::move(patterns)](const std::string& job) {
    return net::Admission::is_one_of(patterns, job);
  };
}

}  // namespace syncd::server
