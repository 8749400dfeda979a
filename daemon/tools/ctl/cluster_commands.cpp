// `syncctl cluster`: what operators do to a cluster, in etcd. No daemon is asked.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "daemon/edge/cluster/administration.h"
#include "daemon/edge/cluster/seeding.h"
#include "daemon/edge/config/config.h"
#include "daemon/tools/ctl/asking.h"
#include "daemon/tools/ctl/commands.h"
#include "proto/base/names.h"

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
  // As the file has it, for all shards.
  config::Environment environment = config::environment_of(environ);
  std::erase_if(environment, [](const auto& item) { return item.first == "SYNCD_CLUSTER_SHARD"; });
  if (!config::load(flags, environment, loaded, errors)) {
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

bool is_draining(const cluster::ClusterStatus& status, const std::string& member) {
  return std::ranges::find(status.draining, member) != status.draining.end();
}

void print(const cluster::ClusterStatus& status, std::size_t number) {
  const cluster::ShardStatus& shard = status.shards[number];
  if (status.shards.size() > 1) std::cout << fmt::format("shard {}\n", number);
  std::cout << fmt::format("leader {}{}\nlog {} entries, up to {}\n",
                           shard.leader.empty() ? "none"
                                                : fmt::format("{}, term {}.{}", shard.leader,
                                                              status.generation, shard.term),
                           shard.pin.empty() ? "" : fmt::format(", wanted: {}", shard.pin),
                           shard.last + 1 - shard.first, shard.last);
  for (const auto& member : shard.members) {
    const bool leads = member.name == shard.leader;
    const bool drains = is_draining(status, member.name);
    std::cout << fmt::format("member {}  version {}  {}{}  {}\n", member.name, member.version,
                             leads ? "leads" : fmt::format("copy at {}", member.copy),
                             drains            ? "  drains"
                             : leads           ? ""
                             : member.can_lead ? "  could lead"
                                               : "  cannot lead",
                             fmt::join(member.addresses, ", "));
  }
}

// A machine on which the process of a shard is not there, or was forgotten.
void warn_of_missing(const cluster::ClusterStatus& status) {
  std::map<std::string, std::set<std::size_t>> shards_of;
  for (std::size_t shard = 0; shard < status.shards.size(); ++shard) {
    for (const auto& member : status.shards[shard].members) shards_of[member.name].insert(shard);
  }
  for (const auto& [member, shards] : shards_of) {
    std::vector<std::size_t> missing;
    for (std::size_t shard = 0; shard < status.shards.size(); ++shard) {
      if (!shards.contains(shard)) missing.push_back(shard);
    }
    if (missing.empty()) continue;
    std::cout << fmt::format(
        "warning: member '{}' is missing in shard {}: start its process there\n", member,
        fmt::join(missing, ", "));
  }
}

nlohmann::json json_of(const cluster::ShardStatus& shard) {
  nlohmann::json members = nlohmann::json::array();
  for (const auto& member : shard.members) {
    members.push_back({{"name", member.name},
                       {"version", member.version},
                       {"format", member.format},
                       {"addresses", member.addresses},
                       {"copy", member.copy},
                       {"can_lead", member.can_lead}});
  }
  return {{"leader", shard.leader}, {"term", shard.term}, {"first", shard.first},
          {"last", shard.last},     {"pin", shard.pin},   {"members", members}};
}

// After a take-over such members would not treat all clients as the leader does.
void warn_of_auth(const cluster::ClusterStatus& status) {
  std::map<std::uint64_t, std::set<std::string>> members;
  for (const auto& shard : status.shards) {
    for (const auto& member : shard.members) {
      if (member.auth_hash != 0) members[member.auth_hash].insert(member.name);
    }
  }
  if (members.size() < 2) return;
  std::vector<std::string> alike;
  for (const auto& [hash, names] : members) {
    alike.push_back(fmt::format("{}", fmt::join(names, ", ")));
  }
  std::cout << fmt::format(
      "warning: [auth] or its tokens differ: {}: make them the same, and restart who follows\n",
      fmt::join(alike, " from "));
}

// At its quota it takes nothing.
void print(const cluster::Etcd::Status& etcd, std::uint64_t quota_bytes) {
  constexpr double kMiB = 1 << 20;
  std::cout << fmt::format("etcd {}, {:.1f} of {} MiB, file {:.1f} MiB\n", etcd.version,
                           static_cast<double>(etcd.used_bytes) / kMiB, quota_bytes >> 20,
                           static_cast<double>(etcd.file_bytes) / kMiB);
  if (etcd.file_bytes > quota_bytes / 10 * 8) {
    std::cout << "warning: etcd's file comes to its quota, where it takes nothing: compact, "
                 "defragment and, "
                 "if `etcdctl alarm list` shows one, disarm\n";
  }
  if (etcd.used_bytes < quota_bytes / 2) return;
  std::cout
      << "warning: etcd fills, and above 60 % of its quota pushes are refused: does it run with "
         "--auto-compaction-retention=1m?\n";
}

void print_json(const std::string& name, const cluster::ClusterStatus& status,
                const cluster::Etcd::Status& etcd) {
  nlohmann::json json;
  if (status.shards.size() == 1) {
    json = json_of(status.shards.front());
  } else {
    for (const auto& shard : status.shards) json["shards"].push_back(json_of(shard));
  }
  json["cluster"] = name;
  json["generation"] = status.generation;
  json["format"] = status.format;
  json["etcd_bytes"] = etcd.used_bytes;
  json["etcd_file_bytes"] = etcd.file_bytes;
  json["draining"] = status.draining;
  std::cout << json.dump() << '\n';
}

// Of a member that an operator names. False: it was complained about.
bool is_member_name(const std::string& name) {
  if (is_name(name)) return true;
  complain(kExitUsage,
           fmt::format("'{}' is no member's name; allowed: 1 to 64 of A-Z a-z 0-9 . _ -", name));
  return false;
}

// A typing error must not look like something that was done: a member that etcd does not know needs
// --absent. False: it was complained about.
bool is_known(const cluster::ClusterStatus& status, const Options& options) {
  std::set<std::string> there;
  std::set<std::string> named(status.draining.begin(), status.draining.end());
  for (const auto& shard : status.shards) {
    for (const auto& member : shard.members) there.insert(member.name);
    named.insert(shard.pin);
  }
  if (there.contains(options.member)) return true;
  const std::string absent =
      fmt::format("no member '{}' is there now; there are: {}", options.member,
                  there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", ")));
  if (options.absent || named.contains(options.member)) {
    std::cout << absent << '\n';
    return true;
  }
  complain(kExitRefused, absent + "; if it is to come, say --absent");
  return false;
}

