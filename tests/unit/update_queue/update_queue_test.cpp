// One process: layout, answers, threads.
#include "libclient/update_queue.h"

#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/unit/update_queue/support.h"

namespace syncd::client {
namespace {

using ::testing::HasSubstr;

TEST(UpdateQueueSlots, AreAsManyAsUpdatesCanBeInUse) {
  EXPECT_EQ(update_queue_slots(4, 0, false), 5u);
  EXPECT_EQ(update_queue_slots(4, 0, true), 6u);
  EXPECT_EQ(update_queue_slots(4, 5, false), 10u);
  EXPECT_EQ(update_queue_slots(4, 5, true), 11u);
}

TEST(UpdateQueue, SaysHowMuchMemoryItNeeds) {
  // A header of 64 bytes; per edge 64 and, per slot, 24 and the payload in whole lines of 64.
  EXPECT_EQ(UpdateQueue::bytes_needed({0, 1, 4}), 64u);
  EXPECT_EQ(UpdateQueue::bytes_needed({2, 3, 40}), 64u + 2 * (64 + 3 * 64));
  EXPECT_EQ(UpdateQueue::bytes_needed({2, 3, 44}), 64u + 2 * (64 + 3 * 128));
  EXPECT_EQ(UpdateQueue::bytes_needed({1, 0, 4}), std::nullopt);
  EXPECT_EQ(UpdateQueue::bytes_needed({1, 1, 0}), std::nullopt);
  EXPECT_EQ(UpdateQueue::bytes_needed({1, 1, 6}), std::nullopt);
  EXPECT_EQ(UpdateQueue::bytes_needed({1, 1, UINT64_MAX - 3}), std::nullopt);
  EXPECT_EQ(UpdateQueue::bytes_needed({1, 1u << 31, std::uint64_t{1} << 40}), std::nullopt);
  EXPECT_EQ(UpdateQueue::bytes_needed({UINT32_MAX, 1, std::uint64_t{1} << 40}), std::nullopt);
}

TEST(UpdateQueue, GivesBackWhatWasWritten) {
  Queue queue({2, 3, 5 * sizeof(float)});
  EXPECT_EQ(queue.made->newest(0), -1);
  EXPECT_EQ(queue.read(0, 0), Read::kAbsent);
  EXPECT_EQ(queue.write(0, 0), Written::kOk);
  EXPECT_EQ(queue.read(0, 0), Read::kOk);
  EXPECT_EQ(queue.made->newest(0), 0);
  EXPECT_EQ(queue.read(1, 0), Read::kAbsent);  // another edge
  EXPECT_EQ(queue.made->newest(1), -1);
  EXPECT_EQ(queue.read(0, 3), Read::kAbsent);  // the same slot
  EXPECT_EQ(queue.write(1, 7), Written::kOk);
  EXPECT_EQ(queue.read(1, 7), Read::kOk);
  EXPECT_EQ(queue.read(0, 0), Read::kOk);
}

TEST(UpdateQueue, KeepsAsManyIterationsAsItHasSlots) {
  Queue queue({1, 3, 16});
  for (std::int64_t k = 0; k < 10; ++k) {
    ASSERT_EQ(queue.write(0, k), Written::kOk);
    for (std::int64_t old = 0; old <= k; ++old) {
      EXPECT_EQ(queue.read(0, old), old > k - 3 ? Read::kOk : Read::kOverwritten);
    }
    EXPECT_EQ(queue.read(0, k + 1), Read::kAbsent);
  }
}

TEST(UpdateQueue, RefusesOlderAndReplacesTheSame) {
  Queue queue({1, 2, 8});
  ASSERT_EQ(queue.write(0, 4), Written::kOk);
  EXPECT_EQ(queue.write(0, 2), Written::kOld);
  EXPECT_EQ(queue.read(0, 4), Read::kOk);
  EXPECT_EQ(queue.write(0, 3), Written::kOk);  // another slot
  EXPECT_EQ(queue.made->newest(0), 4);
  const std::array<float, 2> other{-1, -2};
  EXPECT_EQ(queue.made->write(0, 4, std::span(other)), Written::kOk);
  ASSERT_EQ(queue.made->read(0, 4, std::span(queue.out)), Read::kOk);
  EXPECT_EQ(queue.out[1], -2);
}

TEST(UpdateQueue, RefusesWhatDoesNotFit) {
  Queue queue({1, 2, 8});
  EXPECT_EQ(queue.write(1, 0), Written::kInvalid);
  EXPECT_EQ(queue.write(0, -1), Written::kInvalid);
  EXPECT_EQ(queue.read(1, 0), Read::kInvalid);
  EXPECT_EQ(queue.read(0, -1), Read::kInvalid);
  EXPECT_EQ(queue.made->newest(1), -1);
  std::vector<float> longer(3);
  EXPECT_EQ(queue.made->write(0, 0, std::span(longer)), Written::kInvalid);
  EXPECT_EQ(queue.made->read(0, 0, std::span(longer)), Read::kInvalid);
}

TEST(UpdateQueue, ClearForgetsOneEdge) {
  Queue queue({2, 2, 8});
  queue.write(0, 8);
  queue.write(0, 9);
  queue.write(1, 9);
  queue.made->clear(0);
  queue.made->clear(2);
  EXPECT_EQ(queue.made->newest(0), -1);
  EXPECT_EQ(queue.read(0, 8), Read::kAbsent);
  EXPECT_EQ(queue.read(0, 9), Read::kAbsent);
  EXPECT_EQ(queue.read(1, 9), Read::kOk);
  EXPECT_EQ(queue.write(0, 4), Written::kOk);
  EXPECT_EQ(queue.read(0, 4), Read::kOk);
}

TEST(UpdateQueue, TakesDoubles) {
  Queue queue({1, 1, 3 * sizeof(double)});
  const std::array<double, 3> update{1e300, -0.0, 3};
  ASSERT_EQ(queue.made->write(0, 5, std::span(update)), Written::kOk);
  std::array<double, 3> out{};
  ASSERT_EQ(queue.made->read(0, 5, std::span(out)), Read::kOk);
  EXPECT_EQ(out, update);
}

TEST(UpdateQueue, OthersAttach) {
  const UpdateQueueShape shape{3, 4, 20};
  Queue queue(shape);
  queue.write(2, 6);
  std::string error;
  const auto other = UpdateQueue::attach(queue.memory.data(), queue.memory.bytes(), error);
  ASSERT_TRUE(other) << error;
  EXPECT_EQ(other->shape(), shape);
  EXPECT_EQ(other->newest(2), 6);
  EXPECT_EQ(other->read(2, 6, std::span(queue.out)), Read::kOk);
  EXPECT_TRUE(is_whole(queue.out, 6));
}

TEST(UpdateQueue, CreateNamesWhatIsWrong) {
  SharedMemory memory(4096);
  std::string error;
  EXPECT_FALSE(UpdateQueue::create(memory.data(), 4096, {1, 0, 8}, error));
  EXPECT_THAT(error, HasSubstr("cannot have 1 edges of 0 slots of 8 bytes"));
  EXPECT_FALSE(UpdateQueue::create(memory.begin() + 8, 4000, {1, 1, 8}, error));
  EXPECT_THAT(error, HasSubstr("multiple of 64 bytes"));
  EXPECT_FALSE(UpdateQueue::create(memory.data(), 191, {1, 1, 8}, error));
  EXPECT_THAT(error, HasSubstr("needs 192 bytes of memory, not 191"));
  EXPECT_TRUE(UpdateQueue::create(memory.data(), 192, {1, 1, 8}, error)) << error;
}

TEST(UpdateQueue, AttachBelievesNoHeaderUnseen) {
  const auto why = [](auto damage) {
    Queue queue({2, 3, 8});
    damage(queue.memory.begin());
    std::string error;
    EXPECT_FALSE(UpdateQueue::attach(queue.memory.data(), queue.memory.bytes(), error));
    return error;
  };
  const auto set32 = [](std::byte* at, std::uint32_t value) { std::memcpy(at, &value, 4); };
  // magic 8 bytes, version, edges, slots, reserved 4 each, payload_bytes, total_bytes 8 each.
  EXPECT_THAT(why([&](std::byte* m) { set32(m, 1); }), HasSubstr("holds no update queue"));
  EXPECT_THAT(why([&](std::byte* m) { set32(m + 8, 2); }), HasSubstr("version 2"));
  EXPECT_THAT(why([&](std::byte* m) { set32(m + 12, 900); }), HasSubstr("900 edges"));
  EXPECT_THAT(why([&](std::byte* m) { set32(m + 16, 0); }), HasSubstr("0 slots"));
  EXPECT_THAT(why([&](std::byte* m) { set32(m + 24, 7); }), HasSubstr("slots of 7 bytes"));
  EXPECT_THAT(why([&](std::byte* m) { set32(m + 28, UINT32_MAX); }), HasSubstr("cannot have"));
  EXPECT_THAT(why([&](std::byte* m) { set32(m + 32, 640); }), HasSubstr("queue of 640 bytes"));

  Queue queue({2, 3, 8});
  std::string error;
  EXPECT_FALSE(UpdateQueue::attach(queue.memory.data(), queue.memory.bytes() - 1, error));
  EXPECT_THAT(error, HasSubstr("bytes of memory, not"));
  EXPECT_FALSE(UpdateQueue::attach(queue.memory.data(), 63, error));
  EXPECT_THAT(error, HasSubstr("bytes of memory, not 63"));
  EXPECT_FALSE(UpdateQueue::attach(queue.memory.begin() + 1, 500, error));
  EXPECT_THAT(error, HasSubstr("multiple of 64"));
  SharedMemory empty(4096);
  EXPECT_FALSE(UpdateQueue::attach(empty.data(), empty.bytes(), error));
  EXPECT_THAT(error, HasSubstr("not ready yet"));
}

// Where the slot of edge 0, iteration 0 is: its sequence number, and its payload.
constexpr std::size_t kSlot = 64 + 64;
constexpr std::size_t kPayload = kSlot + 24;

TEST(UpdateQueue, HandsOutNothingThatAChecksumDenies) {
  Queue queue({1, 1, 16});
  ASSERT_EQ(queue.write(0, 0), Written::kOk);
  std::byte* payload = queue.memory.begin() + kPayload;
  for (std::size_t i = 0; i < 16; ++i) {
    payload[i] ^= std::byte{1};
    EXPECT_EQ(queue.made->read(0, 0, std::span(queue.out)), Read::kTorn) << i;
    payload[i] ^= std::byte{1};
  }
  ASSERT_EQ(queue.read(0, 0), Read::kOk);
  // The same words in another order.
  std::swap_ranges(payload, payload + 8, payload + 8);
  EXPECT_EQ(queue.made->read(0, 0, std::span(queue.out)), Read::kTorn);
  ASSERT_EQ(queue.write(0, 0), Written::kOk);
  EXPECT_EQ(queue.read(0, 0), Read::kOk);
}

TEST(UpdateQueue, TheNextWriteMendsWhatADeadWriterLeft) {
  Queue queue({1, 1, 16});
  ASSERT_EQ(queue.write(0, 0), Written::kOk);
  queue.memory.begin()[kSlot] = std::byte{3};  // as if it had died in its second write
  EXPECT_EQ(queue.read(0, 0), Read::kTorn);
  EXPECT_EQ(queue.read(0, 1), Read::kTorn);
  ASSERT_EQ(queue.write(0, 1), Written::kOk);
  EXPECT_EQ(queue.memory.begin()[kSlot], std::byte{4});
  EXPECT_EQ(queue.read(0, 1), Read::kOk);
  EXPECT_EQ(queue.read(0, 0), Read::kOverwritten);
}

// Two slots under a writer that waits for nobody and writes all the time, so that many reads run
// into it: no update of which a reader is told kOk is a mixture. Readers stop when they have read
// enough, and then the writer.
TEST(UpdateQueue, ReadersNeverGetAMixture) {
  constexpr std::size_t kNumbers = 4001;
  constexpr std::int64_t kDifferent = 8;  // updates made beforehand, written in turn
  Queue queue({1, 2, kNumbers * sizeof(float)});
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    std::vector<std::vector<float>> updates(kDifferent, std::vector<float>(kNumbers));
    for (std::int64_t k = 0; k < kDifferent; ++k) fill(updates[static_cast<std::size_t>(k)], k);
    for (std::int64_t k = 0; !stop.load(std::memory_order_relaxed); ++k) {
      queue.made->write(0, k, std::span(updates[static_cast<std::size_t>(k % kDifferent)]));
    }
  });
  const auto read = [&] {
    std::vector<float> out(kNumbers);
    std::size_t mixtures = 0;
    for (std::size_t whole = 0; whole < 2000;) {
      const std::int64_t newest = queue.made->newest(0);
      if (newest < 0 || queue.made->read(0, newest, std::span(out)) != Read::kOk) continue;
      ++whole;
      if (!is_whole(out, newest % kDifferent)) ++mixtures;
    }
    return mixtures;
  };
  std::size_t mixtures = 0;
  std::thread second([&] { mixtures = read(); });
  EXPECT_EQ(read(), 0u);
  second.join();
  stop = true;
  writer.join();
  EXPECT_EQ(mixtures, 0u);
}

// A misuse: two writers in one slot. Still nobody is handed a mixture.
TEST(UpdateQueue, TwoWritersAtOnceAreFoundOut) {
  constexpr std::size_t kNumbers = 2000;
  Queue queue({1, 1, kNumbers * sizeof(float)});
  std::atomic<bool> stop = false;
  const auto write = [&](float sign) {
    std::vector<float> update(kNumbers);
    for (std::int64_t k = 0; !stop.load(std::memory_order_relaxed); ++k) {
      std::fill(update.begin(), update.end(), sign * static_cast<float>(k % 1000 + 1));
      queue.made->write(0, 0, std::span(update));
      std::this_thread::yield();
    }
  };
  std::thread first(write, 1.0f);
  std::thread second(write, -1.0f);
  std::vector<float> out(kNumbers);
  std::size_t whole = 0;
  std::size_t mixtures = 0;
  while (whole < 2000) {
    if (queue.made->read(0, 0, std::span(out)) != Read::kOk) continue;
    ++whole;
    if (out != std::vector<float>(kNumbers, out[0])) ++mixtures;
  }
  stop = true;
  first.join();
  second.join();
  EXPECT_EQ(mixtures, 0u);
}

}  // namespace
}  // namespace syncd::client
