// A cluster that is made of a store.
#include "daemon/edge/cluster/seeding.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include "daemon/edge/cluster/administration.h"
#include "fixture.h"

namespace syncd::cluster {
namespace {

using store::creation;
using store::push;
using ::testing::HasSubstr;

class SeedingTest : public ClusterTest {
 protected:
  SeedingTest() {
    // No cluster is there yet.
    etcd_.apply({{}, {{Op::Kind::kDelete, "/syncd/lab/", "", end_of("/syncd/lab/")}}, {}});
  }
  std::string at(const std::string& name) const { return dir_.path() + "/" + name; }
  std::unique_ptr<store::Store> open(const std::string& path, bool is_copy) {
    store::Options options;
    options.path = path;
    options.is_copy = is_copy;
    std::string error;
    auto store = store::open_rocks_store(options, error);
    EXPECT_NE(store, nullptr) << error;
    return store;
  }
  void write(const std::string& path, store::Batch batch, bool is_copy = false) {
    const auto store = open(path, is_copy);
    std::vector<store::RecoveredJob> jobs;
    std::string error;
    ASSERT_TRUE(store->load(jobs, error)) << error;
    store->start([](const store::CommitReport&) {});
    ASSERT_TRUE(store->submit(1, std::move(batch)));
    ASSERT_TRUE(store->close(10'000'000, error)) << error;
  }
  std::string refusal(const std::string& path) {
    Seeded seeded;
    std::string error;
    EXPECT_FALSE(seed_from(etcd_, "lab", path, 1'000'000, seeded, error));
    return error;
  }
  Seeded seed_with(const std::string& path) {
    Seeded seeded;
    std::string error;
    EXPECT_TRUE(seed_from(etcd_, "lab", path, 1'000'000, seeded, error)) << error;
    const Answer answer = etcd_.apply({{}, {{Op::Kind::kGet, config_key("lab")}}, {}});
    EXPECT_TRUE(!answer.got.empty() && decode(answer.got.front().value, config_));
    return seeded;
  }
  // Of each job, as the copy at `path` has it: its snapshot's sequence, then its records'.
  std::map<JobId, std::vector<Sequence>> jobs_of(const std::string& path) {
    std::map<JobId, std::vector<Sequence>> found;
    const auto store = open(path, true);
    std::vector<store::RecoveredJob> jobs;
    std::string error;
    EXPECT_TRUE(store->load(jobs, error)) << error;
    for (const store::RecoveredJob& job : jobs) {
      const JobId id = job.snapshot ? job.snapshot->created.job : job.records.front().job;
      found[id].push_back(job.snapshot ? job.snapshot->sequence : 0);
      for (const Record& record : job.records) found[id].push_back(record.sequence);
    }
    return found;
  }
};

store::Batch two_jobs() {
  store::Batch batch;
  for (const JobId job : {1, 2}) {
    batch.records.push_back(creation(job, job == 1 ? "one" : "two"));
    for (Sequence sequence = 2; sequence <= 4; ++sequence) {
      batch.records.push_back(push(job, sequence));
    }
  }
  batch.snapshots.push_back(store::sample_snapshot(2, 3));
  return batch;
}

TEST_F(SeedingTest, ASingleDaemonsJobsAreInEveryCopy) {
  write(at("alone"), two_jobs());
  const Seeded seeded = seed_with(at("alone"));
  EXPECT_EQ(seeded.generation, 1U);
  EXPECT_EQ(seeded.jobs, 2U);

  // The store goes on as it is; an empty one is made of snapshots and log.
  {
    const auto own = open_copy(at("alone"));
    const Tail tail = own->stamp().tail;
    EXPECT_EQ(tail, etcd_.read().tail);
    take_up(*own);
    EXPECT_EQ(own->set_aside(), "");
    const auto empty = open_copy(at("empty"));
    take_up(*empty);
    EXPECT_EQ(empty->stamp(), own->stamp());
  }
  const std::map<JobId, std::vector<Sequence>> all{{1, {0, 1, 2, 3, 4}}, {2, {3, 4}}};
  EXPECT_EQ(jobs_of(at("alone")), all);
  EXPECT_EQ(jobs_of(at("empty")), all);

  // There is a log to go on with, and nothing of who has made it.
  EXPECT_EQ(etcd_.apply({{}, {{Op::Kind::kGet, kKeys.leader()}}, {}}).got.size(), 0U);
  EXPECT_THAT(refusal(at("alone")), HasSubstr("start the members"));
}

TEST_F(SeedingTest, ARecordLargerThanAnEntryIsThere) {
  store::Batch batch;
  batch.records.push_back(creation(1));
  batch.records.front().config = std::string(3 << 20, '1');
  write(at("alone"), std::move(batch));
  seed_with(at("alone"));
  const auto empty = open_copy(at("empty"));
  take_up(*empty);
  EXPECT_EQ(etcd_.read().log.size(), 1U);
}

TEST_F(SeedingTest, EtcdThatLostItsDataBeginsWithACopy) {
  write(at("copy"), two_jobs());
  seed_with(at("copy"));
  const Config before = config_;
  {
    const auto other = open_copy(at("other"));
    take_up(*other);
  }
  etcd_.apply({{}, {{Op::Kind::kDelete, "/syncd/", "", end_of("/syncd/")}}, {}});
  EXPECT_EQ(seed_with(at("copy")).generation, 2U);
  EXPECT_EQ(config_.cluster, before.cluster);
  const auto other = open_copy(at("other"));
  take_up(*other);
  EXPECT_NE(other->set_aside(), "") << "it is of the generation before";
}

TEST_F(SeedingTest, ACopyOfAnyShardIsNotBegunWithout) {
  std::string error;
  EXPECT_TRUE(may_begin_without(at("copy"), error)) << error;
  write(at("copy"), two_jobs());
  EXPECT_TRUE(may_begin_without(at("copy"), error)) << error;  // of a single daemon
  seed_with(at("copy"));
  EXPECT_FALSE(may_begin_without(at("copy"), error));
  EXPECT_THAT(error, HasSubstr("of generation 1: begin with it, `syncctl cluster init --from " +
                               at("copy") + "`"));
  std::filesystem::rename(at("copy"), at("copy.3"));
  EXPECT_FALSE(may_begin_without(at("copy"), error));
  EXPECT_THAT(error, HasSubstr(at("copy.3")));
}

TEST_F(SeedingTest, EtcdThatWasSetBackBeginsWithTheCopyThatIsAhead) {
  write(at("copy"), two_jobs());
  seed_with(at("copy"));
  Stamp ahead;
  {
    const auto copy = open_copy(at("copy"));
    ahead = copy->stamp();
  }
  ahead.tail = {ahead.tail.index + 1, {99, 1}};
  store::Batch batch;
  batch.records.push_back(push(1, 5));
  batch.stamp = to_text(ahead);
  write(at("copy"), std::move(batch), true);
  EXPECT_EQ(seed_with(at("copy")).generation, 2U);
  const auto empty = open_copy(at("empty"));
  take_up(*empty);
  EXPECT_EQ(empty->stamp().tail, etcd_.read().tail);
}

TEST_F(SeedingTest, AnswersThatGetLostChangeNothing) {
  write(at("alone"), two_jobs());
  int calls = 0;
  etcd_.set_fault([&](const Transaction& transaction) {
    const Answer answer = etcd_.apply(transaction);
    if (++calls % 2 == 0) return answer;
    return Answer{Answer::Kind::kUnknown, 0, {}, 0, "lost"};
  });
  EXPECT_EQ(seed_with(at("alone")).jobs, 2U);
  etcd_.set_fault(nullptr);
  const auto empty = open_copy(at("empty"));
  take_up(*empty);
}

// Wherever it ends, no member finds a cluster, and another call makes it.
TEST_F(SeedingTest, OneThatWasCutOffBeginsAnew) {
  write(at("alone"), two_jobs());
  int begun = 0;
  int calls_until_done = 0;
  for (int last = 1; calls_until_done == 0; ++last) {
    int calls = 0;
    etcd_.set_fault([&](const Transaction& transaction) {
      if (++calls <= last) return etcd_.apply(transaction);
      return Answer{Answer::Kind::kRefused, 0, {}, 0, "cut off"};
    });
    Seeded seeded;
    std::string error;
    if (seed_from(etcd_, "lab", at("alone"), 1'000'000, seeded, error)) {
      calls_until_done = last;
    } else {
      EXPECT_EQ(etcd_.apply({{}, {{Op::Kind::kGet, config_key("lab")}}, {}}).got.size(), 0U);
      // Nobody begins without the store then.
      etcd_.set_fault(nullptr);
      const bool is_begun = !etcd_.apply({{}, {{Op::Kind::kGet, kKeys.leader()}}, {}}).got.empty();
      if (is_begun) {
        ++begun;
        EXPECT_FALSE(create_cluster(etcd_, "lab", 1, 1'000'000, error));
        EXPECT_THAT(error, HasSubstr("init --from` again"));
      }
    }
  }
  EXPECT_GT(calls_until_done, 5);
  EXPECT_GT(begun, 2);
  etcd_.set_fault(nullptr);
  const auto empty = open_copy(at("empty"));
  EXPECT_EQ(etcd_.read().pointers.size(), 1U);
}

// Or a single daemon could go on with the store while a cluster leads the same jobs.
TEST_F(SeedingTest, TheStoreIsACopyBeforeAnybodyCanLead) {
  write(at("alone"), two_jobs());
  etcd_.set_fault([&](const Transaction& transaction) {
    const bool ends = !transaction.then.empty() &&
                      transaction.then.front().key == config_key("lab") &&
                      transaction.then.front().kind == Op::Kind::kPut;
    return ends ? Answer{Answer::Kind::kRefused, 0, {}, 0, "cut off"} : etcd_.apply(transaction);
  });
  EXPECT_EQ(refusal(at("alone")), "cut off");
  etcd_.set_fault(nullptr);
  store::Options options;
  options.path = at("alone");
  std::string error;
  EXPECT_EQ(store::open_rocks_store(options, error), nullptr);
  EXPECT_THAT(error, HasSubstr("is a copy of a cluster's history"));
  EXPECT_EQ(seed_with(at("alone")).jobs, 2U);
}

// A read that fails says nothing of what etcd has.
TEST_F(SeedingTest, AnEtcdThatDoesNotShowItsLogIsNotOverwritten) {
  write(at("copy"), two_jobs());
  seed_with(at("copy"));
  const Revision before = etcd_.apply({{}, {}, {}}).revision;
  etcd_.set_fault([&](const Transaction& transaction) {
    const bool reads_log = transaction.then.size() == take_over_read(kKeys).then.size();
    return reads_log ? Answer{Answer::Kind::kUnknown, 0, {}, 0, "no answer"}
                     : etcd_.apply(transaction);
  });
  EXPECT_EQ(refusal(at("copy")), "no answer");
  etcd_.set_fault(nullptr);
  EXPECT_EQ(etcd_.apply({{}, {}, {}}).revision, before);
}

class ShardsSeedingTest : public SeedingTest {
 protected:
  // What etcd had before.
  void write_config() {
    Config before;
    before.cluster[0] = 7;
    before.generation = 2;
    before.shards = 2;
    etcd_.apply({{}, {{Op::Kind::kPut, config_key("lab"), encode(before)}}, {}});
  }
  // A copy that has more than etcd.
  void write_copy(const std::string& path, JobId job, std::uint64_t generation = 3) {
    store::Batch batch;
    batch.records.push_back(creation(job));
    batch.records.push_back(push(job, 2));
    Stamp stamp{{}, generation, {5, {7, 7}}, 2};
    stamp.cluster[0] = 7;
    batch.stamp = to_text(stamp);
    write(path, std::move(batch), true);
  }
};

TEST_F(ShardsSeedingTest, EachShardIsMadeOfItsCopy) {
  write_copy(at("copy"), 2);
  write_copy(at("copy.1"), 3);
  const Seeded seeded = seed_with(at("copy"));
  EXPECT_EQ(seeded.generation, 4U);
  EXPECT_EQ(seeded.jobs, 2U);
  EXPECT_EQ(config_.shards, 2U);
  for (const Shard shard : {0U, 1U}) {
    const ShardKeys keys("lab", shard);
    TakeOver read;
    std::string error;
    ASSERT_TRUE(parse_take_over(keys, etcd_.apply(take_over_read(keys)), read, error)) << error;
    EXPECT_EQ(read.log.size(), 1U);
    EXPECT_EQ(etcd_.apply({{}, {{Op::Kind::kGet, keys.leader()}}, {}}).got.size(), 0U);
    Stamp stamp;
    ASSERT_TRUE(read_copy(at(shard == 0 ? "copy" : "copy.1"), stamp, error)) << error;
    EXPECT_EQ(stamp, (Stamp{config_.cluster, 4, read.tail, 2})) << "it is a copy of it";
  }
  EXPECT_THAT(refusal(at("copy")), HasSubstr("start the members"));
}

// etcd was set back: what it had of each shard must not be mixed with what the copies have.
TEST_F(ShardsSeedingTest, NothingStaysOfWhatWasThere) {
  write_copy(at("copy"), 2);
  write_copy(at("copy.1"), 3);
  write_config();
  for (const Shard shard : {0U, 1U}) {
    const std::string key = ShardKeys("lab", shard).pointer(99);
    etcd_.apply({{}, {{Op::Kind::kPut, key, encode(Pointer{})}}, {}});
  }
  seed_with(at("copy"));
  for (const Shard shard : {0U, 1U}) {
    const std::string key = ShardKeys("lab", shard).pointer(99);
    EXPECT_TRUE(etcd_.apply({{}, {{Op::Kind::kGet, key}}, {}}).got.empty()) << shard;
  }
}

// Only between the first two transactions does etcd look as if there were no cluster.
TEST_F(ShardsSeedingTest, ACallThatWasCutOffIsRepeatedAndNothingElse) {
  write_copy(at("copy"), 2);
  write_copy(at("copy.1"), 3);
  write_config();
  constexpr int kAll = 1000;
  int left = kAll;
  etcd_.set_fault([&](const Transaction& transaction) {
    return --left < 0 ? Answer{Answer::Kind::kRefused, 0, {}, 0, "cut off"}
                      : etcd_.apply(transaction);
  });
  const auto has = [&](const std::string& key) {
    return !etcd_.apply({{}, {{Op::Kind::kGet, key}}, {}}).got.empty();
  };
  int begun = 0;
  int has_neither = 0;
  bool is_made = false;
  for (int calls = 0; !is_made && calls < 100; ++calls) {
    left = calls;
    Seeded seeded;
    std::string error;
    is_made = seed_from(etcd_, "lab", at("copy"), 1'000'000, seeded, error);
    left = kAll;
    if (!has(config_key("lab")) && !has(kKeys.leader())) {
      ++has_neither;
      continue;
    }
    EXPECT_FALSE(create_cluster(etcd_, "lab", 2, 1'000'000, error)) << calls;
    begun += error.find("init --from` again") != std::string::npos ? 1 : 0;
  }
  EXPECT_TRUE(is_made);
  EXPECT_GT(begun, 2);
  EXPECT_LE(has_neither, 2);
  EXPECT_THAT(refusal(at("copy")), HasSubstr("start the members"));
}

TEST_F(ShardsSeedingTest, AllCopiesMustBeThereAndBelongTogether) {
  write_copy(at("copy"), 2);
  EXPECT_THAT(refusal(at("copy")), HasSubstr(at("copy.1")));
  write_copy(at("copy.1"), 3, 2);
  EXPECT_THAT(refusal(at("copy")), HasSubstr("same cluster and generation"));
  std::filesystem::remove_all(at("copy.1"));
  write_copy(at("copy.1"), 4);
  EXPECT_THAT(refusal(at("copy")), HasSubstr("job #4 of the copy for shard 1 is of another shard"));
  std::filesystem::remove_all(at("copy.1"));
  write_copy(at("copy.1"), 3);
  EXPECT_EQ(seed_with(at("copy")).jobs, 2U) << "what was refused has changed no copy";
}

TEST_F(SeedingTest, RefusesWhatWouldLoseSomething) {
  write(at("alone"), two_jobs());
  // Members that live, or one that leads.
  const auto put = [&](const std::string& key, const std::string& value) {
    etcd_.apply({{}, {{Op::Kind::kPut, key, value}}, {}});
  };
  put(kKeys.member("node-a"), encode(Member{}));
  EXPECT_THAT(refusal(at("alone")), HasSubstr("node-a; stop them all"));
  etcd_.apply({{}, {{Op::Kind::kDelete, kKeys.member("node-a")}}, {}});
  put(kKeys.leader(), encode(Leader{{1, 0}, "node-b"}));
  EXPECT_THAT(refusal(at("alone")), HasSubstr("node-b; stop them all"));
  etcd_.apply({{}, {{Op::Kind::kDelete, kKeys.leader()}}, {}});
  // A cluster that has nothing to do with the store.
  std::string error;
  ASSERT_TRUE(create_cluster(etcd_, "lab", 1, 1'000'000, error)) << error;
  EXPECT_THAT(refusal(at("alone")), HasSubstr("exists already"));
  EXPECT_THAT(refusal(at("nothing")), HasSubstr(at("nothing") + ": No such file"));
  // A daemon that runs.
  const auto used = open(at("alone"), false);
  EXPECT_THAT(refusal(at("alone")), HasSubstr("in use"));
}

}  // namespace
}  // namespace syncd::cluster
