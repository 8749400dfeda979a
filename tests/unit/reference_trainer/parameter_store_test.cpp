// The shared parameter store across processes: no torn reads under concurrent writers, and writers
// that are killed in the middle of an update.
#include "reference_trainer/params/parameter_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>

#include "reference_trainer/model/random.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using testing::error_of;
using ::testing::HasSubstr;

ParameterStore store_of(std::size_t parameters, std::size_t block = 1, float value = 0) {
  return ParameterStore::create({.parameters = parameters, .block = block},
                                std::vector<float>(parameters, value));
}

std::vector<float> contents(const ParameterStore& store) {
  std::vector<float> values(store.parameters());
  store.read_all(values);
  return values;
}

Update dense(std::size_t parameters, float delta) {
  Update update;
  update.deltas.assign(parameters, delta);
  return update;
}

// Runs `action` in a forked child, which then exits with 0, or with 1 if it returned false.
template <typename Action>
pid_t in_child(Action&& action) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(action() ? 0 : 1);
  return pid;
}

int status_of(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

bool has_ended(pid_t pid) {
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
  return info.si_pid != 0;
}

void expect_killed(pid_t pid) {
  const int status = status_of(pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(ParameterStore, KeepsBlocksWholeWithinShards) {
  const ParameterStore store = store_of(9 * 1'000, 9);
  EXPECT_EQ(store.shard_floats() % 9, 0U);
  EXPECT_LE(store.shard_floats(), kShardFloats);
  std::size_t sum = 0;
  for (std::size_t shard = 0; shard < store.shards(); ++shard) sum += store.size_of_shard(shard);
  EXPECT_EQ(sum, 9'000U);
  EXPECT_EQ(store_of(3 * 4'000, 4'000).shards(), 3U) << "a block larger than a shard widens it";
}

TEST(ParameterStore, AppliesSparseAndDenseUpdatesAndTakesThemBack) {
  ParameterStore store = store_of(1'200);
  Update update;
  update.indices = {0, 511, 512, 1'199};
  update.deltas = {1, 2, 3, 4};
  store.apply(update);
  std::vector<float> expected(1'200, 0);
  expected[0] = 1;
  expected[511] = 2;
  expected[512] = 3;
  expected[1'199] = 4;
  EXPECT_EQ(contents(store), expected);
  store.apply(dense(1'200, 0.5F));
  for (float& value : expected) value += 0.5F;
  EXPECT_EQ(contents(store), expected);
  store.take_back(update);
  store.take_back(dense(1'200, 0.5F));
  EXPECT_THAT(contents(store), Each(0.0F));
}

TEST(ParameterStore, ASparseUpdateTouchesItsOwnShardsOnly) {
  ParameterStore store = store_of(5'000);
  std::vector<std::uint64_t> before;
  for (std::size_t shard = 0; shard < store.shards(); ++shard) {
    before.push_back(store.version(shard));
  }
  Update update;
  update.indices = {600};
  update.deltas = {1};
  store.apply(update);
  for (std::size_t shard = 0; shard < store.shards(); ++shard) {
    EXPECT_EQ(store.version(shard) != before[shard], shard == 1) << shard;
  }
}

TEST(ParameterStore, AReaderPullsChangedShardsOnly) {
  ParameterStore store = store_of(5'000);
  StoreReader reader(store);
  std::vector<float> replica(5'000, -1);
  EXPECT_EQ(reader.pull(replica), store.shards());
  EXPECT_THAT(replica, Each(0.0F));
  EXPECT_EQ(reader.pull(replica), 0U);
  Update update;
  update.indices = {3, 4'999};
  update.deltas = {1, 2};
  store.apply(update);
  EXPECT_EQ(reader.pull(replica), 2U);
  EXPECT_EQ(replica, contents(store));
}

TEST(ParameterStore, WrongUpdatesAreRefusedWhole) {
  ParameterStore store = store_of(100);
  const auto error = [&](std::vector<std::uint32_t> indices, std::size_t deltas) {
    Update update;
    update.indices = std::move(indices);
    update.deltas.assign(deltas, 1);
    return error_of<StoreError>([&] { store.apply(update); });
  };
  EXPECT_THAT(error({1, 1}, 2), HasSubstr("index 1 after 1"));
  EXPECT_THAT(error({5, 2}, 2), HasSubstr("must ascend"));
  EXPECT_THAT(error({1, 100}, 2), HasSubstr("be below 100"));
  EXPECT_THAT(error({1, 2}, 1), HasSubstr("2 indices but 1 values"));
  EXPECT_THAT(error({}, 99), HasSubstr("99 values; the store has 100"));
  EXPECT_THAT(contents(store), Each(0.0F));
  EXPECT_THROW(ParameterStore::create({.parameters = 10, .block = 3}, std::vector<float>(10)),
               std::invalid_argument);
}

TEST(ParameterStore, AttachesByDescriptorAndRefusesForeignMemory) {
  ParameterStore store = store_of(700, 7, 2.5F);
  ParameterStore other = ParameterStore::attach(::dup(store.fd()));
  other.apply(dense(700, 1));
  EXPECT_THAT(contents(store), Each(3.5F));
  const SharedMemory memory = SharedMemory::create(4'096, "a test");
  EXPECT_THROW(ParameterStore::attach(::dup(memory.fd())), SharedMemoryError);
}

// Every update adds 1 to all parameters of a shard, so an untorn copy of a shard is uniform.
bool is_uniform(const ParameterStore& store, std::size_t shard, std::vector<float>& copy) {
  const std::span<float> values(copy.data(), store.size_of_shard(shard));
  store.read_shard(shard, values);
  return std::all_of(values.begin(), values.end(),
                     [&](float value) { return value == values.front(); });
}

void write_randomly(ParameterStore& store, int updates, std::uint64_t seed) {
  Random random(seed, Stream::kGenerate);
  for (int i = 0; i < updates; ++i) {
    const std::size_t shard = random.index(store.shards());
    ShardWriter writer(store, shard);
    writer.begin_all();
    for (std::size_t j = 0; j < store.size_of_shard(shard); ++j) writer.add(j, 1);
    writer.commit();
  }
}

TEST(ParameterStore, ProcessesNeverSeeATornShardAndLoseNoUpdate) {
  constexpr int kWriters = 3;
  constexpr int kUpdates = 3'000;
  ParameterStore store = store_of(1'300);
  const SharedMemory flag = SharedMemory::create(sizeof(std::atomic<int>), "a test");
  auto* done = new (flag.bytes().data()) std::atomic<int>(0);
  std::vector<pid_t> readers;
  for (int r = 0; r < 2; ++r) {
    readers.push_back(in_child([&] {
      std::vector<float> copy(store.shard_floats());
      std::uint64_t reads = 0;
      while (done->load() == 0 || reads < 1'000) {
        if (!is_uniform(store, reads++ % store.shards(), copy)) return false;
      }
      return true;
    }));
  }
  std::vector<pid_t> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.push_back(in_child([&, w] {
      write_randomly(store, kUpdates, static_cast<std::uint64_t>(w));
      return true;
    }));
  }
  for (const pid_t pid : writers) EXPECT_EQ(status_of(pid), 0);
  done->store(1);
  for (const pid_t pid : readers) EXPECT_EQ(status_of(pid), 0) << "a reader saw a torn shard";
  float sum = 0;
  for (std::size_t shard = 0; shard < store.shards(); ++shard) {
    sum += contents(store)[store.first_of_shard(shard)];
  }
  EXPECT_EQ(sum, kWriters * kUpdates);
  EXPECT_EQ(store.rolled_back_updates(), 0U);
}

// The same with threads, where ThreadSanitizer sees both sides.
TEST(ParameterStore, ThreadsNeverSeeATornShardEither) {
  ParameterStore store = store_of(1'300);
  std::atomic<bool> done = false;
  std::atomic<int> torn = 0;
  std::vector<std::thread> writers;
  for (std::uint64_t w = 0; w < 2; ++w) {
    writers.emplace_back([&store, w] { write_randomly(store, 1'000, w); });
  }
  std::thread reader([&] {
    std::vector<float> copy(store.shard_floats());
    for (std::size_t reads = 0; !done.load() || reads < 300; ++reads) {
      torn += !is_uniform(store, reads % store.shards(), copy);
    }
  });
  for (std::thread& writer : writers) writer.join();
  done = true;
  reader.join();
  EXPECT_EQ(torn.load(), 0);
}

// Changes half of shard 0 and dies by SIGKILL.
pid_t die_in_the_middle(ParameterStore& store) {
  return in_child([&] {
    ShardWriter writer(store, 0);
    writer.begin_all();
    for (std::size_t i = 0; i < store.size_of_shard(0) / 2; ++i) writer.add(i, 100);
    ::raise(SIGKILL);
    return false;
  });
}

TEST(ParameterStore, AReaderTakesAKilledWritersHalfUpdateBack) {
  const ParameterStore store = store_of(600, 1, 1);
  expect_killed(die_in_the_middle(const_cast<ParameterStore&>(store)));
  EXPECT_THAT(contents(store), Each(1.0F));
  EXPECT_EQ(store.rolled_back_updates(), 1U);
  EXPECT_THAT(contents(store), Each(1.0F));
  EXPECT_EQ(store.rolled_back_updates(), 1U);
}

TEST(ParameterStore, AWriterGoesOnAfterAKilledWriter) {
  ParameterStore store = store_of(600, 1, 1);
  StoreReader reader(store);
  std::vector<float> replica(600);
  reader.pull(replica);
  expect_killed(die_in_the_middle(store));
  store.apply(dense(600, 1));
  EXPECT_EQ(store.rolled_back_updates(), 1U);
  reader.pull(replica);
  EXPECT_THAT(replica, Each(2.0F));
}

TEST(ParameterStore, AKilledWriterThatChangedNothingLeavesNothingToTakeBack) {
  ParameterStore store = store_of(600, 1, 1);
  expect_killed(in_child([&] {
    const ShardWriter writer(store, 0);
    ::raise(SIGKILL);
    return false;
  }));
  expect_killed(in_child([&] {
    ShardWriter writer(store, 1);
    writer.begin_all();
    for (std::size_t i = 0; i < store.size_of_shard(1); ++i) writer.add(i, 1);
    writer.commit();
    ::raise(SIGKILL);
    return false;
  }));
  store.apply(dense(600, 1));
  const std::vector<float> values = contents(store);
  EXPECT_EQ(values.front(), 2);
  EXPECT_EQ(values.back(), 3) << "what was committed stays";
  EXPECT_EQ(store.rolled_back_updates(), 0U);
}

TEST(ParameterStore, AnUncommittedChangeIsRolledBackByItsOwnWriter) {
  ParameterStore store = store_of(10);
  {
    ShardWriter writer(store, 0);
    const std::vector<std::uint32_t> indices{2, 5};
    writer.begin(indices);
    writer.add(0, 1);
    writer.add(1, 1);
  }
  EXPECT_THAT(contents(store), Each(0.0F));
}

// Killed wherever it happens to be, again and again: shards stay whole and usable.
TEST(ParameterStore, WritersKilledAtAnyMomentNeverTearAShard) {
  ParameterStore store = store_of(1'300);
  std::vector<float> copy(store.shard_floats());
  Random random(3, Stream::kGenerate);
  for (int round = 0; round < 25; ++round) {
    const pid_t pid = in_child([&] {
      write_randomly(store, 1 << 30, static_cast<std::uint64_t>(round));
      return false;
    });
    // Let it get going, then a moment of random length.
    const std::uint64_t before = store.version(0);
    while (store.version(0) == before) {
      ASSERT_FALSE(has_ended(pid)) << "round " << round << ": the writer cannot write";
      std::this_thread::yield();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.index(2'000)));
    ::kill(pid, SIGKILL);
    expect_killed(pid);
    for (std::size_t shard = 0; shard < store.shards(); ++shard) {
      ASSERT_TRUE(is_uniform(store, shard, copy)) << "round " << round;
    }
    store.apply(dense(1'300, 1));
  }
}

TEST(ParameterStore, ALockThatAStoppedProcessHoldsIsReportedWithItsPid) {
  ParameterStore store = store_of(10);
  store.set_lock_timeout_ms(20);
  const SharedMemory flag = SharedMemory::create(sizeof(std::atomic<int>), "a test");
  auto* locked = new (flag.bytes().data()) std::atomic<int>(0);
  const pid_t pid = in_child([&] {
    const ShardWriter writer(store, 0);
    locked->store(1);
    for (;;) ::pause();
    return false;
  });
  while (locked->load() == 0) std::this_thread::yield();
  EXPECT_THAT(error_of<StoreError>([&] { store.apply(dense(10, 1)); }),
              AllOf(HasSubstr("shard 0 was not free within 20 ms"),
                    HasSubstr("process " + std::to_string(pid))));
  ::kill(pid, SIGKILL);
  expect_killed(pid);
  store.apply(dense(10, 1));
  EXPECT_THAT(contents(store), Each(1.0F));
}

TEST(SharedMemory, LeavesNoNameBehindAndReportsWhatItCannotHave) {
  const SharedMemory memory = SharedMemory::create(4'096, "a test");
  const std::string target =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(memory.fd())).string();
  EXPECT_THAT(target, AllOf(HasSubstr("/dev/shm/syncd-"), HasSubstr("(deleted)")));
  EXPECT_THAT(error_of<SharedMemoryError>([] { SharedMemory::create(std::size_t{1} << 60, "it"); }),
              AllOf(HasSubstr("shared memory for it"), HasSubstr("/dev/shm")));
}

}  // namespace
}  // namespace syncd::trainer
