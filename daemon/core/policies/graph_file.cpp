// See graph_file.h.
#include "daemon/core/policies/graph_file.h"

#include "daemon/core/policies/policy_text.h"

namespace syncd {

namespace {

// The graph that a policy names, if that is a file's.
std::optional<topology::GraphSpec> file_of(std::string_view policy) {
  const PolicyText text = split_policy_text(policy);
  if (text.arguments.empty() || !text.arguments[0].key.empty()) return std::nullopt;
  std::string error;
  auto spec = topology::parse_graph_spec(text.arguments[0].value, error);
  if (!spec || spec->kind != topology::GraphKind::kFile) return std::nullopt;
  return spec;
}

}  // namespace

bool names_graph_file(std::string_view policy) {
  return file_of(policy).has_value();
}

std::shared_ptr<const topology::GraphFile> read_graph_file(std::string_view policy,
                                                           topology::FileErrors errors,
                                                           std::size_t edges_max) {
  auto spec = file_of(policy);
  if (!spec) return nullptr;
  auto file = std::make_shared<topology::GraphFile>();
  topology::load_graph_file(*spec, file->error, errors, edges_max);
  file->graph = spec->loaded;
  return file;
}

}  // namespace syncd
