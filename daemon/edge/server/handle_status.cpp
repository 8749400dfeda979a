// The daemon's status, and the list of jobs for those who may see some only. Loop thread.
#include <unistd.h>

#include <utility>

#include "daemon/edge/server/server.h"

namespace syncd::server {
namespace {

// What everybody may know of where the history is.
constexpr const char* kStoreInMemory = "memory";
constexpr const char* kStoreForClients = "a directory";

}  // namespace

void Server::handle(const Caller& caller, const wire::StatusRequest&) {
  const EngineStats engine = access_.is_restricted(caller.connection)
                                 ? core_.engine().stats(access_.visible_to(caller.connection))
                                 : core_.engine().stats();
  const net::NetworkStats network = network_.stats();
  wire::StatusReply reply;
  reply.server_version = options_.version;
  reply.pid = static_cast<std::uint32_t>(getpid());
  reply.started_us = started_us_;
  reply.now_us = now();
  const bool sees_paths = access_.may_see_paths(caller.connection);
  const bool has_path = store_->describe() != kStoreInMemory;
  reply.store = sees_paths || !has_path ? store_->describe() : kStoreForClients;
  reply.mode = core_.mode_text();
  reply.sessions = network.sessions;
  reply.jobs = engine.jobs;
  reply.workers = engine.workers;
  reply.pushes = engine.pushes;
  reply.frames_in = network.frames_in;
  reply.frames_out = network.frames_out;
  reply.read_only = !core_.writable();
  if (reply.read_only) reply.store_error = sees_paths ? core_.store_reason() : kReasonForClients;
  reply.store_error_since_us = core_.store_error_since();
  const StoreFigures figures = core_.store_figures();
  reply.commit_failures = figures.failures;
  reply.records_removed = figures.records_removed;
  answer(caller, std::move(reply));
}

void Server::handle(const Caller& caller, const wire::JobsRequest& request) {
  if (phase_ == Phase::kServing && access_.is_restricted(caller.connection)) {
    answer(caller, core_.engine().jobs(access_.visible_to(caller.connection), request.job));
  } else {
    core_.on_request({caller, request});
  }
}

}  // namespace syncd::server
