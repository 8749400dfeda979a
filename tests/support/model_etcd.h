// etcd as the cluster's parts see it, without its network: a linearizable map with revisions,
// create revisions, transactions and leases. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "daemon/core/cluster/transaction.h"

namespace syncd::test {

using LeaseId = std::uint64_t;  // 0: none

class ModelEtcd {
 public:
  struct Item {
    std::string value;
    cluster::Revision created = 0;
    LeaseId lease = 0;
  };

  // Whether it happens is decided now. kRefused: etcd would say INVALID_ARGUMENT (a key that is put
  // twice, too many operations, a request that is too large). kUnknown: the lease is over.
  cluster::Answer apply(const cluster::Transaction& transaction, LeaseId lease = 0);

  void grant(LeaseId lease, Micros ttl, Micros now) { leases_[lease] = {ttl, now + ttl}; }
  // The TTL; 0: there is no such lease.
  Micros keep_alive(LeaseId lease, Micros now);
  // Ends those that are over, and deletes their keys.
  void expire(Micros now);
  void revoke(LeaseId lease);

  cluster::Revision revision() const { return revision_; }
  const std::map<std::string, Item>& items() const { return items_; }
  const Item* find(const std::string& key) const {
    const auto at = items_.find(key);
    return at == items_.end() ? nullptr : &at->second;
  }
  // Called after each change.
  std::function<void()> on_change;

 private:
  bool holds(const cluster::Compare& compare) const;

  cluster::Revision revision_ = 1;
  std::map<std::string, Item> items_;
  struct Lease {
    Micros ttl = 0;
    Micros ends = 0;
  };
  std::map<LeaseId, Lease> leases_;
};

}  // namespace syncd::test
