// See server.h.
#include "daemon/tools/bench/server.h"

#include <time.h>

#include <fstream>

#include "daemon/tools/bench/load.h"

namespace syncd::bench {
namespace {

std::int64_t cpu_ns_of(std::uint32_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(in, name);
  clockid_t clock{};
  timespec t{};
  if (name != "syncd" || clock_getcpuclockid(static_cast<pid_t>(pid), &clock) != 0 ||
      clock_gettime(clock, &t) != 0) {
    return -1;
  }
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

bool is_local(const std::string& endpoint) {
  return endpoint.starts_with("unix:") || endpoint.find(":127.") != std::string::npos ||
         endpoint.find(":localhost:") != std::string::npos ||
         endpoint.find(":[::1]:") != std::string::npos;
}

}  // namespace

void fail_for(const ctl::DaemonLink& link) {
  const bool refused = link.failure() == ctl::DaemonLink::Failure::kRefused;
  throw LoadError(refused ? ctl::kExitRefused : ctl::kExitUnreachable, link.error());
}

Server::Server(const std::vector<client::Endpoint>& endpoints,
               const ctl::DaemonLink::Credentials& credentials, std::int64_t timeout_ms) {
  if (!link_.open(endpoints, credentials, timeout_ms)) fail_for(link_);
}

template <class Reply>
void Server::ask(const wire::Body& request, Reply& reply) {
  if (link_.call(request, reply)) return;
  // A daemon closes what has been silent for long.
  if (link_.failure() == ctl::DaemonLink::Failure::kUnreachable && link_.reopen() &&
      link_.call(request, reply)) {
    return;
  }
  fail_for(link_);
}

Server::Reading Server::read() {
  Reading reading;
  ask(wire::StatusRequest{}, reading.status);
  if (is_local(link_.endpoint())) reading.cpu_ns = cpu_ns_of(reading.status.pid);
  return reading;
}

std::optional<wire::JobStatus> Server::job(const std::string& name) {
  wire::JobsReply reply;
  ask(wire::JobsRequest{}, reply);
  std::optional<wire::JobStatus> found;
  for (const wire::JobStatus& job : reply.jobs) {
    if (job.name == name && (!found || job.id > found->id)) found = job;
  }
  return found;
}

void Server::stop(const std::string& job) {
  wire::Ok ok;
  static_cast<void>(link_.call(wire::StopJobRequest{job, "syncbench has ended"}, ok));
}

}  // namespace syncd::bench
