// Queues in host memory, what a policy asks of them, and how much memory is too much.
#include "reference_trainer/params/cpu_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "reference_trainer/params/store_devices.h"
#include "reference_trainer/run/policies.h"
#include "tests/unit/reference_trainer/device_queues_cases.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using testing::expect_reduced;
using ::testing::HasSubstr;
using testing::StandInPeer;

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

class HostQueues : public ::testing::Test {
 protected:
  StoreDevice& device = store_device(Backend::kCpu);
};

TEST_F(HostQueues, ReduceToTheWeightedMean) {
  testing::reduces_to_the_weighted_mean(device);
}
TEST_F(HostQueues, LeaveOutWhatIsNotThere) {
  testing::leaves_out_what_is_not_there(device);
}
TEST_F(HostQueues, KeepAStepAndApplyItLater) {
  testing::keeps_a_step_and_applies_it_later(device);
}
TEST_F(HostQueues, HandOutNoMixture) {
  testing::hands_out_no_mixture(device, 3'000, 512, 200);
}

TEST_F(HostQueues, CarryUpdatesFromAnyWorkerToAnyOfAnotherProcess) {
  SharedParameters queues =
      SharedParameters::of_queues(device, 3, 2, std::vector<float>{1, 2}, true);
  MachineDevice<CpuMachine> elsewhere{CpuMachine()};  // as another process has it
  SharedParameters others = SharedParameters::attach(elsewhere, ::dup(queues.fd()), 1);
  EXPECT_EQ(others.queues().shape().parameters, 2U);
  EXPECT_EQ(others.queues().shape().slots, 2);
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      if (from == to) continue;
      const auto value = static_cast<float>(10 * from + to);
      StandInPeer(device, queues.queues(), from).sends(to, 7, {value, -value});
      StandInPeer reader(elsewhere, others.queues(), to);
      expect_reduced(reader.port->reduce(std::vector<PeerUpdate>{{from, 7, 1.0}}), 1, 0, 0);
      EXPECT_EQ(reader.replica(), (std::vector<float>{value, -value}));
    }
  }
  std::vector<float> out(2);
  EXPECT_TRUE(average_published(others.queues(), {true, true, true}, out));
  EXPECT_EQ(out, (std::vector<float>{1, 2}));
}

TEST_F(HostQueues, ANewLifeForgetsTheOldOneOfThisWorkerAlone) {
  const auto queues = device.create_queues(device_queue_shape(2, 2, 2), std::vector<float>{1, 2});
  StandInPeer one(device, *queues, 0);
  StandInPeer two(device, *queues, 1);
  one.sends(1, 9, {3, 4});
  two.sends(0, 9, {3, 4});
  one.port->forget();
  expect_reduced(two.port->reduce(std::vector<PeerUpdate>{{0, 9, 1.0}}), 0, 1, 0);
  expect_reduced(one.port->reduce(std::vector<PeerUpdate>{{1, 9, 1.0}}), 1, 0, 0);
  // An earlier iteration than in the old life, in the slot that a later one had.
  one.sends(1, 7, {5, 6});
  expect_reduced(two.port->reduce(std::vector<PeerUpdate>{{0, 7, 1.0}}), 1, 0, 0);
}

// A worker that is killed while it sends spoils nothing but what it was sending, and its next life
// mends that.
TEST_F(HostQueues, AKilledWriterLeavesNothingTornBehind) {
  const std::vector<float> initial(20'000, 0.0F);
  const auto queues = device.create_queues(device_queue_shape(2, 1, initial.size()), initial);
  StandInPeer worker(device, *queues, 0);
  StandInPeer reader(device, *queues, 1);
  for (int round = 0; round < 5; ++round) {
    std::array<int, 2> at_work{};
    ASSERT_EQ(::pipe(at_work.data()), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (std::int64_t k = 0;; ++k) {
        worker.sends(1, k, std::vector<float>(initial.size(), static_cast<float>(k % 1000)));
        if (k == 10 && ::write(at_work[1], "!", 1) != 1) ::_exit(1);
      }
    }
    char byte = 0;
    ASSERT_EQ(::read(at_work[0], &byte, 1), 1);
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    for (const int fd : at_work) ::close(fd);
    worker.port->forget();
    worker.sends(1, 3, initial);
    reader.holds(std::vector<float>(initial.size(), 1.0F));
    expect_reduced(reader.port->reduce(std::vector<PeerUpdate>{{0, 3, 1.0}}), 1, 0, 0);
    EXPECT_EQ(reader.replica(), initial);
  }
}

TEST_F(HostQueues, OfTooMuchMemoryAreRefusedWithWhatNeedsIt) {
  const auto error = [](int workers, std::int64_t slots, std::size_t parameters) {
    return testing::error_of<std::invalid_argument>(
        [&] { device_queue_shape(workers, slots, parameters); });
  };
  EXPECT_EQ(error(40, 6, 4'500), "no error");
  EXPECT_THAT(error(1024, 6, 4'500), AllOf(HasSubstr("1024 workers"),
                                           HasSubstr("need 105.5 GiB of shared memory; allowed: "
                                                     "2 GiB (fewer workers")));
  EXPECT_THAT(error(4, 2'000'000'001, 4'500), HasSubstr("2000000001 updates"));
  EXPECT_THAT(error(4, 5, std::size_t{1} << 62), HasSubstr("GiB"));
}

TEST_F(HostQueues, AreNotFoundInOtherMemory) {
  const SharedMemory memory = SharedMemory::create_large(4096, "a test");
  EXPECT_THROW(SharedParameters::attach(device, ::dup(memory.fd()), 1), SharedMemoryError);
}

}  // namespace
}  // namespace syncd::trainer
