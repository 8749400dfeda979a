// See administration.h.
#include "daemon/edge/cluster/administration.h"

#include <cstdio>
#include <tuple>

#include "daemon/core/cluster/format.h"
#include "daemon/core/cluster/take_over.h"
#include "daemon/edge/cluster/random_number.h"
#include "proto/transport/secret_file.h"

namespace syncd::cluster {

bool etcd_options(const config::Config& config, EtcdOptions& options, std::string& error) {
  const config::Config::Cluster& cluster = config.cluster;
  options.endpoints = cluster.etcd;
  options.ca_file = cluster.ca_file;
  options.certificate_file = cluster.certificate_file;
  options.key_file = cluster.key_file;
  options.user = cluster.user;
  options.silence = cluster.lease_us / 6;
  if (cluster.password_file.empty()) return true;
  std::string why;
  if (!read_secret_file(cluster.password_file, kTokenBytesMax, options.password, why)) {
    error = "cluster.password_file: " + why;
    return false;
  }
  while (options.password.ends_with('\n')) options.password.pop_back();
  return true;
}

bool create_cluster(Etcd& etcd, const std::string& name, Micros timeout, std::string& error) {
  Config config;
  config.shards = 1;
  for (std::uint8_t& byte : config.cluster) byte = static_cast<std::uint8_t>(random_number());
  const std::string key = config_key(name);
  Transaction put;
  const ShardKeys keys(name, Shard{0});
  put.compares = {{key, 0}, {keys.leader(), 0}};
  put.then = seed(keys);
  put.then.push_back({Op::Kind::kPut, key, encode(config)});
  put.otherwise = {{Op::Kind::kGet, key}, {Op::Kind::kGet, keys.leader()}};
  const Answer answer = etcd.transact(put, 0, timeout);
  if (answer.kind == Answer::Kind::kThen) return true;
  const KeyValue* there = answer.find(key);
  // An earlier attempt may have landed.
  if (there != nullptr && there->value == encode(config)) return true;
  const bool is_begun = there == nullptr && answer.find(keys.leader()) != nullptr;
  error = there != nullptr ? "cluster '" + name + "' exists already"
          : is_begun       ? "cluster '" + name +
                           "' was begun with a store, or has a member that still stops: call "
                           "`syncctl cluster init --from` again"
                     : answer.error;
  return false;
}

bool is_new_enough(const std::string& version, bool old_too, std::string& error) {
  int major = 0, minor = 0, patch = 0;
  const bool is_number = std::sscanf(version.c_str(), "%d.%d.%d", &major, &minor, &patch) == 3;
  const bool is_old = major == 3 && minor == 4;
  if (is_number && std::tuple(major, minor, patch) >= std::tuple(3, 5, 13)) return true;
  if (is_number && is_old && old_too) return true;
  error = "etcd is of version " + version +
          "; allowed: 3.5.13 or later, or 3.4 with cluster.etcd_old = true";
  return false;
}

bool read_status(Etcd& etcd, const std::string& name, Micros timeout, ClusterStatus& status,
                 std::string& error) {
  const ShardKeys keys(name, Shard{0});
  const std::string members = member_key(name, "");
  const Answer seen = etcd.transact({{},
                                     {{Op::Kind::kGet, config_key(name)},
                                      {Op::Kind::kGet, keys.leader()},
                                      {Op::Kind::kGet, keys.first()},
                                      {Op::Kind::kGet, keys.tail()},
                                      {Op::Kind::kGet, members, "", end_of(members)}},
                                     {}},
                                    0, timeout);
  if (seen.kind != Answer::Kind::kThen) {
    error = seen.error;
    return false;
  }
  const auto value = [&seen](const std::string& key, auto& into) {
    const KeyValue* item = seen.find(key);
    return item != nullptr && decode(item->value, into);
  };
  Config config;
  if (!value(config_key(name), config)) {
    error = seen.find(config_key(name)) != nullptr
                ? "cluster '" + name + "' is of a newer version of syncd"
                : "etcd knows no cluster '" + name +
                      "': set it up with `syncctl cluster init`, or correct cluster.name";
    return false;
  }
  Leader leader;
  First first;
  Tail tail;
  status.generation = config.generation;
  if (value(keys.leader(), leader)) {
    status.leader = leader.member;
    status.term = seen.find(keys.leader())->created;
  }
  if (value(keys.first(), first)) status.first = first.index;
  if (value(keys.tail(), tail)) status.last = tail.index;
  for (const KeyValue& item : seen.got) {
    Member member;
    if (!item.key.starts_with(members) || !decode(item.value, member)) continue;
    status.members.push_back({item.key.substr(members.size()), member.version, member.addresses,
                              member.copies.empty() ? 0 : member.copies.front(),
                              member.unfit.empty()});
  }
  return true;
}

}  // namespace syncd::cluster
