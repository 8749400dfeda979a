// What becomes of a request: the checks that its row in request_traits.h asks for, and then who
// answers it; see server.h. Loop thread.
#include <type_traits>
#include <utility>

#include "daemon/core/engine/request_traits.h"
#include "daemon/edge/server/log_text.h"
#include "daemon/edge/server/server.h"

namespace syncd::server {
namespace {

constexpr std::size_t kRefusalShownMax = 1024;

// The answer that says that it was done, for the audit.
template <class Message>
struct DoneBy {
  using Answer = wire::Ok;
};
template <>
struct DoneBy<wire::InspectRequest> {
  using Answer = wire::InspectReply;
};
template <>
struct DoneBy<wire::OrderCheckpoint> {
  using Answer = wire::CheckpointAsked;
};

template <class Message>
const std::string& job_of(const Message& body) {
  static const std::string none;
  return kTraits<Message>.job == nullptr ? none : body.*kTraits<Message>.job;
}

}  // namespace

void Server::on_hot(ConnectionId connection, const net::Identity& identity,
                    const wire::HotCall& hot, std::uint64_t at_ns) {
  const Caller caller{connection, hot.id};
  const wire::WorkerRef& worker = hot.push.worker;
  if (access_.hides(identity, worker.job)) return hide_job(caller, worker);
  wire::visit_hot(hot, [&](const auto& call) { core_.on_call(caller, call, at(at_ns)); });
}

void Server::on_message(ConnectionId connection, wire::Message&& message) {
  std::visit([&](auto& body) { receive({connection, message.id}, body); }, message.body);
}

// What the row does not ask for is not compiled in.
template <class Message>
void Server::receive(const Caller& caller, Message& body) {
  constexpr const auto& row = kTraits<Message>;
  if constexpr (row.is_request()) {  // the session has dealt with all others
    if constexpr (row.audited != nullptr) {
      if (!begin_audit(caller, typename DoneBy<Message>::Answer{}, audit_fields(body))) return;
    }
    if constexpr (row.job != nullptr) {
      if (std::string why; is_elsewhere(job_of(body), why)) {
        return refuse(caller, Status::kInvalid, std::move(why));
      }
    }
    if constexpr (row.asker >= Asker::kJobUser) {
      if (std::string why; !access_.permits(caller.connection, row.asker, job_of(body), why)) {
        return refuse_asker(caller, wire::body_name(std::move(body)), std::move(why));
      }
    }
    if constexpr (row.asker == Asker::kItsWorker) {
      const net::Identity* client = network_.identity(caller.connection);
      if (client != nullptr && access_.hides(*client, body.worker.job)) {
        return hide_job(caller, body.worker);
      }
    }
    if constexpr (row.answerer == Answerer::kEngine) {
      core_.on_request({caller, std::move(body)});
    } else {
      handle(caller, body);
    }
  }
}

// A worker of a job that its client may not know of is answered as if the job were not there.
void Server::hide_job(const Caller& caller, const wire::WorkerRef& worker) {
  refuse(caller, Status::kUnknownJob, Engine::no_such_job(worker.job));
}

// False: too many requests wait for the store, and this one is refused.
bool Server::begin_audit(const Caller& caller, const wire::Body& done, Audits::Fields what) {
  std::string too_many = audits_.begin(caller, done, std::move(what));
  if (too_many.empty()) return true;
  refuse(caller, Status::kLimit, std::move(too_many));
  return false;
}

void Server::refuse_asker(const Caller& caller, std::string_view request, std::string why) {
  network_.warn("refused", {{"peer", network_.peer(caller.connection)},
                            {"request", std::string(request)},
                            {"reason", shown(why, kRefusalShownMax)}});
  refuse(caller, Status::kAuth, std::move(why));
}

void Server::refuse(const Caller& caller, Status status, std::string why) {
  conclude(caller, wire::Error{status, std::move(why)});
}

void Server::conclude(const Caller& caller, const wire::Body& body) {
  audits_.end(caller, body);
  answer(caller, body);
}

void Server::answer(const Caller& caller, wire::Body body) {
  network_.send(caller.connection, {caller.request, std::move(body)});
}

}  // namespace syncd::server
