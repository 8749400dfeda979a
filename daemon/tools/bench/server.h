// The daemon as a whole, as syncbench sees it beside the load. One thread; calls block.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/tools/ctl/daemon_link.h"

namespace syncd::bench {

class Server {
 public:
  // This and the next two throw LoadError if it does not answer, or refuses.
  Server(const ctl::Address& address, std::int64_t timeout_ms);

  struct Reading {
    wire::StatusReply status;
    std::int64_t cpu_ns = -1;  // its processor time so far; -1: it does not run on this machine
  };
  Reading read();

  // Of several by one name, the latest.
  std::optional<wire::JobStatus> job(const std::string& name);

  // The job has done what it was for. A daemon that lets only others do this keeps it open.
  void stop(const std::string& job);

 private:
  [[noreturn]] void fail() const;

  ctl::DaemonLink link_;
};

}  // namespace syncd::bench
