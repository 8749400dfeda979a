// See topology.h.
#include "daemon/tools/ctl/topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>

#include "daemon/core/topology/bounds.h"
#include "daemon/core/topology/graph_spec.h"
#include "daemon/core/topology/spectral.h"
#include "daemon/tools/ctl/asking.h"
#include "daemon/tools/ctl/commands.h"
#include "daemon/tools/sim/simulation.h"

namespace syncd::ctl {
namespace {

using Json = nlohmann::ordered_json;

struct NamedGraph {
  std::string name;
  topology::Graph graph;
};

// The host of each worker: --hosts gives their names, or the hosts' number or sizes as in simulate.
std::optional<std::vector<std::string>> hosts_of(const TopologyQuery& query, std::uint32_t workers,
                                                 std::string& error) {
  const auto is_number = [](const std::string& word) {
    return !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
  };
  if (query.hosts.empty() || !std::all_of(query.hosts.begin(), query.hosts.end(), is_number)) {
    return query.hosts;
  }
  const auto sizes =
      sim::parse_hosts(fmt::format("{}", fmt::join(query.hosts, ",")), workers, error);
  if (!sizes) return std::nullopt;
  std::vector<std::string> hosts;
  for (std::size_t i = 0; i < sizes->size(); ++i) {
    hosts.insert(hosts.end(), (*sizes)[i], fmt::format("host-{}", i));
  }
  return hosts;
}

std::optional<NamedGraph> graph_of(const TopologyQuery& query, std::uint32_t workers_max,
                                   std::string& error) {
  const std::string text = query.adjacency.empty() ? query.graph : "file:" + query.adjacency;
  if (text.empty()) {
    error = "no graph was named: --graph " + topology::known_graphs();
    return std::nullopt;
  }
  std::optional<topology::GraphSpec> spec = topology::parse_graph_spec(text, error);
  if (!spec || !topology::load_graph_file(*spec, error)) return std::nullopt;
  std::size_t workers = query.workers;
  if (workers == 0 && spec->loaded) workers = spec->loaded->size();
  if (workers == 0 || workers > workers_max) {
    error = fmt::format("graph '{}': the number of workers must be given, from 1 to {}", text,
                        workers_max);
    if (workers > 0) error += fmt::format(", not {}", workers);
    return std::nullopt;
  }
  const auto hosts = hosts_of(query, static_cast<std::uint32_t>(workers), error);
  if (!hosts) return std::nullopt;
  std::optional<topology::Graph> graph = topology::generate(*spec, workers, *hosts, error);
  if (!graph) return std::nullopt;
  return NamedGraph{spec->text(), std::move(*graph)};
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// One line for each key, and one for each row of a matrix.
void print(const Json& json) {
  const auto dump = [](const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string text = "{";
  for (const auto& [key, value] : json.items()) {
    text += (text.size() > 1 ? ",\n  " : "\n  ") + dump(key) + ": ";
    if (!value.is_array() || value.empty()) {
      text += dump(value);
      continue;
    }
    std::string rows;
    for (const Json& row : value) rows += (rows.empty() ? "[\n    " : ",\n    ") + dump(row);
    text += rows + "\n  ]";
  }
  std::cout << text << "\n}\n";
}

template <class Make>
int run(Make make, const TopologyQuery& query) {
  std::string error;
  const std::optional<Json> result = make(query, error);
  if (!result) return complain(kExitUsage, error);
  print(*result);
  if (result->value("accepted", true)) return kExitOk;
  return complain(kExitRefused, fmt::format("no job may run on graph '{}' with {} workers: {}",
                                            (*result)["graph"].template get<std::string>(),
                                            (*result)["workers"].template get<std::size_t>(),
                                            (*result)["reason"].template get<std::string>()));
}

}  // namespace

const char* topology_analyze_keys() {
  return R"(JSON keys: graph, workers, edges (without self-loops), in_degree and out_degree (min, max),
diameter (null: not strongly connected), strongly_connected, undirected, regular,
doubly_stochastic (with equal weights), spectral_gap (1 - sigma_2 of the equal weights,
self-loops included), eigen_gap_no_self_loop (lambda_1 - lambda_2 of the random walk),
accepted (whether a job may run on it), weights (equal or metropolis), reason. If a job may not run on it,
the exit status is 1 and the reason is on stderr too.)";
}

const char* topology_bounds_keys() {
  return "JSON: {\"bounds\": [[...]]}, in row i and column j the most iterations that worker i can "
         "be\nahead of worker j; null: not bounded.";
}

std::optional<Json> analyze_topology(const TopologyQuery& query, std::string& error) {
  const std::optional<NamedGraph> named = graph_of(query, kAnalyzeWorkersMax, error);
  if (!named) return std::nullopt;
  const topology::Graph& graph = named->graph;
  const topology::DegreeRange degrees = topology::degree_range(graph);
  const topology::Acceptance answer = topology::accept_for_job(graph);
  const bool spectral = graph.size() <= topology::kSpectralNodesMax;
  Json json;
  json["graph"] = named->name;
  json["workers"] = graph.size();
  json["edges"] = graph.edges();
  json["in_degree"] = Json{{"min", degrees.in_min}, {"max", degrees.in_max}};
  json["out_degree"] = Json{{"min", degrees.out_min}, {"max", degrees.out_max}};
  json["diameter"] = or_null(topology::diameter(graph));
  json["strongly_connected"] = topology::is_strongly_connected(graph);
  json["undirected"] = topology::is_undirected(graph);
  json["regular"] = topology::is_regular(graph);
  json["doubly_stochastic"] = topology::is_doubly_stochastic(graph);
  json["spectral_gap"] = spectral ? Json(topology::spectral_gap(graph)) : Json(nullptr);
  json["eigen_gap_no_self_loop"] =
      spectral ? or_null(topology::eigen_gap_no_self_loop(graph)) : Json(nullptr);
  json["accepted"] = answer.accepted;
  json["weights"] = answer.accepted ? Json(topology::to_string(answer.weighting)) : Json(nullptr);
  json["reason"] = answer.reason;
  return json;
}

std::optional<Json> bound_topology(const TopologyQuery& query, std::string& error) {
  const auto setting = topology::parse_gap_setting(query.setting, error);
  if (!setting) return std::nullopt;
  if (query.max_ig && setting->kind == topology::GapSetting::Kind::kNotifyAck) {
    error = "--max-ig says how many tokens a queue starts with, but notify_ack has no token queues";
    return std::nullopt;
  }
  if (query.max_ig && (*query.max_ig < 1 || *query.max_ig > topology::kMaxIgMax)) {
    error = fmt::format("--max-ig is {}, allowed are whole numbers from 1 to {}", *query.max_ig,
                        topology::kMaxIgMax);
    return std::nullopt;
  }
  const std::optional<NamedGraph> named = graph_of(query, kBoundsWorkersMax, error);
  if (!named) return std::nullopt;
  const topology::GapBounds bounds = topology::gap_bounds(named->graph, *setting, query.max_ig);
  Json rows = Json::array();
  for (topology::Node i = 0; i < bounds.size(); ++i) {
    Json row = Json::array();
    for (topology::Node j = 0; j < bounds.size(); ++j) row.push_back(or_null(bounds(i, j)));
    rows.push_back(std::move(row));
  }
  return Json{{"bounds", std::move(rows)}};
}

int run_topology_analyze(const TopologyQuery& query) {
  return run(analyze_topology, query);
}

int run_topology_bounds(const TopologyQuery& query) {
  return run(bound_topology, query);
}

}  // namespace syncd::ctl