// Opens the cluster, and reads it. Null: `code` is the exit status, and it was said why.
std::unique_ptr<cluster::Etcd> reach(const Options& options, config::Config& config,
                                     cluster::ClusterStatus& status, int& code,
                                     cluster::Etcd::Status* asked = nullptr) {
  auto etcd = open(options, config, code);
  const Micros timeout = options.timeout_ms * 1000;
  std::string error;
  cluster::Etcd::Status ignored;
  if (etcd == nullptr) return nullptr;
  if (!etcd->status(asked != nullptr ? *asked : ignored, timeout, error)) {
    code = complain(kExitUnreachable, error);
  } else if (!cluster::read_status(*etcd, config.cluster.name, timeout, status, error)) {
    code = complain(kExitRefused, error);
  } else {
    return etcd;
  }
  return nullptr;
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
  if (!options.from_store.empty() && options.shards != 1) {
    return complain(
        kExitUsage,
        "--from goes without --shards: the store says how many there are, and that of a "
        "single daemon has one");
  }
  config::Config config;
  int code = kExitOk;
  const auto etcd = open(options, config, code);
  if (etcd == nullptr) return code;
  std::string error;
  cluster::Etcd::Status asked;
  if (!etcd->status(asked, options.timeout_ms * 1000, error)) {
    return complain(kExitUnreachable, error);
  }
  if (!cluster::is_new_enough(asked.version, config.cluster.old_etcd, error)) {
    return complain(kExitUsage, error);
  }
  if (!options.from_store.empty()) return init_from(options, config, *etcd);
  if (!cluster::ports_fit(cluster::port_gap(config), config.cluster.name, options.shards, error)) {
    return complain(kExitUsage, error);
  }
  cluster::ClusterStatus there;
  if (!cluster::may_begin_without(config.store_path, error)) {
    // If the cluster is there, that is what is wrong.
    std::string ignored;
    const Micros timeout = options.timeout_ms * 1000;
    if (!cluster::read_status(*etcd, config.cluster.name, timeout, there, ignored)) {
      return complain(kExitRefused, "store.path: " + error);
    }
  }
  if (!cluster::create_cluster(*etcd, config.cluster.name, options.shards,
                               options.timeout_ms * 1000, error)) {
    return complain(kExitRefused, error);
  }
  std::cout << fmt::format(
      "cluster '{}' is set up: start its members with this configuration, each with its own "
      "cluster.member and store.path{}\n",
      config.cluster.name,
      options.shards == 1
          ? ""
          : fmt::format(", and on each machine a process for each of cluster.shard = 0 to {}",
                        options.shards - 1));
  return kExitOk;
}

