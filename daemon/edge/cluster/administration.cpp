// See administration.h.
#include "daemon/edge/cluster/administration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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
  put.compares = {{key, 0}};
  put.then = seed(ShardKeys(name, Shard{0}));
  put.then.push_back({Op::Kind::kPut, key, encode(config)});
  put.otherwise = {{Op::Kind::kGet, key}};
  const Answer answer = etcd.transact(put, 0, timeout);
  if (answer.kind == Answer::Kind::kThen) return true;
  const KeyValue* there = answer.find(key);
  // An earlier attempt may have landed.
  if (there != nullptr && there->value == encode(config)) return true;
  error = there != nullptr ? "cluster '" + name + "' exists already" : answer.error;
  return false;
}

bool describe_cluster(Etcd& etcd, const std::string& name, Micros timeout, std::string& text,
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
    error = "etcd knows no cluster '" + name + "', or it is of a newer version";
    return false;
  }
  Leader leader;
  First first;
  Tail tail;
  const bool is_led = value(keys.leader(), leader);
  value(keys.first(), first);
  value(keys.tail(), tail);
  text = fmt::format("cluster {}, generation {}\nleader {}\nlog {} entries, up to {}\n", name,
                     config.generation,
                     is_led ? fmt::format("{}, term {}.{}", leader.member, config.generation,
                                          seen.find(keys.leader())->created)
                            : "none",
                     tail.index + 1 - first.index, tail.index);
  for (const KeyValue& item : seen.got) {
    Member member;
    if (!item.key.starts_with(members) || !decode(item.value, member)) continue;
    const std::string name_of = item.key.substr(members.size());
    const Index copy = member.copies.empty() ? 0 : member.copies.front();
    const bool leads = is_led && leader.member == name_of;
    text +=
        fmt::format("member {}  version {}  {}{}  {}\n", name_of, member.version,
                    leads ? "leads" : fmt::format("copy at {}", copy),
                    member.unfit.empty() ? "" : "  cannot lead", fmt::join(member.addresses, ", "));
  }
  return true;
}

}  // namespace syncd::cluster
