// What the tests of this folder share: etcd as a model behind the calls that a member makes, and a
// cluster in it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "daemon/core/cluster/format.h"
#include "daemon/core/cluster/take_over.h"
#include "daemon/edge/cluster/copy.h"
#include "daemon/edge/cluster/etcd.h"
#include "tests/support/model_etcd.h"
#include "tests/unit/store/samples.h"
#include "tests/unit/store/store_fixture.h"

namespace syncd::cluster {

inline const ShardKeys kKeys("lab", 0);

class ModelCalls final : public Etcd {
 public:
  Answer transact(const Transaction& transaction, LeaseId lease, Micros /*timeout*/) override {
    const std::lock_guard lock(mutex_);
    return fault ? fault(transaction) : apply(transaction, lease);
  }
  LeaseAnswer grant(LeaseId lease, Micros ttl, Micros /*timeout*/) override {
    const std::lock_guard lock(mutex_);
    model_.grant(static_cast<test::LeaseId>(lease), ttl, 0);
    return {true, ttl};
  }
  LeaseAnswer keep_alive(LeaseId lease, Micros /*timeout*/) override {
    const std::lock_guard lock(mutex_);
    return {true, model_.keep_alive(static_cast<test::LeaseId>(lease), 0)};
  }
  bool revoke(LeaseId lease, Micros /*timeout*/, std::string& /*error*/) override {
    const std::lock_guard lock(mutex_);
    model_.revoke(static_cast<test::LeaseId>(lease));
    return true;
  }
  bool status(Status& status, Micros /*timeout*/, std::string& /*error*/) override {
    status.version = "3.5.16";
    return true;
  }

  // Without faults; also for faults, which hold the lock.
  Answer apply(const Transaction& transaction, LeaseId lease = 0) {
    return model_.apply(transaction, static_cast<test::LeaseId>(lease));
  }
  void set_fault(std::function<Answer(const Transaction&)> wanted) {
    const std::lock_guard lock(mutex_);
    fault = std::move(wanted);
  }
  // What a member that takes over would read.
  TakeOver read(Index from = 1) {
    const std::lock_guard lock(mutex_);
    TakeOver read;
    std::string error;
    EXPECT_TRUE(parse_take_over(kKeys, apply(take_over_read(kKeys, from)), read, error, from))
        << error;
    return read;
  }
  std::string fetch(JobId job, const Pointer& pointer) {
    const std::lock_guard lock(mutex_);
    std::string bytes;
    for (std::uint32_t i = 0; i < pointer.parts; ++i) {
      Part part;
      const auto* item = model_.find(kKeys.snapshot_part(job, pointer.term, pointer.sequence, i));
      EXPECT_TRUE(item != nullptr && decode(item->value, part));
      bytes += part.bytes;
    }
    return bytes;
  }

 private:
  std::mutex mutex_;
  test::ModelEtcd model_;
  std::function<Answer(const Transaction&)> fault;
};

class ClusterTest : public testing::Test {
 protected:
  ClusterTest() {
    config_.shards = 1;
    config_.cluster[0] = 7;
    EXPECT_EQ(etcd_.apply({{}, seed(kKeys), {}}).kind, Answer::Kind::kThen);
  }

  // Of a member that creates the leader key now.
  Term lead() {
    etcd_.apply({{}, {{Op::Kind::kDelete, kKeys.leader()}}, {}});
    const Answer answer = etcd_.apply(
        {{}, {{Op::Kind::kPut, kKeys.leader(), encode(Leader{{++lives_, 0}, "a"})}}, {}});
    return {config_.generation, answer.revision};
  }

  std::unique_ptr<Copy> open_copy(const std::string& path) {
    store::Options options;
    options.path = path;
    auto copy = std::make_unique<Copy>(
        options, 0, [this](JobId job, const Pointer& pointer, std::string& bytes, std::string&) {
          bytes = etcd_.fetch(job, pointer);
          return fetches_left_-- > 0;
        });
    std::string error;
    EXPECT_TRUE(copy->open(error)) << error;
    return copy;
  }
  void take_up(Copy& copy) {
    std::string error;
    EXPECT_EQ(copy.take_up(config_, etcd_.read(), error), Copy::Took::kAll) << error;
  }

  store::TempDir dir_;
  ModelCalls etcd_;
  Config config_;
  std::uint64_t lives_ = 0;
  int fetches_left_ = 1'000;  // that succeed
};

}  // namespace syncd::cluster