int run_cluster_status(const Options& options) {
  config::Config config;
  int code = kExitOk;
  cluster::ClusterStatus status;
  cluster::Etcd::Status asked;
  const auto etcd = reach(options, config, status, code, &asked);
  if (etcd == nullptr) return code;
  if (options.json) {
    print_json(config.cluster.name, status, asked);
    return kExitOk;
  }
  std::cout << fmt::format(
      "cluster {}, generation {}{}\n", config.cluster.name, status.generation,
      status.shards.size() == 1 ? "" : fmt::format(", {} shards", status.shards.size()));
  print(asked, config.cluster.etcd_quota_bytes);
  for (const std::string& member : status.draining) {
    std::cout << fmt::format("member '{}' is drained\n", member);
  }
  for (std::size_t shard = 0; shard < status.shards.size(); ++shard) print(status, shard);
  warn_of_missing(status);
  warn_of_auth(status);
  return kExitOk;
}

int run_cluster_drain(const Options& options) {
  if (!is_member_name(options.member)) return kExitUsage;
  config::Config config;
  int code = kExitOk;
  cluster::ClusterStatus status;
  const auto etcd = reach(options, config, status, code);
  if (etcd == nullptr) return code;
  if (!options.undo && !is_known(status, options)) return kExitRefused;
  std::string error;
  if (!cluster::set_draining(*etcd, config.cluster.name, options.member, !options.undo,
                             options.timeout_ms * 1000, error)) {
    return complain(kExitRefused, error);
  }
  if (options.undo) {
    std::cout << fmt::format("member '{}' may lead again\n", options.member);
  } else {
    std::cout << fmt::format(
        "member '{}' hands over what it leads, if another member can lead, and takes nothing until "
        "`cluster drain --undo`\n",
        options.member);
  }
  return kExitOk;
}

int run_cluster_move(const Options& options) {
  if (!options.undo && options.member.empty()) {
    return complain(kExitUsage, "name the member that is to lead the shard, or --undo");
  }
  if (!options.undo && !is_member_name(options.member)) return kExitUsage;
  config::Config config;
  int code = kExitOk;
  cluster::ClusterStatus status;
  const auto etcd = reach(options, config, status, code);
  if (etcd == nullptr) return code;
  if (!options.undo && !is_known(status, options)) return kExitRefused;
  std::string error;
  if (!cluster::set_pin(*etcd, config.cluster.name, options.shard,
                        options.undo ? std::string() : options.member, options.timeout_ms * 1000,
                        error)) {
    return complain(kExitRefused, error);
  }
  if (options.undo) {
    std::cout << fmt::format("shard {} may be led by any member\n", options.shard);
  } else {
    std::cout << fmt::format(
        "shard {} goes to member '{}' once its copy is close to the log's end, until `cluster move "
        "--undo`\n",
        options.shard, options.member);
    if (is_draining(status, options.member)) {
      std::cout << fmt::format(
          "member '{0}' is drained: the shard does not go there before `cluster drain {0} "
          "--undo`\n",
          options.member);
    }
  }
  return kExitOk;
}

int run_cluster_finish_upgrade(const Options& options) {
  config::Config config;
  int code = kExitOk;
  cluster::ClusterStatus status;
  const auto etcd = reach(options, config, status, code);
  if (etcd == nullptr) return code;
  std::map<std::string, std::uint32_t> formats;  // by member: what all its processes read
  for (const auto& shard : status.shards) {
    for (const auto& member : shard.members) {
      const auto [at, is_new] = formats.emplace(member.name, member.format);
      at->second = std::min(at->second, member.format);
    }
  }
  if (formats.empty()) {
    return complain(
        kExitRefused,
        "no member is there: running members say which format they read; start all of them first");
  }
  const auto by_format = [](const auto& one, const auto& other) {
    return one.second < other.second;
  };
  const auto [least, most] = std::ranges::minmax_element(formats, by_format);
  if (least->second != most->second) {
    return complain(
        kExitRefused,
        fmt::format("member '{}' reads records of format {} at most, and member '{}' of format {}: "
                    "upgrade it first",
                    least->first, least->second, most->first, most->second));
  }
  const std::uint32_t format = least->second;
  if (format <= status.format) {
    std::cout << fmt::format(
        "cluster '{}' writes records of format {}, the highest that its members read: there is "
        "nothing to do\n",
        config.cluster.name, status.format);
    return kExitOk;
  }
  std::string error;
  if (!cluster::raise_format(*etcd, config.cluster.name, status.format, format,
                             options.timeout_ms * 1000, error)) {
    return complain(kExitRefused, error);
  }
  std::cout << fmt::format("cluster '{}' writes records of format {} from now on; it was {}\n",
                           config.cluster.name, format, status.format);
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
