// See parameter_server.h.
#include "daemon/policies/parameter_server.h"

namespace syncd {

std::vector<Rank> active_below(const PolicyHost& host, Clock q) {
  std::vector<Rank> below;
  for (const Rank rank : host.active()) {
    if (host.worker(rank).relative() < q) below.push_back(rank);
  }
  return below;
}

}  // namespace syncd
