// Graphs by name for the tests of topology.
#pragma once

#include <gtest/gtest.h>

#include "daemon/core/topology/graph_spec.h"

namespace syncd::topology {

inline GraphSpec spec_of(const std::string& text) {
  std::string error;
  const std::optional<GraphSpec> spec = parse_graph_spec(text, error);
  EXPECT_TRUE(spec) << error;
  return spec.value_or(GraphSpec{});
}

inline Graph make(const std::string& text, std::size_t nodes,
                  const std::vector<std::string>& hosts = {}) {
  std::string error;
  std::optional<Graph> graph = generate(spec_of(text), nodes, hosts, error);
  EXPECT_TRUE(graph) << error;
  return graph.value_or(Graph());
}

inline std::string refused(const std::string& text, std::size_t nodes,
                           const std::vector<std::string>& hosts = {}) {
  std::string error;
  EXPECT_FALSE(generate(spec_of(text), nodes, hosts, error)) << text << " of " << nodes;
  return error;
}

inline Graph from_edges(std::size_t nodes, const std::vector<Edge>& edges) {
  return {nodes, edges};
}

}  // namespace syncd::topology
