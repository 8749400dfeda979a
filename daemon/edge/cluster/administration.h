// What daemon and syncctl both do with a cluster. Any thread; calls to etcd block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/cluster/format.h"
#include "daemon/edge/cluster/etcd.h"
#include "daemon/edge/config/config.h"

namespace syncd::cluster {

// What `config` says of etcd. False, with a sentence in `error`: the password cannot be read.
bool etcd_options(const config::Config& config, EtcdOptions& options, std::string& error);
// What is in the files of certificates and of the password for etcd, to see whether they have
// changed. Empty: one of them cannot be read, as while it is being replaced.
std::string etcd_access(const config::Config& config);

// "4 shards: 0 to 3".
std::string shards_text(std::uint32_t shards);

// Of the rules by which clients are admitted: see net::Admission::fingerprint(). 0: the tokens
// cannot be read.
std::uint64_t auth_hash(const config::Config& config);

// Between the ports that a member listens on, to which each shard's process adds its number.
std::uint32_t port_gap(const config::Config& config);
// Whether that is enough for so many shards. False, with a sentence in `error`.
bool ports_fit(std::uint32_t gap, const std::string& name, std::uint32_t shards,
               std::string& error);

// The cluster's configuration, as an answer has it. False, with a sentence in `error`: it is not
// there, or this version cannot read it, or not what members of the cluster write.
bool parse_config(const Answer& answer, const std::string& name, Config& config,
                  std::string& error);

// What `syncctl cluster init` does. False, with a sentence in `error`: there is such a cluster, or
// etcd did not answer: it may have happened.
bool create_cluster(Etcd& etcd, const std::string& name, std::uint32_t shards, Micros timeout,
                    std::string& error);

// Whether members accept this version of etcd; if not, why. Earlier 3.5 has lost acknowledged data.
bool is_new_enough(const std::string& version, bool old_too, std::string& error);

// What etcd knows of a shard. A member that has died stays until its lease ends.
struct ShardStatus {
  struct Member {
    std::string name;
    std::string version;
    std::vector<std::string> addresses;
    std::uint64_t copy = 0;  // the last entry that its copy has; a few seconds old
    bool can_lead = true;
    std::uint32_t format = 0;     // of records: the highest that it reads
    std::uint64_t auth_hash = 0;  // see above; 0: it is not known
  };
  std::string leader;  // empty: none
  std::int64_t term = 0;
  std::uint64_t first = 0;  // entry of the log
  std::uint64_t last = 0;
  std::string pin;  // the member that an operator wants to lead; empty: none
  std::vector<Member> members;
};
struct ClusterStatus {
  std::uint64_t generation = 0;
  std::uint32_t format = 0;  // the highest format of records that members write
  std::vector<ShardStatus> shards;
  std::vector<std::string> draining;  // members, also such as are not there
};
// False, with a sentence in `error`: there is no such cluster, or etcd did not answer.
bool read_status(Etcd& etcd, const std::string& name, Micros timeout, ClusterStatus& status,
                 std::string& error);

// A member that drains hands over what it leads, and takes nothing, until it no longer drains. It
// need not be there. False, with a sentence in `error`: there is no such cluster, or etcd did not
// answer.
bool set_draining(Etcd& etcd, const std::string& name, const std::string& member, bool drains,
                  Micros timeout, std::string& error);
// From now on members write records of format `to`, and who cannot read it does not take part.
// False likewise; or it is not `from` any more.
bool raise_format(Etcd& etcd, const std::string& name, std::uint32_t from, std::uint32_t to,
                  Micros timeout, std::string& error);
// The shard's leader hands it over to the member, who keeps it whenever it is there; empty: it goes
// to any. False likewise; or there is no such shard.
bool set_pin(Etcd& etcd, const std::string& name, std::uint32_t shard, const std::string& member,
             Micros timeout, std::string& error);

}  // namespace syncd::cluster
