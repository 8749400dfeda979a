// Who changed what, and what came of it: one line of the log for each request whose row in
// request_traits.h is audited, written once its answer is known. Loop thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/event.h"
#include "daemon/edge/net/network.h"
#include "proto/wire/wire.h"

namespace syncd::server {

class Audits {
 public:
  using Fields = std::vector<std::pair<std::string, std::string>>;
  // Both must outlive it.
  Audits(net::Network& network, const std::function<void(const LogLine&)>& log)
      : network_(network), log_(log) {}

  // `done`: a body of the type that answers the request if it succeeds. Not empty: the request is
  // to be refused with this text, because too many wait for their answer.
  std::string begin(const Caller& caller, const wire::Body& done, Fields what);
  // The request is answered, whether it was audited or not.
  void end(const Caller& caller, const wire::Body& answer);
  void on_closed(ConnectionId connection);
  bool empty() const { return pending_.empty(); }

 private:
  struct Audit {
    std::size_t done = 0;  // of wire::Body
    Fields what;
  };

  net::Network& network_;
  const std::function<void(const LogLine&)>& log_;
  std::multimap<std::pair<ConnectionId, RequestId>, Audit> pending_;
};

// What the log says of each, beside who asked: a row that is audited needs one.
Audits::Fields audit_fields(const wire::CreateJobRequest& create);
Audits::Fields audit_fields(const wire::StopJobRequest& stop);
Audits::Fields audit_fields(const wire::SetPolicyRequest& set);
Audits::Fields audit_fields(const wire::ManageWorkerRequest& manage);
Audits::Fields audit_fields(const wire::OrderCheckpoint& order);
Audits::Fields audit_fields(const wire::CheckpointRequest& copy);
Audits::Fields audit_fields(const wire::ExcludeRequest& exclude);
Audits::Fields audit_fields(const wire::InspectRequest& inspect);
// Of a join that makes its job.
Audits::Fields audit_fields(const wire::Join& join, const std::string& policy);

}  // namespace syncd::server
