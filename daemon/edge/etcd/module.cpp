// The module's one entry, see daemon/edge/cluster/module.h.
#include "daemon/edge/cluster/module.h"

#include <exception>
#include <string_view>
#include <type_traits>

#include "daemon/edge/etcd/etcd_client.h"

namespace {
constexpr char kBuild[] = SYNCD_VERSION "/" SYNCD_CLUSTER_INTERFACE;
}  // namespace

extern "C" const char* syncd_cluster_open_etcd(const char* build,
                                               const syncd::cluster::EtcdAccess& access,
                                               syncd::cluster::Etcd*& etcd, std::string& error) {
  if (std::string_view(build) != kBuild) return kBuild;
  try {
    etcd = syncd::cluster::make_etcd_client(access).release();
  } catch (const std::exception& exception) {
    error = std::string("etcd's client cannot be made: ") + exception.what();
  }
  return kBuild;
}

// It is what the daemon looks for.
static_assert(std::is_same_v<decltype(syncd_cluster_open_etcd), syncd::cluster::OpenEtcd>);
