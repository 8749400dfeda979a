// What the daemon and the module that speaks gRPC (daemon/edge/etcd) agree on. The module is loaded
// with dlopen, so that only clusters need gRPC. Plain data and Etcd's virtual calls cross between
// them, and no exception does.
#pragma once

#include <string>
#include <vector>

#include "daemon/core/engine/types.h"
#include "daemon/edge/cluster/etcd.h"

namespace syncd::cluster {

// Raised with every change of what crosses: this file, etcd.h, core/cluster/transaction.h.
#define SYNCD_CLUSTER_INTERFACE "3"

// EtcdOptions, checked, with what the files hold.
struct EtcdAccess {
  struct Endpoint {
    std::string name;     // "https://HOST:PORT", for sentences
    std::string address;  // "HOST:PORT"
    bool tls = false;
  };
  std::vector<Endpoint> endpoints;
  std::string ca;  // PEM; empty: the system's
  std::string certificate;
  std::string key;
  std::string user;
  std::string password;
  Micros silence = 0;
};

// Answers with the module's own build. If that is not `build`, it touches nothing else: the
// arguments may be laid out otherwise. Else it sets `etcd`, which the caller owns, or `error`.
using OpenEtcd = const char*(const char* build, const EtcdAccess& access, Etcd*& etcd,
                             std::string& error);
inline constexpr char kOpenEtcdName[] = "syncd_cluster_open_etcd";
inline constexpr char kModuleFile[] = "syncd-cluster.so";

}  // namespace syncd::cluster
