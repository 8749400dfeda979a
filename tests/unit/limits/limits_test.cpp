// The tables multiply the limits that are in force, and their sums hold.
#include <cstdio>

#include "daemon/edge/config/config.h"
#include "daemon/edge/server/limits_table.h"
#include "tests/unit/limits/limits_world.h"

namespace syncd::server {
namespace {

TEST(LimitsTable, StandsForTheDefaultsOfTheConfiguration) {
  const config::Config config;
  EXPECT_EQ(config.network.connections_max, limits::kConnectionsMax);
  EXPECT_LE(config.network.unintroduced_max, config.network.connections_max);
  EXPECT_EQ(config.engine.workers_per_job_max, limits::kWorkersPerJobDefault);
  EXPECT_EQ(config.engine.graph_edges_max, limits::kGraphEdgesDefault);
  EXPECT_EQ(config.jobs_per_identity_max, limits::kJobsMax);
  EXPECT_EQ(config.network.outbound_bytes_max, limits::kOutboundBytesMax);
  EXPECT_EQ(config.store_queue_bytes_max, limits::kStoreQueueBytesMax);
  EXPECT_EQ(config.store_queue_records_max, limits::kStoreQueueRecordsMax);
}

TEST(LimitsTable, AllLimitsAtOnceFitTheBudget) {
  std::printf("%-32s %-30s %-11s %10s x %9s = %8s\n", "memory", "limit", "per", "at most", "bytes",
              "MiB");
  std::uint64_t sum = 0;
  for (const MemoryRow& row : kMemoryTable) {
    std::printf("%-32s %-30s %-11s %10llu x %9llu = %8.1f\n", row.what, row.limit,
                to_string(row.per), static_cast<unsigned long long>(row.most),
                static_cast<unsigned long long>(row.bytes_each),
                static_cast<double>(row.bytes()) / (1 << 20));
    // Every product fits, so that the sum is one.
    ASSERT_LE(row.bytes_each, UINT64_MAX / row.most);
    sum += row.bytes();
  }
  std::printf("%-32s %-30s %-11s %10s   %9s   %8.1f of %llu\n", "in sum", "", "", "", "",
              static_cast<double>(sum) / (1 << 20),
              static_cast<unsigned long long>(kMemoryBudget >> 20));
  EXPECT_EQ(sum, memory_in_sum());
  EXPECT_LE(sum, kMemoryBudget);
}

// Of all jobs together: a job that has ended makes room, one that goes on does not.
TEST(Workers, OfAllJobsAreBounded) {
  EngineOptions options;
  options.workers_max = 3;
  options.defaults.expected_workers = 9;
  LimitsWorld world(options);
  wire::WorkerRef first;
  // The status of the answer.
  const auto join = [&](const std::string& job, const std::string& name, Incarnation life = 0) {
    world.settle();
    wire::Join request;
    request.job = job;
    request.name = name;
    request.incarnation = life;
    world.ask(7, request);
    world.settle_store();
    if (world.answers().empty()) return Status::kInternal;
    if (const auto* error = std::get_if<wire::Error>(&world.answers().back())) {
      EXPECT_NE(error->message.find("3 workers of all jobs"), std::string::npos) << error->message;
      return error->status;
    }
    const auto& joined = std::get<wire::Joined>(world.answers().back());
    if (first.incarnation == 0) first = joined.worker;
    return Status::kOk;
  };
  EXPECT_EQ(join("a", "1"), Status::kOk);
  EXPECT_EQ(join("a", "2"), Status::kOk);
  EXPECT_EQ(join("b", "1"), Status::kOk);
  EXPECT_EQ(join("b", "2"), Status::kLimit);
  EXPECT_EQ(join("c", "1"), Status::kLimit);
  const Engine& engine = world.core().engine();
  EXPECT_EQ(engine.jobs_known(), 2U) << "a join that is refused makes no job";
  EXPECT_EQ(join("a", "1", first.incarnation), Status::kOk) << "its place is its own";
  world.ask(1, wire::StopJobRequest{"a", ""});
  EXPECT_EQ(join("c", "1"), Status::kOk);
  EXPECT_EQ(engine.find_job("a"), 0U) << "forgotten";
  EXPECT_EQ(join("b", "2"), Status::kOk) << "its two workers are";
  EXPECT_EQ(join("b", "3"), Status::kLimit);
}

}  // namespace
}  // namespace syncd::server
