// syncbench: how much a syncd takes, and how fast it answers, on the cluster that it is to serve.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "daemon/tools/bench/load.h"
#include "daemon/tools/bench/report.h"
#include "daemon/tools/ctl/connection.h"
#include "daemon/tools/sim/iteration_time.h"
#include "proto/base/help_lines.h"
#include "proto/wire/announce.h"

namespace {

std::string footer() {
  return std::string(
             R"(Every worker begins, computes for the time that is asked for, pushes, waits until that is
acknowledged, and begins again. All workers are in this process; start it on several machines to
load a daemon from there. The job stays in the daemon's history, stopped.
begin: from asking until the grant; what the policy makes a worker wait is in it.
begin, nobody waited for: under asp all of them; under other policies those during which nobody
pushed, so that nothing else can have let it go.
push: until it is acknowledged, which in mode durable is once it is on disk.
targets, collect, consumed (hop, notify_ack): likewise; the policy's waiting is in the first two.
Workers under hop call targets and push before they compute, those under notify_ack after it.
barrier (bsp): from the last push until the last worker has its grant.
Processor time is the daemon's, if it runs on this machine. Percentiles are at most 1.6 % too high.
Iteration times: 0, )") +
         syncd::sim::known_iteration_times() + "\nSlowdowns: " + syncd::sim::known_slowdowns() +
         R"(
Frame mix: --ask-share of the iterations ask one of --ask first, each of them as often; one that is
listed twice, twice as often. A worker asks explain, members (all of them) and phase; an operator,
on one connection more, asks status, jobs, workers (all) and history (256 records, on from the last
ones), one question at a time.
JSON keys: job, policy, mode, workers, connections, join_s, seconds, iterations, requests (and
_per_s), pushes, late, daemon_pushes, daemon_frames_in, daemon_frames_out, daemon_cpu_s and
daemon_cpu_us_per_message (null: not known); and begin, free_begin, targets, push, collect,
consumed, barrier and aside_QUESTION, each with count, p50_us, p90_us, p99_us, max_us.
Examples: syncbench --workers 1000 --connections 8 --policy bsp --seconds 30
          syncbench --policy ssp:3 --iteration-time normal:50,5 --slowdown fixed:0=2x
          syncbench --policy hop:ring,max_ig=4 --ask explain,history,status --ask-share 0.1
          syncbench --addr tls:node-1:7117 --ca ca.crt --token-file token

Exit codes: 0 done, 1 the daemon refused, or its counts differ from those here, 2 the command line
is wrong, 3 no daemon answered, or it went away.
Environment, where the option is not given: SYNCD_ADDR (--addr), SYNCD_TOKEN_FILE,
SYNCD_CA_FILE, SYNCD_CERTIFICATE_FILE, SYNCD_KEY_FILE, SYNCD_SERVER_NAME.)";
}

}  // namespace

int main(int argc, char** argv) try {
  using namespace syncd;
  ctl::Options connection;
  bench::LoadOptions options;
  CLI::App app{"syncbench: load a running syncd with workers that only iterate, and measure it"};
  app.footer(footer());
  keep_help_lines(app);
  app.set_version_flag("--version", "syncbench " SYNCD_VERSION);
  ctl::add_connection_options(app, connection);
  const auto add = [&app](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->capture_default_str();
  };
  add("--workers", options.workers, "How many workers")->check(CLI::Range(1, 100'000));
  add("--connections", options.connections, "Over how many connections, by turns")
      ->check(CLI::Range(1, 1000));
  add("--policy", options.policy, "Any policy, such as ssp:3 or hop:ring");
  app.add_option("--job", options.job, "Name of the job, which must be new (default: a fresh one)");
  add("--iteration-time", options.iteration_time,
      "How long workers compute: see below; 0: not at all");
  add("--slowdown", options.slowdown, "What slows some of them: see below");
  add("--seed", options.seed, "Another seed, other draws");
  CLI::Option* seconds = add("--seconds", options.seconds, "For how long to measure")
                             ->check(CLI::Range(0.01, 86'400.0));
  app.add_option("--iterations", options.iterations, "So many of each worker, instead of a time")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000}))
      ->excludes(seconds);
  add("--ask", options.ask,
      "What is asked aside: explain, members, phase, status, jobs, workers, history, or several of "
      "them with commas");
  add("--ask-share", options.ask_share, "In what share of iterations (0 to 1) they do")
      ->check(CLI::Range(0.0, 1.0));
  add("--member-bytes", options.member_bytes, "Bytes of data that each worker shows to the others")
      ->check(CLI::Range(std::size_t{0}, kMemberDataBytesMax));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ctl::kExitOk : ctl::kExitUsage;
  }
  const bench::Figures figures = bench::run_load(connection, options);
  if (connection.json) {
    std::cout << bench::report_json(figures).dump(2) << "\n";
  } else {
    std::cout << bench::report_text(figures);
  }
  if (!bench::counts_agree(figures)) {
    std::cerr << "syncbench: the daemon counts " << figures.counted_pushes << " pushes, but "
              << figures.pushes - figures.late << " were acknowledged\n";
    return ctl::kExitRefused;
  }
  return ctl::kExitOk;
} catch (const syncd::bench::LoadError& error) {
  std::cerr << "syncbench: " << error.what() << "\n";
  return error.code();
} catch (const std::exception& error) {
  std::cerr << "syncbench: " << error.what() << "\n";
  return syncd::ctl::kExitRefused;
}
