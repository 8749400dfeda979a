// Who may ask for what: the rules of admission for those who have connected. Loop thread.
#pragma once

#include <memory>
#include <string>

#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/request_traits.h"
#include "daemon/edge/net/admission.h"
#include "daemon/edge/net/network.h"

namespace syncd::server {

struct ServerOptions;

class Access {
 public:
  // All must outlive it; they are not looked at before the first connection.
  Access(const ServerOptions& options, const Engine& engine, const net::Network& network)
      : options_(options), engine_(engine), network_(network) {}
  void set_admission(std::unique_ptr<net::Admission> admission) {
    admission_ = std::move(admission);
  }

  // Whether this client may send a request whose row says `asker`, about `job` (empty: none). On
  // false, `why` says why not. The engine looks whether a worker's request comes from that worker.
  bool permits(ConnectionId connection, Asker asker, const std::string& job,
               std::string& why) const;
  // Whether the daemon opens a file that it names, with the daemon's rights.
  bool may_name_file(ConnectionId connection, std::string& why) const;
  // Whether it comes from another machine in plain text.
  bool is_overheard(ConnectionId connection) const;
  // Whether it may know where the store is and what is wrong with it.
  bool may_see_paths(ConnectionId connection) const;
  // Whether it may see some jobs only, and which these are.
  bool is_restricted(ConnectionId connection) const;
  Engine::Visible visible_to(ConnectionId connection) const;
  // Whether this one is none of those that the client may see.
  bool hides(const net::Identity& client, JobId job) const {
    return admission_ != nullptr && admission_->hides_jobs() && is_hidden(client, job);
  }

 private:
  bool may_use(const net::Identity& identity, const std::string& job, std::string& why) const;
  bool is_hidden(const net::Identity& client, JobId job) const;
  bool counts_as_here(ConnectionId connection) const;
  bool has_control() const;

  const ServerOptions& options_;
  const Engine& engine_;
  const net::Network& network_;
  std::unique_ptr<net::Admission> admission_;
};

}  // namespace syncd::server
