// `syncctl cluster`: what operators do to a cluster, in etcd. No daemon is asked.
#include <iostream>

#include "daemon/edge/cluster/administration.h"
#include "daemon/edge/config/config.h"
#include "daemon/tools/ctl/asking.h"
#include "daemon/tools/ctl/commands.h"

extern char** environ;

namespace syncd::ctl {
namespace {

// The cluster of the configuration. Null: `code` is the exit status, and it was said why.
std::unique_ptr<cluster::Etcd> open(const Options& options, config::Config& config, int& code) {
  config::Flags flags;
  flags.config_file = options.config;
  config::Loaded loaded;
  std::vector<std::string> errors;
  code = kExitUsage;
  if (!config::load(flags, config::environment_of(environ), loaded, errors)) {
    for (const std::string& error : errors) complain(kExitUsage, error);
    return nullptr;
  }
  config = std::move(loaded.config);
  std::string error;
  if (!config.is_member()) {
    complain(kExitUsage,
             "no cluster is configured: name a configuration with [cluster] by --config, or set "
             "SYNCD_CLUSTER_NAME and SYNCD_CLUSTER_ETCD");
    return nullptr;
  }
  cluster::EtcdOptions etcd;
  std::unique_ptr<cluster::Etcd> opened;
  if (cluster::etcd_options(config, etcd, error)) opened = cluster::open_etcd(etcd, error);
  if (opened == nullptr) complain(kExitUsage, error);
  return opened;
}

}  // namespace

int run_cluster_init(const Options& options) {
  config::Config config;
  int code = kExitOk;
  const auto etcd = open(options, config, code);
  if (etcd == nullptr) return code;
  std::string error;
  if (!cluster::create_cluster(*etcd, config.cluster.name, options.timeout_ms * 1000, error)) {
    return complain(kExitUnreachable, error);
  }
  std::cout << "cluster '" << config.cluster.name
            << "' is set up: start its members with this configuration, each with its own "
               "cluster.member and store.path\n";
  return kExitOk;
}

int run_cluster_status(const Options& options) {
  config::Config config;
  int code = kExitOk;
  const auto etcd = open(options, config, code);
  if (etcd == nullptr) return code;
  std::string text;
  std::string error;
  if (!cluster::describe_cluster(*etcd, config.cluster.name, options.timeout_ms * 1000, text,
                                 error)) {
    return complain(kExitUnreachable, error);
  }
  std::cout << text;
  return kExitOk;
}

}  // namespace syncd::ctl
