// Durable pushes: how many a second syncd acknowledges with its store on a disk, beside RocksDB's
// own synced writes of records of the same size. The load is syncbench.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/daemon.h"
#include "tests/bench/measure.h"
#include "tests/bench/rocks_floor.h"
#include "tests/bench/table.h"

namespace syncd::bench {
namespace {

using test::Daemon;
using test::Milliseconds;
using test::TempDir;

constexpr const char* kAbout =
    "Durable pushes through syncd, in ratios to RocksDB's own synced writes of the same records.";

struct Options {
  int rounds = 7;      // of each side, interleaved
  double seconds = 1;  // that a round measures
  std::vector<int> sizes = {1, 64};
  std::vector<int> per_connection = {1, 16};   // 16: a node agent's
  std::vector<double> iteration_ms = {0, 10};  // 0: as fast as a worker is answered
  std::string mode = "durable";
  std::string directory = ".";
  int sync_us = 0;
};

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app{kAbout};
  app.option_defaults()->always_capture_default();
  app.add_option("--rounds", options.rounds, "rounds of each side, interleaved")
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.seconds, "what one round measures")
      ->check(CLI::Range(0.01, 60.0));
  app.add_option("--sizes", options.sizes, "workers")->check(CLI::Range(1, 16'000))->delimiter(',');
  app.add_option("--per-connection", options.per_connection,
                 "workers that share a connection (left out where there are fewer than twice as "
                 "many)")
      ->check(CLI::Range(1, 16'000))
      ->delimiter(',');
  app.add_option("--iteration-ms", options.iteration_ms,
                 "how long a worker's iteration takes on average; 0: no time at all, so that the "
                 "next push goes out with the answer to the last")
      ->check(CLI::Range(0.0, 10'000.0))
      ->delimiter(',');
  app.add_option("--mode", options.mode, "the daemon's: fast, durable")
      ->check(CLI::IsMember({"fast", "durable"}));
  app.add_option("--dir", options.directory, "where stores, sockets and logs go meanwhile")
      ->check(CLI::ExistingDirectory);
  app.add_option("--sync-us", options.sync_us,
                 "microseconds that each sync of the disk takes longer, for every side")
      ->check(CLI::Range(0, 1'000'000));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  return options;
}

struct Figures {
  std::vector<double> pushes_per_s, push_p50_us, push_p99_us, single_us, single_p99_us, batch,
      records_bytes, cpu_us;
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

// One run of syncbench: its figures, as its --json gives them.
nlohmann::json run_load(const Options& options, const TempDir& directory, const Daemon& daemon,
                        std::size_t workers, std::size_t connections, double iteration_ms) {
  const std::string time = iteration_ms > 0 ? "uniform_each:" + number(iteration_ms / 2, 3) + "-" +
                                                  number(iteration_ms * 1.5, 3)
                                            : "0";
  const test::RunResult result = test::run(
      {test::program("syncbench"), "--json", "--addr", daemon.address(), "--policy", "asp",
       "--workers", std::to_string(workers), "--connections", std::to_string(connections),
       "--iteration-time", time, "--seconds", number(options.seconds, 3)},
      directory.path(), {}, Milliseconds(static_cast<int>(options.seconds * 1e3) + 60'000));
  if (result.ending != test::exited(0)) fail(result.err);
  return nlohmann::json::parse(result.out);
}

Figures measure(const Options& options, std::size_t workers, std::size_t connections,
                double iteration_ms) {
  const TempDir directory(options.directory);
  const Daemon daemon(directory, {.mode = options.mode, .flags = {"--log-level", "warn"}});
  RocksFloor rocks(directory.file("floor"));

  Figures figures;
  std::uint64_t position = 1;
  for (int i = -1; i < options.rounds; ++i) {  // the first warms up
    const nlohmann::json load =
        run_load(options, directory, daemon, workers, connections, iteration_ms);
    const Written written = written_since(daemon.store_path(), position);
    // After the daemon's round, because the floor writes batches of the size found there.
    WriteRate same = rocks.batches(options.seconds, written.batch, written.record_bytes);
    std::vector<double> single = rocks.single_us(options.seconds / 4, written.record_bytes);
    const WriteRate threads = rocks.threads(options.seconds, workers, written.record_bytes);
    if (i < 0) continue;
    const double pushes = load.at("pushes");
    figures.pushes_per_s.push_back(pushes / load.at("seconds").get<double>());
    figures.push_p50_us.push_back(load.at("push").at("p50_us"));
    figures.push_p99_us.push_back(load.at("push").at("p99_us"));
    figures.cpu_us.push_back(load.at("daemon_cpu_s").get<double>() * 1e6 / pushes);
    figures.single_us.push_back(percentile(single, 0.5));
    figures.single_p99_us.push_back(percentile(single, 0.99));
    figures.batch.push_back(written.batch);
    figures.records_bytes.push_back(static_cast<double>(written.record_bytes));
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
  const Options options = parse(argc, argv);
  slow_syncs(options.sync_us, argv);
  std::printf("machine: %s; %s on %s\n", machine_line().c_str(), options.directory.c_str(),
              file_system_of(options.directory).c_str());
  std::printf("mode: %s, each sync %d us longer; %d rounds of %g s each, medians\n\n",
              options.mode.c_str(), options.sync_us, options.rounds, options.seconds);
  Table table({"workers/connections, iteration", "records/s", "records/commit", "record bytes",
               "push p50 us", "push p99 us", "CPU us/record", "rate / syncd's"});
  for (const int size : options.sizes) {
    for (const int shared : options.per_connection) {
      if (shared > 1 && size < 2 * shared) continue;
      const auto workers = static_cast<std::size_t>(size);
      const auto connections = static_cast<std::size_t>(size / shared);
      for (const double iteration_ms : options.iteration_ms) {
        std::string label = std::to_string(workers) + "/" + std::to_string(connections);
        if (iteration_ms > 0) label += ", " + number(iteration_ms) + " ms";
        report(label, measure(options, workers, connections, iteration_ms), workers, table);
      }
    }
  }
  table.print();
  return 0;
}

}  // namespace
}  // namespace syncd::bench

int main(int argc, char** argv) {
  return syncd::bench::run(argc, argv);
}
