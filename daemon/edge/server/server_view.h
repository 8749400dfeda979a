// The server as it is at one moment, for whoever shows it. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/engine/counters.h"
#include "daemon/core/engine/engine.h"
#include "daemon/edge/net/network.h"
#include "daemon/edge/server/commit_gate.h"
#include "proto/transport/tls.h"

namespace syncd::server {

struct ServerView {
  std::string version;
  Micros started_us = 0;  // of the wall clock
  Micros now_us = 0;      // engine time
  std::string store;      // the path, or "memory"
  std::string mode;
  // In words that anybody may read. Empty: it recovered, listens, can write and is not stopping;
  // else why it does not take work.
  std::string not_ready;
  bool writable = true;
  std::string store_reason;  // why it cannot, with paths: not for everybody
  std::vector<std::string> endpoints;
  net::NetworkStats network;
  EngineStats engine;
  StoreFigures store_figures;
  tls::ServerFacts certificates;  // nothing where there is no TLS
  std::int64_t wall_clock_s = 0;  // seconds since 1970
  std::vector<JobFigures> jobs;
  std::size_t jobs_left_out = 0;
};

}  // namespace syncd::server
