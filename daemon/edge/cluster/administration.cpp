// See administration.h.
#include "daemon/edge/cluster/administration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <set>
#include <tuple>

#include "daemon/core/cluster/format.h"
#include "daemon/core/cluster/take_over.h"
#include "daemon/edge/cluster/random_number.h"
#include "daemon/edge/net/admission.h"
#include "proto/base/file.h"
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

std::string etcd_access(const config::Config& config) {
  const config::Config::Cluster& cluster = config.cluster;
  std::string all;
  for (const std::string& path :
       {cluster.ca_file, cluster.certificate_file, cluster.key_file, cluster.password_file}) {
    if (path.empty()) continue;
    std::string text;
    if (!read_file(path, text) || text.empty()) return {};
    all += text + '\0';
  }
  return all;
}

std::uint64_t auth_hash(const config::Config& config) {
  std::string ignored;
  const auto admission = net::Admission::make(config.auth, ignored);
  return admission == nullptr ? 0 : admission->fingerprint();
}

std::uint32_t port_gap(const config::Config& config) {
  std::set<std::uint16_t> ports;
  for (const net::TcpAddress& address : config.tcp) ports.insert(address.port);
  for (const net::TcpAddress& address : config.control.tcp) ports.insert(address.port);
  if (config.admin) ports.insert(config.admin->port);
  ports.erase(0);  // any free one
  std::uint32_t gap = UINT32_MAX;
  for (auto port = ports.begin(); port != ports.end() && std::next(port) != ports.end(); ++port) {
    gap = std::min<std::uint32_t>(gap, *std::next(port) - *port);
  }
  return gap;
}

std::string shards_text(Shard shards) {
  return shards == 1 ? "1 shard: 0" : fmt::format("{} shards: 0 to {}", shards, shards - 1);
}

bool ports_fit(std::uint32_t gap, const std::string& name, Shard shards, std::string& error) {
  if (gap >= shards) return true;
  error = fmt::format(
      "the ports of listen.tcp, listen.admin and listen.control are {} apart, and the processes "
      "of cluster '{}' add 0 to {} to them: they would meet; allowed: {} apart, or more",
      gap, name, shards - 1, shards);
  return false;
}

bool parse_config(const Answer& answer, const std::string& name, Config& config,
                  std::string& error) {
  const KeyValue* item = answer.find(config_key(name));
  if (item == nullptr) {
    error = "etcd knows no cluster '" + name +
            "': set it up with `syncctl cluster init`, or correct cluster.name; if it was there "
            "before, etcd has lost its data: begin with a member's copy, `init --from`";
  } else if (!decode(item->value, config)) {
    error =
        "the configuration of cluster '" + name + "' is damaged, or of a newer version of syncd";
  } else if (config.format > kFormat) {
    error = fmt::format(
        "members of cluster '{}' write records of format {}, and this version reads formats up to "
        "{}: install the version that they have",
        name, config.format, kFormat);
  } else {
    return true;
  }
  return false;
}

