// The store in host memory across processes: no torn reads under concurrent writers, and writers
// that are killed in the middle of an update.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <thread>

#include "reference_trainer/model/random.h"
#include "reference_trainer/params/cpu_machine.h"
#include "reference_trainer/params/store_devices.h"
#include "tests/unit/reference_trainer/device_store_cases.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using testing::error_of;
using ::testing::HasSubstr;

Update dense(std::size_t parameters, float delta) {
  Update update;
  update.deltas.assign(parameters, delta);
  return update;
}

// A worker with host memory and no stepper.
struct Worker {
  Worker(DeviceStore& store, int worker)
      : replica(store.shape().parameters),
        port(store.port(worker, {.parameters = replica.size(), .replica = replica.data()})) {}

  std::vector<float> replica;
  std::unique_ptr<DeviceStorePort> port;
};

class HostStore : public ::testing::Test {
 protected:
  std::unique_ptr<DeviceStore> store_of(std::size_t parameters, int workers = 1) {
    return device.create(device_store_shape({.parameters = parameters}, workers),
                         std::vector<float>(parameters));
  }

  StoreDevice& device = store_device(Backend::kCpu);
};

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

TEST_F(HostStore, PullsWhatItWasMadeOf) {
  testing::pulls_what_it_was_made_of(device);
}
TEST_F(HostStore, AddsUpWhatItsWorkersStep) {
  testing::adds_up_what_its_workers_step(device, 0);
}
TEST_F(HostStore, LeavesOutShardsThatDidNotChange) {
  testing::leaves_out_shards_that_did_not_change(device);
}
TEST_F(HostStore, LosesAndTearsNothingBetweenThreads) {
  testing::loses_and_tears_nothing(device, 1'300, 512, 3, 300);
}

TEST_F(HostStore, AddsSparseAndDenseUpdatesAndTakesThemBack) {
  const auto store = store_of(1'200);
  Worker worker(*store, 0);
  Update update;
  update.indices = {0, 511, 512, 1'199};
  update.deltas = {1, 2, 3, 4};
  worker.port->add(update, 1);
  std::vector<float> expected(1'200, 0);
  expected[0] = 1;
  expected[511] = 2;
  expected[512] = 3;
  expected[1'199] = 4;
  EXPECT_EQ(testing::read_all(*store), expected);
  worker.port->add(dense(1'200, 0.5F), 1);
  for (float& value : expected) value += 0.5F;
  EXPECT_EQ(testing::read_all(*store), expected);
  worker.port->add(update, -1);
  worker.port->add(dense(1'200, 0.5F), -1);
  EXPECT_THAT(testing::read_all(*store), Each(0.0F));
  worker.port->add({}, 1);
  EXPECT_THAT(testing::read_all(*store), Each(0.0F)) << "an update of nothing";
}

TEST_F(HostStore, ASparseUpdateTouchesItsOwnShardsOnly) {
  const auto store = store_of(5'000, 2);
  Worker reader(*store, 0);
  Worker writer(*store, 1);
  reader.port->pull();
  reader.replica.assign(5'000, -7);
  Update update;
  update.indices = {600, 4'999};
  update.deltas = {1, 2};
  writer.port->add(update, 1);
  reader.port->pull();
  EXPECT_EQ(reader.port->wait(), std::nullopt);
  for (std::size_t i = 0; i < 5'000; ++i) {
    const bool is_touched = i / 512 == 600 / 512 || i / 512 == 4'999 / 512;
    ASSERT_EQ(reader.replica[i] != -7, is_touched) << i;
  }
}

TEST_F(HostStore, IsFoundByItsRecord) {
  SharedParameters store = SharedParameters::of_store(device, {.parameters = 700, .block = 7}, 2,
                                                      std::vector<float>(700, 2.5F), true);
  MachineDevice<CpuMachine> elsewhere{CpuMachine()};  // as another process has it
  SharedParameters other = SharedParameters::attach(elsewhere, ::dup(store.fd()), 1);
  Worker(other.store(), 1).port->add(dense(700, 1), 1);
  EXPECT_THAT(testing::read_all(store.store()), Each(3.5F));
}

// Every update adds 1 to all parameters of a shard, so an untorn copy of a shard is uniform.
bool is_uniform(const DeviceShape& shape, const std::vector<float>& values) {
  for (std::size_t shard = 0; shard < shape.pieces(); ++shard) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(shape.first_of(shard));
    const auto last = values.begin() + static_cast<std::ptrdiff_t>(shape.end_of(shard));
    if (std::adjacent_find(first, last, std::not_equal_to<>()) != last) return false;
  }
  return true;
}

void write_randomly(DeviceStore& store, int worker, int updates, std::uint64_t seed) {
  Worker writer(store, worker);
  Random random(seed, Stream::kGenerate);
  Update update;
  for (int i = 0; i < updates; ++i) {
    const std::size_t shard = random.index(store.shape().pieces());
    update.indices.clear();
    for (std::size_t j = store.shape().first_of(shard); j < store.shape().end_of(shard); ++j) {
      update.indices.push_back(static_cast<std::uint32_t>(j));
    }
    update.deltas.assign(update.indices.size(), 1);
    writer.port->add(update, 1);
  }
}

TEST_F(HostStore, ProcessesNeverSeeATornShardAndLoseNoUpdate) {
  constexpr int kWriters = 3;
  constexpr int kReaders = 2;
  constexpr int kUpdates = 3'000;
  const auto store = store_of(1'300, kWriters + kReaders);
  const SharedMemory flag = SharedMemory::create(sizeof(std::atomic<int>), "a test");
  auto* done = new (flag.bytes().data()) std::atomic<int>(0);
  std::vector<pid_t> readers;
  for (int r = 0; r < kReaders; ++r) {
    readers.push_back(in_child([&] {
      Worker reader(*store, kWriters + r);
      for (int reads = 0; done->load() == 0 || reads < 1'000; ++reads) {
        reader.port->pull();
        if (!reader.port->wait() && !is_uniform(store->shape(), reader.replica)) return false;
      }
      return true;
    }));
  }
  std::vector<pid_t> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.push_back(in_child([&, w] {
      write_randomly(*store, w, kUpdates, static_cast<std::uint64_t>(w));
      return true;
    }));
  }
  for (const pid_t pid : writers) EXPECT_EQ(status_of(pid), 0);
  done->store(1);
  for (const pid_t pid : readers) EXPECT_EQ(status_of(pid), 0) << "a reader saw a torn shard";
  const std::vector<float> values = testing::read_all(*store);
  float sum = 0;
  for (std::size_t shard = 0; shard < store->shape().pieces(); ++shard) {
    sum += values[store->shape().first_of(shard)];
  }
  EXPECT_EQ(sum, kWriters * kUpdates);
}

// Killed wherever it happens to be, again and again: once its shards are closed, all can be read,
// and the others write on.
TEST_F(HostStore, WritersKilledAtAnyMomentHoldNobodyUp) {
  const auto store = store_of(1'300, 2);
  Worker other(*store, 1);
  Random random(3, Stream::kGenerate);
  std::size_t open = 0;
  for (int round = 0; round < 25; ++round) {
    const std::vector<float> before = testing::read_all(*store);
    const pid_t pid = in_child([&] {
      write_randomly(*store, 0, 1 << 30, static_cast<std::uint64_t>(round));
      return false;
    });
    // Let it get going, then a moment of random length.
    std::vector<float> values = before;
    while (values == before) {
      ASSERT_FALSE(has_ended(pid)) << "round " << round << ": the writer cannot write";
      store->read_all(values);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.index(2'000)));
    ::kill(pid, SIGKILL);
    const int status = status_of(pid);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    open += store->close_shards(0);
    EXPECT_EQ(store->close_shards(0), 0U);
    std::vector<float> expected = testing::read_all(*store);
    other.port->add(dense(1'300, 1), 1);
    for (float& value : expected) value += 1;
    EXPECT_EQ(testing::read_all(*store), expected) << "round " << round;
  }
  EXPECT_GT(open, 0U) << "none was killed in the middle";
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
