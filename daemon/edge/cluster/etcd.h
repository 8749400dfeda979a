// The calls that a member makes to etcd. Each blocks until etcd answers or its time is over, so
// each thread that needs etcd waits for its own calls and nothing else. Two implementations: gRPC
// (daemon/edge/etcd, in a module that is loaded where [cluster] is configured), and a model for
// tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/core/cluster/transaction.h"
#include "daemon/core/engine/types.h"

namespace syncd::cluster {

using LeaseId = std::int64_t;  // drawn by the member, above 0; 0: none

struct EtcdOptions {
  std::vector<std::string> endpoints;  // "http://HOST:PORT" or "https://HOST:PORT"
  std::string ca_file;                 // of https endpoints; empty: the system's
  std::string certificate_file;        // of this member, with its key; empty: none
  std::string key_file;
  std::string user;  // empty: etcd's authentication is not used
  std::string password;
  // An endpoint of several that has not answered for so long, or for half of a call's own time-out,
  // is left for the next one.
  Micros silence = 1'000'000;
};

// Any thread; several calls at a time.
class Etcd {
 public:
  virtual ~Etcd() = default;

  // At most `timeout` microseconds. `lease`: for Op::Kind::kPutOnLease. A transaction without
  // compares that only gets is read page by page at one revision, whatever its size.
  virtual Answer transact(const Transaction& transaction, LeaseId lease, Micros timeout) = 0;

  // What etcd says of a lease.
  struct LeaseAnswer {
    bool known = false;  // false: nothing is known of the lease; `error` says why
    Micros ttl = 0;      // 0: there is no such lease
    std::uint64_t raft_term = 0;
    std::string error = {};
  };
  // etcd counts in seconds: `ttl` is rounded up.
  virtual LeaseAnswer grant(LeaseId lease, Micros ttl, Micros timeout) = 0;
  // Sent once, to one endpoint; the next call goes to another one if this one was silent.
  virtual LeaseAnswer keep_alive(LeaseId lease, Micros timeout) = 0;
  // Deletes the lease's keys. True: it is done, or there was no such lease.
  virtual bool revoke(LeaseId lease, Micros timeout, std::string& error) = 0;

  // Of the endpoint that answers first.
  struct Status {
    std::string version = {};  // "3.5.16"
    // Of its database: without pages that are free to be written anew; and of the file, which etcd
    // compares with its quota, and which only a defragmentation makes smaller.
    std::uint64_t used_bytes = 0;
    std::uint64_t file_bytes = 0;
  };
  virtual bool status(Status& status, Micros timeout, std::string& error) = 0;
};

// Makes the one of the module that speaks gRPC. Null, with a sentence in `error`: the module is not
// installed, or an option is wrong. No endpoint is asked yet.
std::unique_ptr<Etcd> open_etcd(const EtcdOptions& options, std::string& error);

}  // namespace syncd::cluster
