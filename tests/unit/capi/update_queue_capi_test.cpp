// <syncd/update_queue.h> as a trainer sees it: through the exported symbols of libsyncclient. What
// readers may get beside a writer is in unit/update_queue.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <syncd/update_queue.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/c_api.h"

namespace {

using syncd::test::Answer;
using syncd::test::answered;
using testing::AllOf;
using testing::HasSubstr;

using Queue = std::unique_ptr<syncd_update_queue, decltype(&syncd_update_queue_free)>;

syncd_update_queue_options shape(std::uint32_t edges, std::uint32_t slots, std::uint64_t bytes) {
  syncd_update_queue_options options = SYNCD_UPDATE_QUEUE_OPTIONS_INIT;
  options.edges = edges;
  options.slots = slots;
  options.payload_bytes = bytes;
  return options;
}

Queue create(const syncd_update_queue_options& options) {
  syncd_update_queue* queue = nullptr;
  const Answer answer =
      answered([&](auto** error) { return syncd_update_queue_create(&options, &queue, error); });
  EXPECT_EQ(answer.status, SYNCD_OK) << answer.message;
  return {queue, &syncd_update_queue_free};
}

Answer refused(const syncd_update_queue_options& options) {
  syncd_update_queue* queue = nullptr;
  Answer answer =
      answered([&](auto** error) { return syncd_update_queue_create(&options, &queue, error); });
  EXPECT_EQ(queue, nullptr);
  return answer;
}

// An update whose every number tells its iteration and its place.
using Update = std::array<double, 4>;
double number_of(std::int64_t iteration, std::size_t place) {
  return static_cast<double>(iteration) + 1e-6 * static_cast<double>(place);
}
std::vector<double> update_of(const Queue& queue, std::int64_t iteration) {
  std::vector<double> update(syncd_update_queue_payload_bytes(queue.get()) / sizeof(double));
  for (std::size_t i = 0; i < update.size(); ++i) update[i] = number_of(iteration, i);
  return update;
}
Answer write(const Queue& queue, std::uint32_t edge, std::int64_t iteration) {
  const std::vector<double> update = update_of(queue, iteration);
  return answered([&](auto** error) {
    return syncd_update_queue_write(queue.get(), edge, iteration, update.data(),
                                    update.size() * sizeof(double), error);
  });
}
// What is read must be what write() wrote.
Answer read(const Queue& queue, std::uint32_t edge, std::int64_t iteration) {
  std::vector<double> update = update_of(queue, -1);
  Answer answer = answered([&](auto** error) {
    return syncd_update_queue_read(queue.get(), edge, iteration, update.data(),
                                   update.size() * sizeof(double), error);
  });
  EXPECT_TRUE(answer.status != SYNCD_OK || update == update_of(queue, iteration)) << iteration;
  return answer;
}

TEST(CapiUpdateQueue, SaysHowManySlotsAPolicyNeeds) {
  const auto slots = [](std::int64_t max_ig, std::int64_t staleness, std::int32_t skip) {
    std::uint32_t needed = 0;
    EXPECT_EQ(syncd_update_queue_slots_needed(max_ig, staleness, skip, &needed, nullptr), SYNCD_OK);
    return needed;
  };
  EXPECT_EQ(slots(4, 0, 0), 5U);
  EXPECT_EQ(slots(4, 0, 10), 6U);
  EXPECT_EQ(slots(4, 5, 0), 10U);
  EXPECT_EQ(slots(4, 5, 1), 11U);
  EXPECT_EQ(slots(UINT32_MAX - 2, 0, 1), UINT32_MAX);
  const auto wrong = [](std::int64_t max_ig, std::int64_t staleness) {
    std::uint32_t needed = 77;
    const Answer answer = answered([&](auto** error) {
      return syncd_update_queue_slots_needed(max_ig, staleness, 0, &needed, error);
    });
    EXPECT_EQ(answer.status, SYNCD_E_INVALID);
    EXPECT_EQ(needed, 77U);
    return answer.message;
  };
  EXPECT_THAT(wrong(0, 0), AllOf(HasSubstr("max_ig is 0"), HasSubstr("allowed: 1 to")));
  EXPECT_THAT(wrong(UINT32_MAX, 0), HasSubstr("max_ig is 4294967295"));
  EXPECT_THAT(wrong(1, -1), AllOf(HasSubstr("staleness is -1"), HasSubstr("allowed: 0 to")));
  EXPECT_THAT(wrong(1'000, INT64_MAX), HasSubstr("staleness"));
  EXPECT_EQ(syncd_update_queue_slots_needed(1, 0, 0, nullptr, nullptr), SYNCD_E_INVALID);
}

TEST(CapiUpdateQueue, GivesBackWholeUpdatesOrSaysWhyNot) {
  const Queue queue = create(shape(2, 3, sizeof(Update)));
  EXPECT_EQ(syncd_update_queue_edges(queue.get()), 2U);
  EXPECT_EQ(syncd_update_queue_slots(queue.get()), 3U);
  EXPECT_EQ(syncd_update_queue_payload_bytes(queue.get()), sizeof(Update));
  EXPECT_EQ(syncd_update_queue_newest(queue.get(), 0), -1);

  const Answer early = read(queue, 1, 0);
  EXPECT_EQ(early.status, SYNCD_E_NO_UPDATE);
  EXPECT_TRUE(early.retriable);
  EXPECT_THAT(early.message, AllOf(HasSubstr("iteration 0 on edge 1"), HasSubstr("newest is -1")));

  for (std::int64_t k = 0; k < 5; ++k) EXPECT_EQ(write(queue, 1, k).status, SYNCD_OK);
  EXPECT_EQ(syncd_update_queue_newest(queue.get(), 1), 4);
  for (std::int64_t k = 2; k < 5; ++k) EXPECT_EQ(read(queue, 1, k).status, SYNCD_OK);
  const Answer late = read(queue, 1, 1);
  EXPECT_EQ(late.status, SYNCD_E_OVERWRITTEN);
  EXPECT_FALSE(late.retriable);
  EXPECT_THAT(late.message, AllOf(HasSubstr("iteration 1 on edge 1"), HasSubstr("newest is 4"),
                                  HasSubstr("3 are kept")));
  EXPECT_EQ(read(queue, 0, 4).status, SYNCD_E_NO_UPDATE) << "another edge";
}

TEST(CapiUpdateQueue, AnOlderUpdateDoesNotReplaceANewerOneUntilTheEdgeIsCleared) {
  const Queue queue = create(shape(2, 2, sizeof(Update)));
  ASSERT_EQ(write(queue, 0, 8).status, SYNCD_OK);
  ASSERT_EQ(write(queue, 1, 8).status, SYNCD_OK);
  const Answer old = write(queue, 0, 6);
  EXPECT_EQ(old.status, SYNCD_E_OVERWRITTEN);
  EXPECT_THAT(old.message, HasSubstr("clears its edge"));
  EXPECT_EQ(syncd_update_queue_clear(queue.get(), 0, nullptr), SYNCD_OK);
  EXPECT_EQ(read(queue, 0, 8).status, SYNCD_E_NO_UPDATE);
  EXPECT_EQ(write(queue, 0, 6).status, SYNCD_OK);
  EXPECT_EQ(read(queue, 0, 6).status, SYNCD_OK);
  EXPECT_EQ(read(queue, 1, 8).status, SYNCD_OK) << "the other edge keeps what it had";
}

TEST(CapiUpdateQueue, WrongArgumentsAreNamedWithWhatIsAllowed) {
  const Queue queue = create(shape(2, 3, sizeof(Update)));
  EXPECT_THAT(write(queue, 2, 0).message, HasSubstr("edge 2; the queue has 2"));
  EXPECT_THAT(read(queue, 0, -1).message, HasSubstr("iteration -1; allowed: 0 or more"));
  Update update{};
  const Answer shorter = answered([&](auto** error) {
    return syncd_update_queue_write(queue.get(), 0, 0, update.data(), 8, error);
  });
  EXPECT_EQ(shorter.status, SYNCD_E_INVALID);
  EXPECT_THAT(shorter.message, HasSubstr("8 bytes; the queue's updates have 32"));
  const Answer longer = answered([&](auto** error) {
    return syncd_update_queue_read(queue.get(), 0, 0, update.data(), 33, error);
  });
  EXPECT_THAT(longer.message, HasSubstr("33 bytes; the queue's updates have 32"));
  EXPECT_EQ(syncd_update_queue_read(queue.get(), 0, 0, nullptr, 32, nullptr), SYNCD_E_INVALID);
  EXPECT_EQ(syncd_update_queue_write(nullptr, 0, 0, update.data(), 32, nullptr), SYNCD_E_INVALID);
  EXPECT_THAT(answered([&](auto** error) {
                return syncd_update_queue_clear(queue.get(), 9, error);
              }).message,
              HasSubstr("edge 9"));
}

TEST(CapiUpdateQueue, NoQueueIsEmpty) {
  syncd_update_queue_free(nullptr);
  EXPECT_EQ(syncd_update_queue_descriptor(nullptr), -1);
  EXPECT_EQ(syncd_update_queue_edges(nullptr), 0U);
  EXPECT_EQ(syncd_update_queue_slots(nullptr), 0U);
  EXPECT_EQ(syncd_update_queue_payload_bytes(nullptr), 0U);
  EXPECT_EQ(syncd_update_queue_newest(nullptr, 0), -1);
  EXPECT_EQ(syncd_update_queue_clear(nullptr, 0, nullptr), SYNCD_E_INVALID);
  EXPECT_EQ(syncd_update_queue_create(nullptr, nullptr, nullptr), SYNCD_E_INVALID);
}

TEST(CapiUpdateQueue, ShapesThatCannotBeAreRefused) {
  EXPECT_THAT(refused(shape(1, 0, 8)).message,
              AllOf(HasSubstr("1 edges of 0 slots of 8 bytes"), HasSubstr("at least 1 slot")));
  EXPECT_EQ(refused(shape(1, 1, 6)).status, SYNCD_E_INVALID);
  EXPECT_EQ(refused(shape(1, 1, 0)).status, SYNCD_E_INVALID);
  EXPECT_EQ(refused(shape(UINT32_MAX, UINT32_MAX, 1 << 20)).status, SYNCD_E_INVALID) << "overflow";
  // 4 PiB: no machine has so much.
  const Answer much = refused(shape(1 << 16, 1 << 16, 1 << 20));
  EXPECT_EQ(much.status, SYNCD_E_NOMEM) << much.message;
  EXPECT_THAT(much.message, HasSubstr("the machine has "));
  syncd_update_queue_options old = shape(1, 1, 8);
  old.struct_size = 8;
  EXPECT_THAT(refused(old).message, HasSubstr("syncd_update_queue_options.struct_size is 8"));
  syncd_update_queue_options half = shape(1, 1, 8);
  half.memory_bytes = 4096;
  EXPECT_THAT(refused(half).message, HasSubstr("memory is NULL, but memory_bytes is 4096"));
}

// ---- Memory of the caller's

TEST(CapiUpdateQueue, LiesInMemoryOfTheCallers) {
  alignas(SYNCD_UPDATE_QUEUE_ALIGNMENT) static std::array<unsigned char, 4096> memory;
  syncd_update_queue_options options = shape(1, 2, sizeof(Update));
  std::size_t needed = 0;
  ASSERT_EQ(syncd_update_queue_bytes_needed(&options, &needed, nullptr), SYNCD_OK);
  ASSERT_LE(needed, memory.size());
  options.memory = memory.data();
  options.memory_bytes = needed - 1;
  EXPECT_THAT(refused(options).message,
              AllOf(HasSubstr("needs " + std::to_string(needed) + " bytes"),
                    HasSubstr("not " + std::to_string(needed - 1))));
  options.memory = memory.data() + 8;
  options.memory_bytes = memory.size() - 8;
  EXPECT_THAT(refused(options).message, HasSubstr("a multiple of 64 bytes"));

  options.memory = memory.data();
  options.memory_bytes = needed;
  const Queue queue = create(options);
  EXPECT_EQ(syncd_update_queue_descriptor(queue.get()), -1);
  syncd_update_queue* attached = nullptr;
  ASSERT_EQ(syncd_update_queue_attach(memory.data(), needed, &attached, nullptr), SYNCD_OK);
  const Queue other(attached, &syncd_update_queue_free);
  ASSERT_EQ(write(queue, 0, 3).status, SYNCD_OK);
  EXPECT_EQ(read(other, 0, 3).status, SYNCD_OK);
}

TEST(CapiUpdateQueue, MemoryThatHoldsNoQueueIsNotAttachedTo) {
  alignas(SYNCD_UPDATE_QUEUE_ALIGNMENT) static std::array<unsigned char, 4096> memory;
  const auto attach = [](std::size_t bytes) {
    syncd_update_queue* queue = nullptr;
    Answer answer = answered([&](auto** error) {
      return syncd_update_queue_attach(memory.data(), bytes, &queue, error);
    });
    EXPECT_EQ(queue, nullptr);
    return answer;
  };
  const Answer empty = attach(memory.size());
  EXPECT_EQ(empty.status, SYNCD_E_NO_UPDATE);
  EXPECT_TRUE(empty.retriable) << "its maker may not be done yet";
  EXPECT_EQ(attach(16).status, SYNCD_E_INVALID);
  syncd_update_queue_options options = shape(1, 2, sizeof(Update));
  options.memory = memory.data();
  options.memory_bytes = memory.size();
  create(options);
  EXPECT_THAT(attach(128).message, HasSubstr("needs "));
  memory[8] = 99;  // the version, behind eight bytes that say what it is
  const Answer newer = attach(memory.size());
  EXPECT_EQ(newer.status, SYNCD_E_UNSUPPORTED);
  EXPECT_THAT(newer.message, HasSubstr("version 99"));
}

// ---- Two processes

TEST(CapiUpdateQueue, AnotherProcessOpensTheDescriptor) {
  const Queue queue = create(shape(1, 2, sizeof(Update)));
  const std::int32_t descriptor = syncd_update_queue_descriptor(queue.get());
  ASSERT_GE(descriptor, 0);
  EXPECT_NE(fcntl(descriptor, F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(write(queue, 0, 6).status, SYNCD_OK);
  const auto child = [&] {
    syncd_update_queue* opened = nullptr;
    if (syncd_update_queue_open(descriptor, &opened, nullptr) != SYNCD_OK) return 1;
    const Queue mine(opened, &syncd_update_queue_free);
    if (syncd_update_queue_slots(opened) != 2) return 2;
    if (read(mine, 0, 6).status != SYNCD_OK) return 3;
    if (syncd_update_queue_descriptor(opened) == descriptor) return 4;
    // The parent's handle serves it, too.
    if (write(queue, 0, 7).status != SYNCD_OK) return 5;
    return write(mine, 0, 8).status == SYNCD_OK ? 0 : 6;
  };
  const pid_t pid = fork();
  if (pid == 0) _exit(child());
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(read(queue, 0, 6).status, SYNCD_E_OVERWRITTEN);
  EXPECT_EQ(read(queue, 0, 7).status, SYNCD_OK);
  EXPECT_EQ(read(queue, 0, 8).status, SYNCD_OK);
}

TEST(CapiUpdateQueue, ADescriptorThatIsNoQueueIsRefused) {
  const auto open = [](std::int32_t descriptor) {
    syncd_update_queue* queue = nullptr;
    Answer answer =
        answered([&](auto** error) { return syncd_update_queue_open(descriptor, &queue, error); });
    EXPECT_EQ(queue, nullptr);
    return answer;
  };
  EXPECT_EQ(open(-1).status, SYNCD_E_INVALID);
  EXPECT_THAT(open(-1).message, HasSubstr("descriptor -1"));
  const int empty = memfd_create("empty", MFD_CLOEXEC);
  ASSERT_GE(empty, 0);
  EXPECT_EQ(open(empty).status, SYNCD_E_INVALID);
  ASSERT_EQ(ftruncate(empty, 8192), 0);
  EXPECT_EQ(open(empty).status, SYNCD_E_NO_UPDATE);
  EXPECT_EQ(fcntl(empty, F_GETFD) < 0, false) << "it stays the caller's";
  close(empty);
}

}  // namespace
