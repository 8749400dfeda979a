// See graph_file.h.
#include "daemon/core/policies/graph_file.h"

#include "daemon/core/policies/policy_text.h"

namespace syncd {

std::optional<topology::GraphSpec> graph_file_of(std::string_view policy) {
  const PolicyText text = split_policy_text(policy);
  if (text.arguments.empty() || !text.arguments[0].key.empty()) return std::nullopt;
  std::string error;
  auto spec = topology::parse_graph_spec(text.arguments[0].value, error);
  if (spec && spec->kind != topology::GraphKind::kFile) spec.reset();
  return spec;
}

std::shared_ptr<const topology::GraphFile> read_graph_file(topology::GraphSpec file,
                                                           topology::FileErrors errors,
                                                           std::size_t edges_max) {
  auto read = std::make_shared<topology::GraphFile>();
  topology::load_graph_file(file, read->error, errors, edges_max);
  read->graph = file.loaded;
  return read;
}

std::shared_ptr<const topology::GraphFile> read_graph_file(std::string_view policy) {
  auto file = graph_file_of(policy);
  return file ? read_graph_file(*std::move(file)) : nullptr;
}

}  // namespace syncd
