// What the table of limits says of memory, against what the things take.
#include <array>
#include <cstdio>
#include <vector>

#include "daemon/core/engine/kept_checkpoints.h"
#include "daemon/edge/server/limits_table.h"
#include "proto/transport/tls.h"
#include "tests/integration/support/files.h"
#include "tests/support/tls_files.h"
#include "tests/unit/limits/heap.h"
#include "tests/unit/limits/limits_world.h"
#include "tests/unit/net/net_fixture.h"

namespace syncd::server {
namespace {

// Of each of `count` things that `make` makes.
template <class Make>
void expect_each_within(const char* what, std::size_t count, std::uint64_t claimed, Make make) {
  const std::size_t before = test::heap_bytes();
  make();
  const std::size_t after = test::heap_bytes();
  ASSERT_GT(after, before);
  const std::uint64_t each = (after - before) / count;
  std::printf("%-24s %8llu bytes each, the table says %llu\n", what,
              static_cast<unsigned long long>(each), static_cast<unsigned long long>(claimed));
  EXPECT_LE(each, claimed) << what;
  // A claim that is far too high hides what has become of the thing.
  EXPECT_GE(each, claimed / 8) << what;
}

class ConnectionMemory : public net::NetTest {};

TEST_F(ConnectionMemory, AConnectionTakesWhatTheTableSays) {
  start();
  constexpr std::size_t kCount = 200;
  std::vector<std::unique_ptr<net::RawClient>> clients;
  for (std::size_t i = 0; i < kCount; ++i) {
    clients.push_back(std::make_unique<net::RawClient>(socket_path()));
  }
  // Nothing of the clients' own is made in here.
  const std::vector<std::uint8_t> hello = net::RawClient::frame(
      {1, wire::Hello{kProtocolMin, kProtocolMax, std::string(64, 'c'), std::string(64, 'v'), ""}});
  expect_each_within("connection", kCount, kConnectionBytes, [&] {
    for (const auto& client : clients) client->send_bytes(hello);
    ASSERT_TRUE(run_until([&] { return network_->stats().sessions == kCount; }));
    handler_.lines.clear();
    handler_.lines.shrink_to_fit();
  });
}

// Both ends after the handshake and a message each way; the daemon's is one of them.
TEST(TlsMemory, AChannelTakesWhatTheTableSays) {
  const test::TempDir directory;
  const test::TlsFiles files(directory.path());
  files.make_server();
  std::string error;
  const auto server =
      tls::Context::server({files.certificate("server"), files.key("server"), "", false}, error);
  ASSERT_NE(server, nullptr) << error;
  const auto client = tls::Context::client({files.ca(), "", ""}, error);
  ASSERT_NE(client, nullptr) << error;
  constexpr std::size_t kCount = 50;
  struct End {
    std::unique_ptr<tls::Channel> channel;
    std::vector<std::uint8_t> out;
    std::vector<std::uint8_t> heard;
  };
  std::vector<End> ends(2 * kCount);
  const std::vector<std::uint8_t> text(100, 'x');
  expect_each_within("TLS channel", 2 * kCount, kTlsBytes, [&] {
    for (std::size_t i = 0; i < ends.size(); i += 2) {
      End& accepting = ends[i];
      End& connecting = ends[i + 1];
      accepting.channel = tls::Channel::accept(server);
      connecting.channel =
          tls::Channel::connect(client, "127.0.0.1", "127.0.0.1:7117", connecting.out);
      const auto exchange = [&] {
        while (!accepting.out.empty() || !connecting.out.empty()) {
          const auto to_server = std::exchange(connecting.out, {});
          accepting.channel->receive(to_server, accepting.heard, accepting.out);
          const auto to_client = std::exchange(accepting.out, {});
          connecting.channel->receive(to_client, connecting.heard, connecting.out);
        }
      };
      exchange();
      ASSERT_TRUE(accepting.channel->established()) << accepting.channel->error();
      ASSERT_TRUE(connecting.channel->send(text, connecting.out));
      ASSERT_TRUE(accepting.channel->send(text, accepting.out));
      exchange();
    }
  });
}

TEST(JobMemory, AJobTakesWhatTheTableSays) {
  LimitsWorld world;
  constexpr std::uint32_t kCount = 500;
  expect_each_within("job", kCount, kJobBytes, [&] {
    for (std::uint32_t i = 0; i < kCount; ++i) {
      std::string name = std::to_string(i);
      name.resize(limits::kJobNameBytesMax, 'j');
      world.ask(1, wire::CreateJobRequest{name, "naive_wait:5+specsync+ssp:3", 8, 0});
      world.settle();
    }
  });
  EXPECT_EQ(world.core().engine().jobs_known(), kCount);
}

TEST(WorkerMemory, AWorkerTakesWhatTheTableSays) {
  for (const char* policy : {"bsp", "naive_wait:5+specsync+ssp:3", "hop:ring"}) {
    LimitsWorld world;
    constexpr std::uint32_t kCount = 1'000;
    wire::Join join;
    join.name.assign(limits::kWorkerNameBytesMax, 'w');
    join.host.assign(limits::kHostNameBytesMax, 'h');
    join.data.assign(limits::kMemberDataBytesMax, 7);
    join.phase.assign(limits::kPhaseNameBytesMax, 'p');
    join.phase_left_us = 1'000'000;
    join.notices = wire::kNoticeMembers | wire::kNoticePlan;
    expect_each_within(policy, kCount, kWorkerBytes, [&] {
      const auto workers = world.join("job", policy, kCount, join);
      ASSERT_EQ(workers.size(), kCount);
      for (const wire::WorkerRef& worker : workers) {
        world.ask(LimitsWorld::connection_of(worker.rank), wire::Begin{worker, 0});
      }
      world.settle();
    });
    EXPECT_EQ(world.core().engine().stats().workers, kCount);
  }
}

TEST(SpeedsMemory, AJobsTakeWhatTheTableSays) {
  constexpr std::size_t kCount = 200;
  std::vector<StragglerDetector> detectors;
  detectors.reserve(kCount);
  expect_each_within("speeds", kCount, kSpeedsBytes, [&] {
    for (std::size_t i = 0; i < kCount; ++i) {
      StragglerDetector& detector = detectors.emplace_back();
      std::array<StragglerDetector::Track, StragglerDetector::kOthersMin + 1> tracks;
      for (std::size_t k = 0; k < 2'000U; ++k) {
        detector.push(tracks[k % tracks.size()], false,
                      StragglerDetector::kSpanMin + static_cast<Micros>(k));
      }
    }
  });
}

// A large one, and many that have a name and one shard.
TEST(KeptCheckpointMemory, TheyTakeWhatTheyCountFor) {
  CheckpointSnapshot large;
  large.reason.assign(limits::kReasonBytesMax, 'r');
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    large.saved.push_back({i, i, 1, std::string(limits::kCheckpointLocationBytesMax, 'x')});
  }
  CheckpointSnapshot small = large;
  small.saved.resize(1);
  const std::uint64_t claimed = KeptIndex::bytes_of(large) + 1'000 * KeptIndex::bytes_of(small);
  KeptCheckpoints kept;
  std::vector<std::string> gone;
  expect_each_within("kept checkpoints", 1, claimed, [&] {
    kept.add("large", large, gone);
    for (int i = 0; i < 1'000; ++i) {
      std::string name = std::to_string(i);
      name.resize(limits::kJobNameBytesMax, 'j');
      kept.add(name, small, gone);
    }
  });
  EXPECT_EQ(kept.index().bytes(), claimed);
  EXPECT_TRUE(gone.empty());
}

TEST(GraphMemory, AnEdgeTakesWhatTheTableSays) {
  for (const char* policy : {"hop:complete,max_ig=4", "notify_ack:complete"}) {
    LimitsWorld world;
    const auto workers = world.join("job", policy, kEdgesPerWorkerMax);
    ASSERT_EQ(workers.size(), kEdgesPerWorkerMax);
    constexpr std::size_t kEdges = kEdgesPerWorkerMax * (kEdgesPerWorkerMax - 1);
    expect_each_within(policy, kEdges, kEdgeBytes, [&] {
      for (const wire::WorkerRef& worker : workers) {
        world.ask(LimitsWorld::connection_of(worker.rank), wire::Begin{worker, 0});
      }
      world.settle();
      for (const wire::WorkerRef& worker : workers) {
        const ConnectionId connection = LimitsWorld::connection_of(worker.rank);
        world.ask(connection, wire::Targets{worker, 0});
        world.ask(connection, wire::Push{worker, 0, {}, 1, 1});
        world.ask(connection, wire::Collect{worker, 0});
        world.settle();
      }
    });
  }
}

TEST(HeldAnswerMemory, AnAnswerTakesWhatTheTableSays) {
  FakeStore store;
  CommitGate gate(store, [](const Caller&, wire::Body&&) {});
  Effects effects;
  effects.records.emplace_back();
  gate.take(effects);
  gate.submit(effects);
  constexpr std::size_t kCount = 70'000;  // just beyond a doubling
  expect_each_within("held answer", kCount, kHeldAnswerBytes, [&] {
    for (std::size_t i = 0; i < kCount; ++i) {
      wire::Joined joined;
      joined.policy.assign(limits::kPolicyBytesMax - 1, 'p');
      gate.pass({{1, i}, true, std::move(joined)});
    }
  });
}

}  // namespace
}  // namespace syncd::server
