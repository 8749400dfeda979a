// Etcd over gRPC.
#pragma once

#include <memory>

#include "daemon/edge/cluster/etcd.h"
#include "daemon/edge/cluster/module.h"

namespace syncd::cluster {

// Connects at the first call. Throws no exception but std::bad_alloc.
std::unique_ptr<Etcd> make_etcd_client(const EtcdAccess& access);

}  // namespace syncd::cluster
