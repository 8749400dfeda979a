// syncctl simulate: what policies would do to a job, in virtual time. Needs no daemon. One thread.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "daemon/tools/sim/simulation.h"

namespace syncd::ctl {

// The command line, as it was written.
struct SimulateQuery {
  std::uint32_t workers = 16;
  std::string hosts;  // empty: one per worker
  std::string iteration_time = "constant:1000";
  std::string slowdown = "none";
  double delay_ms = 0;
  double plan_delay_ms = 0;
  std::optional<double> link_mbps;  // with parameters_mb; neither: transfers take no time
  std::optional<double> parameters_mb;
  double duration_s = 600;
  double worker_grace_s = 10;
  std::uint64_t seed = 1;
  std::string policy;
  std::string compare;               // several policies; or
  std::string sweep;                 // SpecSync's thresholds over `policy`
  std::string order;                 // "", "parallel" or "serial"
  std::vector<std::string> fails;    // RANK@SECONDS
  std::vector<std::string> leaves;   // likewise
  std::vector<std::string> joins;    // likewise
  std::vector<std::string> changes;  // POLICY@SECONDS
  bool json = false;
  std::size_t columns = 80;  // of the output, for the table
};

struct SimulateAnswer {
  std::vector<sim::Result> results;
  // Of a sweep: updates per iteration gained over the policy without speculation, one per result
  // (the first is that policy), and the best of them.
  std::vector<double> gains;
  std::size_t best = 0;
};

// The formats, for --help.
std::string simulate_help();

// Empty: `error` says which option is wrong and what is allowed.
std::optional<SimulateAnswer> answer_simulate(const SimulateQuery& query, std::string& error);

nlohmann::ordered_json simulate_json(const SimulateAnswer& answer);
// Lines of at most so many characters, as far as that can be done.
std::string simulate_table(const SimulateAnswer& answer, std::size_t columns = 80);

// The command: writes to `out`, complaints and stalls to `err`. The exit code.
int run_simulate(const SimulateQuery& query, std::ostream& out, std::ostream& err);

}  // namespace syncd::ctl
