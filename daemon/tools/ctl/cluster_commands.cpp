// `syncctl cluster`: what operators do to a cluster, in etcd. No daemon is asked.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "daemon/edge/cluster/administration.h"
#include "daemon/edge/cluster/seeding.h"
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

void print(const std::string& name, const cluster::ClusterStatus& status) {
  std::cout << fmt::format(
      "cluster {}, generation {}\nleader {}\nlog {} entries, up to {}\n", name, status.generation,
      status.leader.empty()
          ? "none"
          : fmt::format("{}, term {}.{}", status.leader, status.generation, status.term),
      status.last + 1 - status.first, status.last);
  for (const auto& member : status.members) {
    const bool leads = member.name == status.leader;
    std::cout << fmt::format("member {}  version {}  {}{}  {}\n", member.name, member.version,
                             leads ? "leads" : fmt::format("copy at {}", member.copy),
                             member.can_lead ? "" : "  cannot lead",
                             fmt::join(member.addresses, ", "));
  }
}

void print_json(const std::string& name, const cluster::ClusterStatus& status) {
  nlohmann::json members = nlohmann::json::array();
  for (const auto& member : status.members) {
    members.push_back({{"name", member.name},
                       {"version", member.version},
                       {"addresses", member.addresses},
                       {"copy", member.copy},
                       {"can_lead", member.can_lead}});
  }
  const nlohmann::json json = {{"cluster", name},         {"generation", status.generation},
                               {"leader", status.leader}, {"term", status.term},
                               {"first", status.first},   {"last", status.last},
                               {"members", members}};
  std::cout << json.dump() << '\n';
}

int init_from(const Options& options, const config::Config& config, cluster::Etcd& etcd) {
  cluster::Seeded seeded;
  std::string error;
  if (!cluster::seed_from(etcd, config.cluster.name, options.from_store, options.timeout_ms * 1000,
                          seeded, error)) {
    return complain(kExitRefused, error);
  }
  std::cout << fmt::format("cluster '{}' is set up with {} jobs, as generation {}\n",
                           config.cluster.name, seeded.jobs, seeded.generation);
  std::cout << options.from_store
            << " is a copy of its history now, for one member, or copied for each; members with "
               "empty directories get what is behind the latest snapshots\n";
  return kExitOk;
}

}  // namespace

int run_cluster_init(const Options& options) {
  config::Config config;
  int code = kExitOk;
  const auto etcd = open(options, config, code);
  if (etcd == nullptr) return code;
  std::string error;
  std::string version;
  if (!etcd->version(version, options.timeout_ms * 1000, error)) {
    return complain(kExitUnreachable, error);
  }
  if (!cluster::is_new_enough(version, config.cluster.old_etcd, error)) {
    return complain(kExitUsage, error);
  }
  if (!options.from_store.empty()) return init_from(options, config, *etcd);
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
  cluster::ClusterStatus status;
  std::string error;
  if (!cluster::read_status(*etcd, config.cluster.name, options.timeout_ms * 1000, status, error)) {
    return complain(kExitUnreachable, error);
  }
  if (options.json) {
    print_json(config.cluster.name, status);
  } else {
    print(config.cluster.name, status);
  }
  return kExitOk;
}

int run_cluster_copy(const Options& options) {
  cluster::Stamp stamp;
  std::string error;
  if (!cluster::read_copy(options.store, stamp, error)) return complain(kExitStore, error);
  if (options.json) {
    const nlohmann::json json = {
        {"store", options.store}, {"generation", stamp.generation}, {"copy", stamp.tail.index}};
    std::cout << json.dump() << '\n';
  } else {
    std::cout << fmt::format("generation {}, copy at {}\n", stamp.generation, stamp.tail.index);
  }
  return kExitOk;
}

}  // namespace syncd::ctl
