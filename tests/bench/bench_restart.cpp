// A daemon's start on a large history: from its process's start until it says that it is ready,
// beside RocksDB's own opening of the same directory. One thread.
#include <rocksdb/db.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/edge/store/store.h"
#include "support/daemon.h"
#include "tests/bench/measure.h"
#include "tests/bench/table.h"

namespace syncd::bench {
namespace {

constexpr const char* kAbout =
    "How long a daemon takes until it serves, with a history of so many records behind it.";
constexpr std::uint32_t kWorkers = 64;

// All workers join, and push in turn.
Record record_at(JobId job, Sequence sequence, Micros time_us) {
  Record r;
  r.kind = sequence < 2 + kWorkers ? RecordKind::kWorkerJoined : RecordKind::kPush;
  r.job = job;
  r.sequence = sequence;
  r.time_us = time_us;
  r.epoch = 1;
  r.rank = static_cast<std::int64_t>(sequence % kWorkers);
  r.incarnation = static_cast<Incarnation>(r.rank + 1);
  if (r.kind == RecordKind::kWorkerJoined) {
    r.name = "worker-" + std::to_string(r.rank);
    r.host = "node";
    return r;
  }
  r.iteration = static_cast<Iteration>(sequence / kWorkers);
  r.clock = r.iteration + 1;
  r.span_us = 20'000 + static_cast<Micros>(sequence % 977);
  r.waited_us = static_cast<Micros>(sequence % 31);
  r.samples = 128;
  r.bytes = 4096;
  return r;
}

JobSnapshot snapshot_at(const Record& created, Sequence sequence, Micros time_us) {
  JobSnapshot s;
  s.created = created;
  s.sequence = sequence;
  s.time_us = time_us;
  s.state = JobState::kRunning;
  s.epoch = 1;
  s.next_incarnation = kWorkers + 1;
  s.pushes = sequence - 1 - kWorkers;
  s.policy = "asp";
  for (Rank rank = 0; rank < kWorkers; ++rank) {
    const auto clock = static_cast<Clock>(sequence / kWorkers);
    s.highest_clock = clock;
    s.workers.push_back({.rank = rank,
                         .state = WorkerState::kRunning,
                         .incarnation = rank + 1,
                         .clock = clock - 1,
                         .granted = clock - 2,
                         .pushed = clock - 2,
                         .own_pushes = static_cast<std::uint64_t>(clock),
                         .last_push_us = time_us,
                         .previous_push_us = time_us - 20'000,
                         .name = "worker-" + std::to_string(rank),
                         .host = "node"});
  }
  return s;
}

// A store with the history of `jobs` jobs, as long as each other, snapshots as the daemon makes
// them, and as much after the last ones as there can be.
void make_store(const std::string& path, std::uint64_t records, std::uint32_t jobs) {
  store::Options options;
  options.path = path;
  options.mode = store::Mode::kFast;
  std::string error;
  const auto store = store::open_rocks_store(options, error);
  if (store == nullptr) fail(error);
  std::mutex mutex;
  std::condition_variable changed;
  Ticket committed = 0;
  store->start([&](const store::CommitReport& report) {
    const std::lock_guard lock(mutex);
    if (!report.error.empty()) fail(report.error);
    committed = report.committed;
    changed.notify_all();
  });
  const std::uint64_t part = std::min(limits::kSnapshotEveryRecords,
                                      limits::kReplayFactor * limits::kSnapshotEveryRecords / jobs);
  records /= jobs;
  Ticket ticket = 0;
  for (JobId job = 1; job <= jobs; ++job) {
    Record created;
    created.kind = RecordKind::kJobCreated;
    created.job = job;
    created.sequence = 1;
    created.time_us = 1'700'000'000'000'000;
    created.epoch = 1;
    created.name = "large-" + std::to_string(job);
    created.policy = "asp";
    created.expected_workers = kWorkers;
    store::Batch batch{{created}, {}};
    for (Sequence s = 2; s <= records; ++s) {
      const Micros time_us = created.time_us + static_cast<Micros>(s) * 300;
      batch.records.push_back(record_at(job, s, time_us));
      // One less than a whole part follows the last snapshot.
      const bool due = (records - s + 1) % part == 0;
      if (due) batch.snapshots.push_back(snapshot_at(created, s, time_us));
      if (!due && batch.records.size() < 1000 && s < records) continue;
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return ticket < committed + 16; });
      lock.unlock();
      if (!store->submit(++ticket, std::move(batch))) fail("the store's queue is full");
      batch = {};
    }
  }
  if (!store->close(600'000'000, error)) fail(error);
}

double open_ms(const std::string& path) {
  rocksdb::Options options;
  options.max_open_files = 256;
  std::vector<std::string> names;
  if (!rocksdb::DB::ListColumnFamilies(options, path, &names).ok()) fail(path + " is no database");
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  for (const std::string& name : names) families.emplace_back(name, options);
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  const std::int64_t begun = now_ns();
  const rocksdb::Status status = rocksdb::DB::Open(options, path, families, &handles, &db);
  const double ms = static_cast<double>(now_ns() - begun) / 1e6;
  if (!status.ok()) fail(status.ToString());
  for (auto* handle : handles) db->DestroyColumnFamilyHandle(handle);
  delete db;
  return ms;
}

int run(int argc, char** argv) {
  std::uint64_t records = 10'000'000;
  std::uint32_t jobs = 1;
  std::string directory = ".";
  int rounds = 5;
  CLI::App app(kAbout);
  app.add_option("--records", records, "of the history")->capture_default_str();
  app.add_option("--jobs", jobs, "that share it")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--dir", directory, "where the store goes")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  app.add_option("--rounds", rounds, "starts of each side, interleaved")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  std::printf("machine: %s; %s on %s\n", machine_line().c_str(), directory.c_str(),
              file_system_of(directory).c_str());
  const test::TempDir scratch(directory);
  const std::string store = scratch.file("store");
  std::int64_t begun = now_ns();
  make_store(store, records, jobs);
  std::printf("store: %llu records of %u jobs, written in %.1f s\n\n",
              static_cast<unsigned long long>(records), jobs,
              static_cast<double>(now_ns() - begun) / 1e9);

  std::vector<double> start_ms;
  std::vector<double> floor_ms;
  for (int i = -1; i < rounds; ++i) {  // the first flushes what writing has left in the log
    begun = now_ns();
    test::Daemon daemon(scratch, {.store = store,
                                  .config = "[store]\nretention = \"0s\"\nretention_bytes = 0\n",
                                  .flags = {"--log-level", "warn"}});
    const double ms = static_cast<double>(now_ns() - begun) / 1e6;
    if (daemon.stop() != test::exited(0)) fail(daemon.log());
    const double floor = open_ms(store);
    if (i < 0) continue;
    start_ms.push_back(ms);
    floor_ms.push_back(floor);
  }
  Table table({"", "ms until it serves", "ratio"});
  table.add({"RocksDB's opening of the directory", number(median(floor_ms)), "1.00x"});
  table.add({"syncd, from exec until it says that it is ready", number(median(start_ms)),
             paired_ratio(start_ms, floor_ms)});
  table.print();
  return 0;
}

}  // namespace
}  // namespace syncd::bench

int main(int argc, char** argv) {
  return syncd::bench::run(argc, argv);
}
