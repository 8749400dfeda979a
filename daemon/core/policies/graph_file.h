// The file that a policy names (`hop:file:PATH`). The engine and its policies do no I/O: whoever
// makes a job, or simulates one, reads the file first and hands over what it says. Any thread.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "daemon/core/topology/graph_spec.h"

namespace syncd {

// The graph that a policy names, if that is a file's. Reads nothing.
std::optional<topology::GraphSpec> graph_file_of(std::string_view policy);

// What that file says, or why it cannot be read (load_graph_file). O(size of the file).
std::shared_ptr<const topology::GraphFile> read_graph_file(
    topology::GraphSpec file, topology::FileErrors errors = topology::FileErrors::kForOwner,
    std::size_t edges_max = topology::kEdgesMax);
// Of a policy; null: it names none, or is none.
std::shared_ptr<const topology::GraphFile> read_graph_file(std::string_view policy);

}  // namespace syncd
