// syncctl topology: what a communication graph is like before a job runs on it. Needs no daemon.
// One thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace syncd::ctl {

struct TopologyQuery {
  std::string graph;          // a graph's name, or file:PATH
  std::string adjacency;      // a file that takes the place of `graph`, if not empty
  std::uint32_t workers = 0;  // 0: not given, which only a file allows
  std::vector<std::string> hosts;
  // bounds only
  std::string setting = "standard";
  std::optional<std::int64_t> max_ig;
};

// Larger graphs take minutes to measure, and longer to read.
inline constexpr std::uint32_t kAnalyzeWorkersMax = 10'000;
inline constexpr std::uint32_t kBoundsWorkersMax = 2'000;

// Keys of the results, in order, each with what it means: for --help.
const char* topology_analyze_keys();
const char* topology_bounds_keys();

// Empty: `error` says what is wrong with the query and what is allowed. O(n (n + m)), and O(n^3)
// for the spectral figures, which are left out (null) for more than topology::kSpectralNodesMax
// workers.
std::optional<nlohmann::ordered_json> analyze_topology(const TopologyQuery& query,
                                                       std::string& error);

// {"bounds": [[...]]}: row i, column j is the most that c_i - c_j can be, null where nothing bounds
// it (Hop, table 1).
std::optional<nlohmann::ordered_json> bound_topology(const TopologyQuery& query,
                                                     std::string& error);

// The commands: print JSON to standard output, or a complaint to standard error. The exit code.
int run_topology_analyze(const TopologyQuery& query);
int run_topology_bounds(const TopologyQuery& query);

}  // namespace syncd::ctl
