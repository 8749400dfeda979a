// What daemon and syncctl both do with a cluster. Any thread; calls to etcd block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/edge/cluster/etcd.h"
#include "daemon/edge/config/config.h"

namespace syncd::cluster {

// What `config` says of etcd. False, with a sentence in `error`: the password cannot be read.
bool etcd_options(const config::Config& config, EtcdOptions& options, std::string& error);

// What `syncctl cluster init` does. False, with a sentence in `error`: there is such a cluster, or
// etcd did not answer: it may have happened.
bool create_cluster(Etcd& etcd, const std::string& name, Micros timeout, std::string& error);

// Whether members accept this version of etcd; if not, why. Earlier 3.5 has lost acknowledged data.
bool is_new_enough(const std::string& version, bool old_too, std::string& error);

// What etcd knows of a cluster. A member that has died stays until its lease ends.
struct ClusterStatus {
  struct Member {
    std::string name;
    std::string version;
    std::vector<std::string> addresses;
    std::uint64_t copy = 0;  // the last entry that its copy has; a few seconds old
    bool can_lead = true;
  };
  std::uint64_t generation = 0;
  std::string leader;  // empty: none
  std::int64_t term = 0;
  std::uint64_t first = 0;  // entry of the log
  std::uint64_t last = 0;
  std::vector<Member> members;
};
// False, with a sentence in `error`: there is no such cluster, or etcd did not answer.
bool read_status(Etcd& etcd, const std::string& name, Micros timeout, ClusterStatus& status,
                 std::string& error);

}  // namespace syncd::cluster
