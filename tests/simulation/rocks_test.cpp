// RocksDB on a disk that loses its power, for many seeds; see rocks_world.h. A failure prints its
// seed.
//
//   SYNCD_PROPERTY_RUNS=<n>   n times as many runs
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/edge/store/rocks_database.h"
#include "daemon/edge/store/store.h"
#include "rocks_disk.h"
#include "rocks_world.h"
#include "tests/support/property_runs.h"
#include "tests/support/random.h"
#include "violation.h"

namespace syncd::simulation {
namespace {

// Each part in a test of its own, so that they run beside each other.
constexpr std::uint64_t kSeeds = 350;

class RocksOnADisk : public testing::TestWithParam<std::uint64_t> {};

TEST_P(RocksOnADisk, KeepsWhatWasCommitted) {
  RocksCounts counts;
  const std::uint64_t seeds = kSeeds * test::property_runs();
  for (std::uint64_t seed = 1 + GetParam() * seeds; seed <= (GetParam() + 1) * seeds; ++seed) {
    try {
      for (const auto& [what, count] : run_rocks_world(seed)) counts[what] += count;
    } catch (const Violation& violation) {
      FAIL() << violation.what() << "\n  simulation_rocks_soak --seed " << seed
             << " --runs 1 brings it back";
    }
  }
  // The runs are worth what they come across.
  for (const char* what : {"opened",
                           "did not open, with a reason",
                           "more than was reported",
                           "lost what was not committed",
                           "commit failed",
                           "closed in good order",
                           "power cut",
                           "kill",
                           "cut at append",
                           "cut at sync",
                           "cut at create",
                           "cut at rename",
                           "cut at directory sync",
                           "failed append",
                           "failed sync",
                           "partial append",
                           "disk full",
                           "slow sync",
                           "torn file",
                           "lost change of a directory"}) {
    EXPECT_GT(counts[what], 0U) << "never came across: " << what;
  }
  if (HasFailure()) {
    for (const auto& [what, count] : counts) printf("%s: %lu\n", what.c_str(), count);
  }
}

// ---- retention
// -------------------------------------------------------------------------------------

constexpr std::size_t kSnapshotEvery = 50;

// Records that do not compress, so that RocksDB's files fill up.
store::Batch large_record(Sequence sequence) {
  Record record;
  record.kind = sequence == 1 ? RecordKind::kJobCreated : RecordKind::kPush;
  record.job = 1;
  record.sequence = sequence;
  record.epoch = 1;
  record.time_us = static_cast<Micros>(sequence);
  record.name = "job";
  test::Random random(sequence);
  while (record.reason.size() < 200'000) {
    record.reason.push_back(static_cast<char>(random.next() >> 32));
  }
  store::Batch batch;
  if (sequence % kSnapshotEvery == 0) {
    JobSnapshot snapshot;
    snapshot.created = record;
    snapshot.created.reason.clear();
    snapshot.sequence = sequence;
    snapshot.time_us = record.time_us;
    snapshot.policy = "ssp:3";
    batch.snapshots.push_back(std::move(snapshot));
  }
  batch.records.push_back(std::move(record));
  return batch;
}

store::Options options_on(RocksDisk& disk, store::Mode mode) {
  store::Options options;
  options.path = "/store";
  options.env = disk.env();
  options.mode = mode;
  options.retention_bytes = 1'000'000;
  options.retry_after_us = 200;
  return options;
}

// Commits record after record, `last` at most, until the power goes or something fails.
void write_on(RocksDisk& disk, const store::Options& options, Ticket last,
              const std::function<void(const store::CommitReport&)>& look) {
  std::mutex mutex;
  std::condition_variable changed;
  Ticket committed = 0;
  bool over = false;
  std::string error;
  const auto store = store::open_rocks_store(options, error);
  std::vector<store::RecoveredJob> jobs;
  if (!store || !store->load(jobs, error)) return;
  store->start([&](const store::CommitReport& report) {
    look(report);
    const std::lock_guard lock(mutex);
    committed = report.committed;
    over |= disk.is_cut() || !report.error.empty();
    changed.notify_all();
  });
  for (Ticket ticket = 1; ticket <= last; ++ticket) {
    EXPECT_TRUE(store->submit(ticket, large_record(ticket)));
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return over || committed >= ticket; });
    if (over) return;
  }
}

// What stands for the records that retention removes is on the disk before they go, in fast mode
// too.
TEST(RocksRetention, LeavesWhatARestartNeedsWhenThePowerGoes) {
  for (const store::Mode mode : {store::Mode::kFast, store::Mode::kDurable}) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      RocksDisk disk(seed, [] {});
      disk.power_on({});
      std::uint64_t removed = 0;
      write_on(disk, options_on(disk, mode), 10 * kSnapshotEvery, [&](const auto& report) {
        for (const store::Removed& part : report.removed) removed += part.records;
        if (removed > kSnapshotEvery) disk.cut();
      });
      ASSERT_TRUE(disk.is_cut()) << "nothing was removed";
      disk.power_on({});
      std::string error;
      std::vector<store::RecoveredJob> jobs;
      const auto store = store::open_rocks_store(options_on(disk, mode), error);
      EXPECT_TRUE(store != nullptr && store->load(jobs, error)) << "seed " << seed << ": " << error;
    }
  }
}

// What RocksDB's own threads could not write or sync, at any step of theirs: RocksDB ends the
// process that has it sync such a log, where it was built with assertions, as distributions build
// it.
TEST(RocksClosing, SyncsNoLogAfterAnErrorInTheBackground) {
  store::Options options;
  options.path = "/store";
  options.mode = store::Mode::kFast;
  int failed = 0;
  int whole = 0;
  for (std::uint64_t step = 1; step <= 13; ++step) {
    RocksDisk disk(step, [] {});
    disk.power_on({});
    options.env = disk.env();
    std::string error;
    auto database = store::open_database(options, error);
    ASSERT_NE(database, nullptr) << error;
    const auto put = [&](store::ColumnFamily family) {
      return database->db->Put({}, database->families[family], "key", "value");
    };
    ASSERT_TRUE(put(store::kRecords).ok());
    ASSERT_TRUE(put(store::kJobs).ok());
    RocksDisk::Faults faults;
    faults.fail_from = step;
    faults.fail_until = step + 1;
    disk.restart(faults);
    const auto flushed = database->db->Flush({}, database->families[store::kRecords]);
    EXPECT_EQ(flushed.ok(), !*database->failed) << flushed.ToString();
    disk.restart({});
    store::close_in_order(std::move(database), options);
    const bool noted = disk.env()->FileExists("/store/CLOSED").ok();
    EXPECT_EQ(noted, flushed.ok());
    failed += flushed.ok() ? 0 : 1;
    whole += noted ? 1 : 0;
  }
  EXPECT_GE(failed, 5);
  EXPECT_GE(whole, 1);
}

INSTANTIATE_TEST_SUITE_P(Part, RocksOnADisk, testing::Values(0U, 1U, 2U));

}  // namespace
}  // namespace syncd::simulation
