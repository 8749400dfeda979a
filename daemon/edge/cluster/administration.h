// What daemon and syncctl both do with a cluster. Any thread; calls to etcd block.
#pragma once

#include <string>

#include "daemon/edge/cluster/etcd.h"
#include "daemon/edge/config/config.h"

namespace syncd::cluster {

// What `config` says of etcd. False, with a sentence in `error`: the password cannot be read.
bool etcd_options(const config::Config& config, EtcdOptions& options, std::string& error);

// What `syncctl cluster init` does. False, with a sentence in `error`: there is such a cluster, or
// etcd did not answer: it may have happened.
bool create_cluster(Etcd& etcd, const std::string& name, Micros timeout, std::string& error);

// The cluster, its leader, its log and its members as lines for people. False, with a sentence in
// `error`: there is no such cluster, or etcd did not answer.
bool describe_cluster(Etcd& etcd, const std::string& name, Micros timeout, std::string& text,
                      std::string& error);

}  // namespace syncd::cluster
