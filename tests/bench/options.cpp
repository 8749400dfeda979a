// Command lines of the benchmarks. One thread.
#include "tests/bench/options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "tests/bench/process.h"

namespace syncd::bench {

Options parse_options(int argc, char** argv, const std::string& about, const std::string& sizes,
                      Options defaults) {
  Options options = std::move(defaults);
  if (options.syncd.empty()) options.syncd = SYNCD_BENCH_BIN_DIR "/syncd";
  bool no_pin = false;
  CLI::App app{about};
  app.add_option("--rounds", options.rounds, "rounds of each side, interleaved")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "what one round measures")
      ->check(CLI::Range(0.01, 60.0))
      ->capture_default_str();
  app.add_option("--transports", options.transports, "unix, tcp")
      ->check(CLI::IsMember({"unix", "tcp"}))
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--sizes", options.sizes, sizes)
      ->check(CLI::Range(1, 16'000))
      ->delimiter(',')
      ->capture_default_str();
  if (!options.per_connection.empty()) {
    app.add_option("--per-connection", options.per_connection,
                   "workers that share a connection (left out where there are fewer than twice as "
                   "many)")
        ->check(CLI::Range(1, 16'000))
        ->delimiter(',')
        ->capture_default_str();
  }
  app.add_option("--store", options.store, "the daemon's store: memory, fast, durable")
      ->check(CLI::IsMember({"memory", "fast", "durable"}))
      ->capture_default_str();
  app.add_option("--dir", options.directory, "where stores, sockets and logs go meanwhile")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  app.add_option("--syncd", options.syncd, "the daemon to measure")
      ->check(CLI::ExistingFile)
      ->capture_default_str();
  if (options.sync_us >= 0) {
    app.add_option("--sync-us", options.sync_us,
                   "microseconds that each sync of the disk takes longer, for every side")
        ->check(CLI::Range(0, 1'000'000))
        ->capture_default_str();
  }
  if (!options.iteration_ms.empty()) {
    app.add_option("--iteration-ms", options.iteration_ms,
                   "how long a worker's iteration takes on average; 0: no time at all, so that the "
                   "next push goes out with the answer to the last")
        ->check(CLI::Range(0.0, 10'000.0))
        ->delimiter(',')
        ->capture_default_str();
  }
  app.add_flag("--no-pin", no_pin,
               "let load and server run on any processor, instead of the load on the first and the "
               "server on the others");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  options.pin = !no_pin;
  if (no_pin) disable_pinning();
  return options;
}

}  // namespace syncd::bench
