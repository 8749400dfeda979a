// See graph_file.h.
#include "daemon/policies/graph_file.h"

#include "daemon/policies/policy_text.h"

namespace syncd {

std::shared_ptr<const topology::GraphFile> read_graph_file(std::string_view policy) {
  const PolicyText text = split_policy_text(policy);
  if (text.arguments.empty() || !text.arguments[0].key.empty()) return nullptr;
  std::string error;
  auto spec = topology::parse_graph_spec(text.arguments[0].value, error);
  if (!spec || spec->kind != topology::GraphKind::kFile) return nullptr;
  auto file = std::make_shared<topology::GraphFile>();
  topology::load_graph_file(*spec, file->error);
  file->graph = spec->loaded;
  return file;
}

}  // namespace syncd
