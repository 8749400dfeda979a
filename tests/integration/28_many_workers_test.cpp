// Ten thousand workers, each with a connection of its own, that wait: what they cost the daemon,
// and that its pages stay as small as for two.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <memory>

#include "support/daemon.h"
#include "support/http.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

constexpr std::uint32_t kWorkers = 10'000;

TEST(ManyWorkers, CostLittleMemoryAndNoSeriesOfTheirOwn) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < kWorkers + 1'100) {
    GTEST_SKIP() << "this process may have only " << limit.rlim_cur << " descriptors";
  }
  TempDir directory;
  Daemon daemon(directory, {.store = "memory",
                            .admin = "127.0.0.1:0",
                            .config = "[timeouts]\nheartbeat_timeout = \"1h\"\n"});
  const auto idle_bytes =
      sample(http_get(daemon.admin_address(), "/metrics").body, "process_resident_memory_bytes");
  std::vector<std::unique_ptr<RawClient>> clients;
  for (std::uint32_t rank = 0; rank < kWorkers; ++rank) {
    clients.push_back(std::make_unique<RawClient>(daemon.address()));
    clients.back()->hello();
    RawWorker worker(*clients.back(),
                     join_of("many", static_cast<std::int32_t>(rank), kWorkers, "ssp:3"));
    // All but one: the job does not start, and everybody waits.
    if (rank + 1 < kWorkers) clients.back()->send(wire::Begin{worker.ref(), 0});
  }
  HttpReply reply;
  wait_until("everybody to wait", [&] {
    reply = http_get(daemon.admin_address(), "/metrics");
    return sample(reply.body, "syncd_job_waiting_workers{job_name=\"many\"}") == kWorkers - 1;
  });
  EXPECT_EQ(sample(reply.body, "syncd_job_members{job_name=\"many\",state=\"ready\"}"),
            kWorkers - 1);
  EXPECT_LT(reply.body.size(), 32U * 1024);
  const auto busy_bytes = sample(reply.body, "process_resident_memory_bytes");
  for (int i = 0; i < 200; ++i) http_get(daemon.admin_address(), "/metrics");
  const std::string last = http_get(daemon.admin_address(), "/metrics").body;
  std::printf("resident: %.0f MB idle, %.0f MB with %u waiting workers; turns over 1 ms: %.0f\n",
              idle_bytes / 1e6, busy_bytes / 1e6, kWorkers,
              sample(last, "syncd_loop_turn_seconds_count") -
                  sample(last, "syncd_loop_turn_seconds_bucket{le=\"0.001\"}") -
                  sample(reply.body, "syncd_loop_turn_seconds_count") +
                  sample(reply.body, "syncd_loop_turn_seconds_bucket{le=\"0.001\"}"));
  EXPECT_LT(idle_bytes, 30e6 * SYNCD_TEST_MEMORY_FACTOR);
  EXPECT_LT(busy_bytes, 250e6 * SYNCD_TEST_MEMORY_FACTOR);
}

}  // namespace
}  // namespace syncd::test
