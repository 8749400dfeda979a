// What the cluster's parts ask of etcd, and what it answers: plain data, which the edge carries. No
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/cluster/format.h"

namespace syncd::cluster {

// The key's create revision is `revision` (0: there is no such key); or, if `value` is set, it has
// exactly this value.
struct Compare {
  std::string key;
  Revision revision = 0;
  std::optional<std::string> value = {};
};

struct Op {
  enum class Kind : std::uint8_t { kGet, kPut, kPutOnLease, kDelete };
  Kind kind = Kind::kGet;
  std::string key;
  std::string value = {};  // of a put
  std::string end = {};    // of a get or delete: all keys before it; empty: only this key
};

// If all of `compares` hold, all of `then` happens at one revision, else `otherwise`.
struct Transaction {
  std::vector<Compare> compares;
  std::vector<Op> then;
  std::vector<Op> otherwise;
};

struct KeyValue {
  std::string key;
  std::string value;
  Revision created = 0;
};

struct Answer {
  enum class Kind : std::uint8_t {
    kThen,
    kElse,
    kUnknown,  // every error and time-out but the next: it may have happened, or happen yet
    kRefused,  // INVALID_ARGUMENT or PERMISSION_DENIED: final
  };
  Kind kind = Kind::kUnknown;
  Revision revision = 0;           // etcd's, at the moment of the transaction
  std::vector<KeyValue> got = {};  // by the gets, in their order; absent keys are left out
  std::uint64_t raft_term = 0;     // of the etcd that answered
  std::string error = {};          // why it is kUnknown or kRefused: for the log

  const KeyValue* find(const std::string& key) const {
    for (const KeyValue& item : got) {
      if (item.key == key) return &item;
    }
    return nullptr;
  }
};

// What is to be sent now. The answer comes back with the number; answers of earlier ones are
// dropped.
struct Attempt {
  std::uint64_t number = 0;
  Transaction transaction;
};

}  // namespace syncd::cluster
