// Queues between workers, what a policy asks of them, and how much memory is too much.
#include "reference_trainer/params/peer_queues.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "reference_trainer/run/peer_policy.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::array<float, 2> kInitial{1, 2};

TEST(PeerPolicy, KnowsTheOrderAndTheSlotsOfAPolicy) {
  EXPECT_FALSE(peer_policy("ssp:3").has_value());
  EXPECT_FALSE(peer_policy("hopping:ring").has_value());
  EXPECT_EQ(peer_policy("hop:ring")->slots, 5) << "max_ig is 4 unless given";
  EXPECT_EQ(peer_policy("hop:ring,max_ig=2,backup=1")->slots, 3);
  EXPECT_EQ(peer_policy("hop:ring,max_ig=2,staleness=5,skip=10")->slots, 9);
  EXPECT_FALSE(peer_policy("hop:ring")->compute_first);
  EXPECT_TRUE(peer_policy("hop:ring", HopOrder::kSerial)->compute_first);
  EXPECT_FALSE(peer_policy("hop:ring", HopOrder::kSerial)->acknowledges);
  EXPECT_TRUE(peer_policy("notify_ack:ring")->compute_first);
  EXPECT_TRUE(peer_policy("notify_ack:ring")->acknowledges);
  EXPECT_EQ(peer_policy("notify_ack:ring")->slots, 1);
  EXPECT_EQ(peer_policy("notify_ack:ring,every=3")->every, 3);
  EXPECT_FALSE(peer_policy("hop:ring,max_ig=many").has_value()) << "no policy at all";
}

TEST(PeerQueues, CarryUpdatesFromAnyWorkerToAny) {
  PeerQueues queues = PeerQueues::create(3, 2, kInitial);
  PeerQueues others = PeerQueues::attach(::dup(queues.fd()), 3);
  EXPECT_EQ(others.parameters(), 2U);
  EXPECT_EQ(others.slots(), 2);
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      if (from == to) continue;
      const auto value = static_cast<float>(10 * from + to);
      ASSERT_TRUE(queues.send(from, to, 7, std::array<float, 2>{value, -value}));
    }
  }
  std::array<float, 2> out{};
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      if (from == to) continue;
      ASSERT_EQ(others.receive(to, from, 7, out), PeerQueues::Received::kWhole);
      const auto value = static_cast<float>(10 * from + to);
      EXPECT_THAT(out, ElementsAre(value, -value));
    }
  }
  EXPECT_EQ(others.receive(0, 1, 8, out), PeerQueues::Received::kMissing);
  EXPECT_EQ(others.receive(0, 1, 5, out), PeerQueues::Received::kMissing) << "overwritten";
  EXPECT_EQ(others.receive(0, 3, 7, out), PeerQueues::Received::kMissing);
  EXPECT_FALSE(queues.send(0, 3, 7, kInitial));
  EXPECT_FALSE(queues.send(0, -1, 7, kInitial));
}

TEST(PeerQueues, ANewLifeForgetsTheOldOneOfThisWorkerAlone) {
  PeerQueues queues = PeerQueues::create(2, 2, kInitial);
  queues.send(0, 1, 9, kInitial);
  queues.send(1, 0, 9, kInitial);
  queues.start_life(0);
  std::array<float, 2> out{};
  EXPECT_EQ(queues.receive(1, 0, 9, out), PeerQueues::Received::kMissing);
  EXPECT_EQ(queues.receive(0, 1, 9, out), PeerQueues::Received::kWhole);
  EXPECT_FALSE(queues.read_published(0, out));
  // An earlier iteration than in the old life, in the slot that a later one had.
  queues.send(0, 1, 7, kInitial);
  EXPECT_EQ(queues.receive(1, 0, 7, out), PeerQueues::Received::kWhole);
}

TEST(PeerQueues, TheMeanIsThatOfTheWorkersThatCount) {
  PeerQueues queues = PeerQueues::create(3, 1, kInitial);
  std::array<float, 2> out{};
  EXPECT_TRUE(average_published(queues, {true, true, true}, out));
  EXPECT_EQ(out, kInitial);
  queues.publish(0, 1, std::array<float, 2>{4, 0});
  queues.publish(2, 1, std::array<float, 2>{7, 2});
  EXPECT_TRUE(average_published(queues, {true, true, true}, out));
  EXPECT_THAT(out, ElementsAre(4, 4.0F / 3));
  EXPECT_TRUE(average_published(queues, {false, true, true}, out));
  EXPECT_THAT(out, ElementsAre(4, 2));
  EXPECT_FALSE(average_published(queues, {false, false, false}, out));
}

// A worker that is killed while it sends spoils nothing but what it was sending, and its next life
// mends that.
TEST(PeerQueues, AKilledWriterLeavesNothingTornBehind) {
  const std::vector<float> initial(20'000, 0.0F);
  PeerQueues queues = PeerQueues::create(2, 1, initial);
  for (int round = 0; round < 5; ++round) {
    std::array<int, 2> at_work{};
    ASSERT_EQ(::pipe(at_work.data()), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      std::vector<float> values(initial.size());
      for (std::int64_t k = 0;; ++k) {
        values.assign(values.size(), static_cast<float>(k % 1000));
        queues.send(0, 1, k, values);
        if (k == 10 && ::write(at_work[1], "!", 1) != 1) ::_exit(1);
      }
    }
    char byte = 0;
    ASSERT_EQ(::read(at_work[0], &byte, 1), 1);
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    for (const int fd : at_work) ::close(fd);
    queues.start_life(0);
    queues.send(0, 1, 3, initial);
    std::vector<float> out(initial.size(), 1.0F);
    ASSERT_EQ(queues.receive(1, 0, 3, out), PeerQueues::Received::kWhole);
    EXPECT_EQ(out, initial);
  }
}

TEST(PeerQueues, TooMuchMemoryIsRefusedWithWhatNeedsIt) {
  const auto error = [](int workers, std::int64_t slots, std::size_t parameters) {
    return testing::error_of<std::invalid_argument>(
        [&] { PeerQueues::bytes_needed(workers, slots, parameters); });
  };
  EXPECT_EQ(error(40, 6, 4'500), "no error");
  EXPECT_THAT(error(1024, 6, 4'500), AllOf(HasSubstr("1024 workers"),
                                           HasSubstr("need 105.5 GiB of shared memory; allowed: "
                                                     "2 GiB (fewer workers")));
  EXPECT_THAT(error(4, 2'000'000'001, 4'500), HasSubstr("2000000001 updates"));
  EXPECT_THAT(error(4, 5, std::size_t{1} << 62), HasSubstr("GiB"));
}

TEST(PeerQueues, OtherMemoryIsNotTakenForQueues) {
  const SharedMemory memory = SharedMemory::create_large(4096, "a test");
  EXPECT_THAT(
      testing::error_of<SharedMemoryError>([&] { PeerQueues::attach(::dup(memory.fd()), 2); }),
      HasSubstr("update queues"));
  const PeerQueues queues = PeerQueues::create(4, 1, kInitial);
  EXPECT_THAT(
      testing::error_of<SharedMemoryError>([&] { PeerQueues::attach(::dup(queues.fd()), 2); }),
      HasSubstr("update queues"));
}

}  // namespace
}  // namespace syncd::trainer
