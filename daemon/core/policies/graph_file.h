// The file that a policy names (`hop:file:PATH`). The engine and its policies do no I/O: whoever
// makes a job, or simulates one, reads the file first and hands over what it says. Any thread.
#pragma once

#include <memory>
#include <string_view>

#include "daemon/core/topology/graph_spec.h"

namespace syncd {

// Whether read_graph_file() would open a file for this policy. Reads nothing.
bool names_graph_file(std::string_view policy);

// What that file says, or why it cannot be read (load_graph_file). Null: the policy names none, or
// is none. O(size of the file).
std::shared_ptr<const topology::GraphFile> read_graph_file(
    std::string_view policy, topology::FileErrors errors = topology::FileErrors::kForOwner,
    std::size_t edges_max = topology::kEdgesMax);

}  // namespace syncd
