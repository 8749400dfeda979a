// See server.h.
#include "daemon/tools/bench/server.h"

#include <fmt/format.h>
#include <time.h>

#include <fstream>

#include "daemon/tools/bench/load.h"

namespace syncd::bench {
namespace {

std::int64_t cpu_ns_of(std::uint32_t pid) {
  std::ifstream in(fmt::format("/proc/{}/comm", pid));
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

Server::Server(const ctl::Address& address, std::int64_t timeout_ms) {
  if (!link_.open(address, timeout_ms)) fail();
}

void Server::fail() const {
  const bool refused = link_.failure() == ctl::DaemonLink::Failure::kRefused;
  throw LoadError(refused ? ctl::kExitRefused : ctl::kExitUnreachable, link_.error());
}

Server::Reading Server::read() {
  Reading reading;
  if (!link_.read(wire::StatusRequest{}, reading.status)) fail();
  if (is_local(link_.endpoint())) reading.cpu_ns = cpu_ns_of(reading.status.pid);
  return reading;
}

std::optional<wire::JobStatus> Server::job(const std::string& name) {
  wire::JobsReply reply;
  if (!link_.read(wire::JobsRequest{}, reply)) fail();
  const wire::JobStatus* found = ctl::find_job(reply.jobs, name);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

void Server::stop(const std::string& job) {
  wire::Ok ok;
  static_cast<void>(link_.call(wire::StopJobRequest{job, "syncbench has ended"}, ok));
}

}  // namespace syncd::bench
