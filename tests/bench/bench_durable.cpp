// Durable pushes: how many a second syncd acknowledges with its store on a disk, beside RocksDB's
// own synced writes of records of the same size. The load is one thread.
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "tests/bench/client.h"
#include "tests/bench/iteration_load.h"
#include "tests/bench/measure.h"
#include "tests/bench/options.h"
#include "tests/bench/rocks_floor.h"
#include "tests/bench/servers.h"
#include "tests/bench/table.h"
#include "tests/bench/workers.h"

namespace syncd::bench {
namespace {

std::chrono::nanoseconds nanoseconds_of(double ms) {
  return std::chrono::nanoseconds(std::llround(ms * 1e6));
}

constexpr const char* kAbout =
    "Durable pushes through syncd, in ratios to RocksDB's own synced writes of the same records.";

struct Figures {
  std::vector<double> pushes_per_s, push_p50_us, push_p99_us, single_us, single_p99_us, batch,
      records_bytes, cpu_us;
  std::vector<double> bare_per_s, bare_p50_us, bare_p99_us, bare_cpu_us;
  std::vector<double> same_batch_per_s, same_batch_cpu_us, batch_p50_us, batch_p99_us,
      threads_per_s, threads_cpu_us;
};

// What the store wrote during one round of the daemon, found in its log.
struct Written {
  double batch = 1;  // records per commit, mean
  std::size_t record_bytes = 0;
};

// A batch in the log is a header of 12 bytes, and per record: tag, column family, key, two lengths.
constexpr double kBatchHeaderBytes = 12;
constexpr double kRecordOverheadBytes = 17;

Written written_since(const std::string& store, std::uint64_t& position) {
  const LogTotals totals = read_log(store, position);
  position = totals.next;
  if (totals.records == 0) fail("the daemon wrote nothing to " + store);
  const auto records = static_cast<double>(totals.records);
  const auto commits = static_cast<double>(totals.commits);
  const double bytes = static_cast<double>(totals.bytes) - kBatchHeaderBytes * commits;
  return {records / commits, static_cast<std::size_t>(bytes / records - kRecordOverheadBytes)};
}

// A bare libuv server that keeps records of the daemon's size with RocksDB, under the same load.
class BareServer {
 public:
  BareServer(const std::string& directory, const std::string& transport, std::size_t workers,
             std::size_t connections, double iteration_ms, std::size_t record_bytes)
      : endpoint_(fresh_endpoint(transport, directory, "bare")),
        server_(
            start_floor(floor_options(directory, record_bytes), directory, Placement::kAnywhere)),
        load_(client_, connect_to_floor(client_, endpoint_, workers, connections),
              IterationLoad::Requests::kPushAndBegin, IterationLoad::Ending::kAnywhere) {
    load_.start();
    load_.set_iteration_time(nanoseconds_of(iteration_ms));
  }
  IterationRound run(double seconds) { return load_.run(server_.pid(), seconds); }

 private:
  FloorOptions floor_options(const std::string& directory, std::size_t record_bytes) const {
    FloorOptions options;
    options.endpoint = endpoint_;
    options.begin_bytes =
        static_cast<std::uint32_t>(frame_bytes(begin_message({0, {1, 1, 1, 1}, 1}, 1, 1)));
    options.store = directory + "/bare";
    options.record_bytes = static_cast<std::uint32_t>(record_bytes);
    return options;
  }