bool create_cluster(Etcd& etcd, const std::string& name, Shard shards, Micros timeout,
                    std::string& error) {
  Config config;
  config.shards = shards;
  for (std::uint8_t& byte : config.cluster) byte = static_cast<std::uint8_t>(random_number());
  const std::string key = config_key(name);
  const std::string leader = ShardKeys(name, Shard{0}).leader();
  Transaction put;
  put.compares = {{key, 0}, {leader, 0}};
  put.otherwise = {{Op::Kind::kGet, key}, {Op::Kind::kGet, leader}};
  // What there is of shards without a configuration is of an attempt before.
  for (Shard shard = 1; shard < shards; ++shard) {
    const Answer seeded = etcd.transact({{{key, 0}}, seed(ShardKeys(name, shard)), {}}, 0, timeout);
    if (seeded.kind != Answer::Kind::kUnknown && seeded.kind != Answer::Kind::kRefused) continue;
    error = seeded.error;
    return false;
  }
  put.then = seed(ShardKeys(name, Shard{0}));
  put.then.push_back({Op::Kind::kPut, key, encode(config)});
  const Answer answer = etcd.transact(put, 0, timeout);
  if (answer.kind == Answer::Kind::kThen) return true;
  const KeyValue* there = answer.find(key);
  // An earlier attempt may have landed.
  if (there != nullptr && there->value == encode(config)) return true;
  const bool is_begun = there == nullptr && answer.find(leader) != nullptr;
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

namespace {

// The cluster's configuration, and the key's create revision. False, with a sentence in `error`.
bool read_config(Etcd& etcd, const std::string& name, Micros timeout, Config& config,
                 Revision& created, std::string& error) {
  const std::string key = config_key(name);
  const Answer seen = etcd.transact({{}, {{Op::Kind::kGet, key}}, {}}, 0, timeout);
  if (seen.kind != Answer::Kind::kThen) {
    error = seen.error;
    return false;
  }
  if (!parse_config(seen, name, config, error)) return false;
  created = seen.find(key)->created;
  return true;
}

bool read_shard(Etcd& etcd, const ShardKeys& keys, Micros timeout, ShardStatus& status,
                std::string& error) {
  const std::string members = keys.members();
  const Answer seen = etcd.transact({{},
                                     {{Op::Kind::kGet, keys.leader()},
                                      {Op::Kind::kGet, keys.first()},
                                      {Op::Kind::kGet, keys.tail()},
                                      {Op::Kind::kGet, keys.pin()},
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
  Leader leader;
  First first;
  Tail tail;
  if (value(keys.leader(), leader)) {
    status.leader = leader.member;
    status.term = seen.find(keys.leader())->created;
  }
  if (value(keys.first(), first)) status.first = first.index;
  if (value(keys.tail(), tail)) status.last = tail.index;
  if (const KeyValue* pin = seen.find(keys.pin())) status.pin = pin->value;
  for (const KeyValue& item : seen.got) {
    Member member;
    if (!item.key.starts_with(members) || !decode(item.value, member)) continue;
    status.members.push_back({item.key.substr(members.size()), member.version, member.addresses,
                              member.copies.empty() ? 0 : member.copies.front(),
                              member.unfit.empty(), member.format, member.auth_hash});
  }
  return true;
}

// Puts the key, or deletes it where there is nothing to put, if the cluster is there.
bool mark(Etcd& etcd, const std::string& name, Revision config_created, const std::string& key,
          const std::string& value, Micros timeout, std::string& error) {
  Transaction change;
  change.compares = {{config_key(name), config_created}};
  change.then = {{value.empty() ? Op::Kind::kDelete : Op::Kind::kPut, key, value}};
  const Answer answer = etcd.transact(change, 0, timeout);
  if (answer.kind == Answer::Kind::kThen) return true;
  error = answer.kind == Answer::Kind::kElse ? "the cluster was set up anew meanwhile: try again"
                                             : answer.error;
  return false;
}

}  // namespace

bool read_status(Etcd& etcd, const std::string& name, Micros timeout, ClusterStatus& status,
                 std::string& error) {
  Config config;
  Revision created = 0;
  if (!read_config(etcd, name, timeout, config, created, error)) return false;
  status.generation = config.generation;
  status.format = config.format;
  for (Shard shard = 0; shard < config.shards; ++shard) {
    if (!read_shard(etcd, ShardKeys(name, shard), timeout, status.shards.emplace_back(), error)) {
      return false;
    }
  }
  const std::string prefix = draining_keys(name);
  const Answer marks =
      etcd.transact({{}, {{Op::Kind::kGet, prefix, "", end_of(prefix)}}, {}}, 0, timeout);
  error = marks.error;
  for (const KeyValue& item : marks.got) status.draining.push_back(item.key.substr(prefix.size()));
  return marks.kind == Answer::Kind::kThen;
}

bool set_draining(Etcd& etcd, const std::string& name, const std::string& member, bool drains,
                  Micros timeout, std::string& error) {
  Config config;
  Revision created = 0;
  return read_config(etcd, name, timeout, config, created, error) &&
         mark(etcd, name, created, draining_key(name, member), drains ? "drains" : "", timeout,
              error);
}

bool raise_format(Etcd& etcd, const std::string& name, std::uint32_t from, std::uint32_t to,
                  Micros timeout, std::string& error) {
  Config config;
  Revision created = 0;
  if (!read_config(etcd, name, timeout, config, created, error)) return false;
  if (config.format == to) return true;
  const std::string changed = "somebody else has changed the cluster meanwhile: look again";
  if (config.format != from) {
    error = changed;
    return false;
  }
  const std::string key = config_key(name);
  Config raised = config;
  raised.format = to;
  const Answer answer = etcd.transact(
      {{{key, 0, encode(config)}}, {{Op::Kind::kPut, key, encode(raised)}}, {}}, 0, timeout);
  if (answer.kind == Answer::Kind::kThen) return true;
  error = answer.kind == Answer::Kind::kElse ? changed : answer.error;
  return false;
}

bool set_pin(Etcd& etcd, const std::string& name, Shard shard, const std::string& member,
             Micros timeout, std::string& error) {
  Config config;
  Revision created = 0;
  if (!read_config(etcd, name, timeout, config, created, error)) return false;
  if (shard >= config.shards) {
    error = fmt::format("cluster '{}' has no shard {}: it has {}", name, shard,
                        shards_text(config.shards));
    return false;
  }
  return mark(etcd, name, created, ShardKeys(name, shard).pin(), member, timeout, error);
}

}  // namespace syncd::cluster