  const Endpoint endpoint_;
  const Child server_;
  Client client_;
  IterationLoad load_;
};

Figures measure(const Options& options, const std::string& transport, std::size_t workers,
                std::size_t connections, double iteration_ms) {
  const TempDir directory(options.directory);
  const std::string store = directory.path() + "/store";
  const Endpoint endpoint = fresh_endpoint(transport, directory.path(), "syncd");
  const Child server = start_syncd(options, {endpoint, options.store, store}, directory.path(),
                                   Placement::kAnywhere);
  Client client;
  IterationLoad load(client,
                     connect_to_syncd(client, endpoint, "durable", "asp", workers, connections),
                     IterationLoad::Requests::kPushAndBegin, IterationLoad::Ending::kAnywhere);
  load.start();
  load.set_iteration_time(nanoseconds_of(iteration_ms));
  RocksFloor rocks(directory.path() + "/floor");

  Figures figures;
  std::unique_ptr<BareServer> bare;
  std::uint64_t position = 1;
  for (int i = -1; i < options.rounds; ++i) {  // the first warms up
    IterationRound round = load.run(server.pid(), options.seconds);
    const Written written = written_since(store, position);
    // After the daemon's round, because the floor writes batches of the size found there.
    WriteRate same = rocks.batches(options.seconds, written.batch, written.record_bytes);
    std::vector<double> single = rocks.single_us(options.seconds / 4, written.record_bytes);
    const WriteRate threads = rocks.threads(options.seconds, workers, written.record_bytes);
    if (bare == nullptr) {
      bare = std::make_unique<BareServer>(directory.path(), transport, workers, connections,
                                          iteration_ms, written.record_bytes);
    }
    IterationRound bare_round = bare->run(options.seconds);
    if (i < 0) continue;
    figures.pushes_per_s.push_back(round.iterations_per_s);
    figures.push_p50_us.push_back(percentile(round.push_us, 0.5));
    figures.push_p99_us.push_back(percentile(round.push_us, 0.99));
    figures.single_us.push_back(percentile(single, 0.5));
    figures.single_p99_us.push_back(percentile(single, 0.99));
    figures.cpu_us.push_back(round.cpu_us_per_iteration);
    figures.batch.push_back(written.batch);
    figures.records_bytes.push_back(static_cast<double>(written.record_bytes));
    figures.bare_per_s.push_back(bare_round.iterations_per_s);
    figures.bare_p50_us.push_back(percentile(bare_round.push_us, 0.5));
    figures.bare_p99_us.push_back(percentile(bare_round.push_us, 0.99));
    figures.bare_cpu_us.push_back(bare_round.cpu_us_per_iteration);
    figures.same_batch_per_s.push_back(same.records_per_s);
    figures.batch_p50_us.push_back(percentile(same.took_us, 0.5));
    figures.batch_p99_us.push_back(percentile(same.took_us, 0.99));
    figures.same_batch_cpu_us.push_back(same.cpu_us_per_record);
    figures.threads_per_s.push_back(threads.records_per_s);
    figures.threads_cpu_us.push_back(threads.cpu_us_per_record);
  }
  return figures;
}

void report(const std::string& label, const Figures& f, std::size_t workers, Table& table) {
  const double pushes = median(f.pushes_per_s);
  const double same = median(f.same_batch_per_s);
  const double threads = median(f.threads_per_s);
  table.add({label + ": syncd", number(pushes, 0), number(median(f.batch)),
             number(median(f.records_bytes), 0), number(median(f.push_p50_us)),
             number(median(f.push_p99_us)), number(median(f.cpu_us)), "1.00x"});
  table.add({"  bare libuv server with RocksDB", number(median(f.bare_per_s), 0), "-",
             number(median(f.records_bytes), 0), number(median(f.bare_p50_us)),
             number(median(f.bare_p99_us)), number(median(f.bare_cpu_us)),
             paired_ratio(f.bare_per_s, f.pushes_per_s) + ", p99 " +
                 paired_ratio(f.bare_p99_us, f.push_p99_us)});
  table.add({"  RocksDB, one thread, batches of that size", number(same, 0),
             number(median(f.batch)), number(median(f.records_bytes), 0),
             number(median(f.batch_p50_us)), number(median(f.batch_p99_us)),
             number(median(f.same_batch_cpu_us)),
             paired_ratio(f.same_batch_per_s, f.pushes_per_s)});
  table.add({"  RocksDB, " + std::to_string(workers) + " threads, single records",
             number(threads, 0), "-", number(median(f.records_bytes), 0), "-", "-",
             number(median(f.threads_cpu_us)), paired_ratio(f.threads_per_s, f.pushes_per_s)});
  table.add({"  RocksDB, one thread, single records", "-", "1", number(median(f.records_bytes), 0),
             number(median(f.single_us)), number(median(f.single_p99_us)), "-",
             "p99 / p50 " + paired_ratio(f.push_p99_us, f.single_us) + ", p99 / p99 " +
                 paired_ratio(f.push_p99_us, f.single_p99_us)});
}

// Begins this program anew, and with it the daemon that it will start, on a disk that syncs slowly.
void slow_syncs(int us, char** argv) {
  constexpr const char* kVariable = "SYNCD_BENCH_SYNC_US";
  if (us == 0 || std::getenv(kVariable) != nullptr) return;
  setenv(kVariable, std::to_string(us).c_str(), 1);
  setenv("LD_PRELOAD", SYNCD_SLOW_SYNC, 1);
  execv("/proc/self/exe", argv);
  fail("cannot start again with " SYNCD_SLOW_SYNC);
}

int run(int argc, char** argv) {
  Options defaults;
  defaults.sizes = {1, 64};
  defaults.per_connection = {1, 16};  // 16: a node agent's
  defaults.transports = {"unix"};
  defaults.store = "durable";
  defaults.seconds = 1;
  defaults.iteration_ms = {0, 10};
  defaults.sync_us = 0;
  const Options options = parse_options(argc, argv, kAbout, "workers", defaults);
  if (options.store == "memory") fail("--store memory writes nothing: use durable or fast");
  slow_syncs(options.sync_us, argv);
  std::printf("machine: %s; %s on %s\n", machine_line().c_str(), options.directory.c_str(),
              file_system_of(options.directory).c_str());
  std::printf("store: %s, each sync %d us longer; %d rounds of %g s each, medians\n\n",
              options.store.c_str(), options.sync_us, options.rounds, options.seconds);
  Table table({"transport, workers/connections, iteration", "records/s", "records/commit",
               "record bytes", "push p50 us", "push p99 us", "CPU us/record", "rate / syncd's"});
  for (const std::string& transport : options.transports) {
    for (const int size : options.sizes) {
      for (const int shared : options.per_connection) {
        if (shared > 1 && size < 2 * shared) continue;
        const auto workers = static_cast<std::size_t>(size);
        const auto connections = static_cast<std::size_t>(size / shared);
        for (const double iteration_ms : options.iteration_ms) {
          std::string label =
              transport + ", " + std::to_string(workers) + "/" + std::to_string(connections);
          if (iteration_ms > 0) label += ", " + number(iteration_ms) + " ms";
          report(label, measure(options, transport, workers, connections, iteration_ms), workers,
                 table);
        }
      }
    }
  }
  table.print();
  return 0;
}

}  // namespace
}  // namespace syncd::bench

int main(int argc, char** argv) {
  syncd::bench::FloorOptions floor;
  if (syncd::bench::parse_floor_command(argc, argv, floor)) {
    syncd::bench::RocksFloor rocks(floor.store);
    syncd::bench::run_floor_server(
        floor, [&](std::size_t records) { rocks.batch(records, floor.record_bytes); });
  }
  return syncd::bench::run(argc, argv);
}
