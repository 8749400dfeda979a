// syncctl: asks a running syncd, or a store directory, what is going on. This file owns the command
// line; commands.cpp does the work.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <iostream>

#include "daemon/ctl/commands.h"
#include "daemon/ctl/plan.h"
#include "daemon/ctl/simulate.h"
#include "daemon/ctl/table.h"
#include "daemon/ctl/topology.h"
#include "daemon/engine/policy.h"
#include "daemon/topology/bounds.h"
#include "daemon/topology/graph_spec.h"

namespace {

constexpr const char* kFooter =
    "JOB is a job's name (of several by one name, the latest) or #ID.\n"
    "Exit codes: 0 done, 1 the daemon refused, 2 the command line is wrong, 3 no daemon answered,\n"
    "4 a store could not be read or a file not written.\n"
    "Environment: SYNCD_ADDR, the daemon's addresses where --addr is not given.";

constexpr const char* kStatusKeys =
    "JSON keys: version, pid, started_us, now_us (since the Unix epoch), store, mode, sessions, "
    "jobs,\nworkers, pushes, frames_in, frames_out, read_only.";
constexpr const char* kJobsKeys =
    "JSON: a list of objects with the keys id, name, policy, state (waiting, running, stopped), "
    "epoch,\nexpected_workers, active_workers, clock_min, clock_max, pushes, waiting, note, "
    "created_us.";
constexpr const char* kWorkersKeys =
    "JSON: a list of objects with the keys rank, name, host, state, incarnation, clock, granted,\n"
    "connected, last_push_us (null: none yet), waiting_us (null: not waiting), waiting_for, "
    "reason.";

std::string with_footer(const std::string& text) {
  return text + "\n\n" + kFooter;
}

std::string record_help() {
  std::string text =
      "Columns of CSV and keys of JSON; what a kind of record does not have is empty "
      "or left out:\n";
  for (const syncd::ctl::RecordColumn& column : syncd::ctl::record_columns()) {
    std::string line = "  " + std::string(column.name);
    line.resize(20, ' ');
    text += line + column.meaning + "\n";
  }
  return text;
}

// The commands that run a planner on what a file says; no daemon is asked. The chosen one is run at
// once.
void add_plan(CLI::App& app, syncd::ctl::PlanOptions& options, std::function<int()>& run_local) {
  using namespace syncd::ctl;
  CLI::App* plan = app.add_subcommand(
      "plan", "What the daemon's planners decide on given numbers (JSON in, JSON out; no daemon)");
  plan->require_subcommand(1);
  const auto command = [&](const char* name, const char* what, const char* formats, PlanKind kind) {
    CLI::App* sub = plan->add_subcommand(name, what);
    sub->add_option("FILE,--input", options.input, "What to read; - is standard input")
        ->capture_default_str();
    sub->footer(with_footer(formats));
    sub->callback([&options, &run_local, kind] {
      run_local = [&options, kind] {
        return run_plan(kind, options, std::cin, std::cout, std::cerr);
      };
    });
    return sub;
  };
  CLI::App* zipline = command("zipline", "When to synchronize, and after how many iterations each",
                              kPlanZiplineHelp, PlanKind::kZipline);
  zipline->add_option("--algorithm", options.algorithm, plan_algorithms());
  zipline->add_option("--objective", options.objective,
                      "max: the longest wait; rate: the share of time spent waiting");
  zipline->add_option("--beta", options.beta,
                      "With rate: the most iterations between two workers (default: R)");
  zipline->add_option("--R,-R", options.r, "How many ends of each worker to look at");
  CLI::App* specsync = command("specsync", "When to drop work and pull again", kPlanSpecsyncHelp,
                               PlanKind::kSpecsync);
  specsync->add_option("--scope", options.scope, "job: one abort time for all; worker: one each");
  specsync->add_option("--cap", options.cap,
                       "The longest abort time: milliseconds, span (default: below the shortest "
                       "span, or the worker's own) or authors (as in their program; the default of "
                       "the policy specsync)");
  command("dssp", "How many iterations a fastest worker may run on", kPlanDsspHelp,
          PlanKind::kDssp);
}

// The commands that ask a graph rather than a daemon. The chosen one is run at once.
void add_topology(CLI::App& app, syncd::ctl::TopologyQuery& query,
                  std::function<int()>& run_local) {
  using namespace syncd::ctl;
  CLI::App* topology =
      app.add_subcommand("topology", "Examine a communication graph (needs no daemon)");
  topology->require_subcommand(1);
  const auto command = [&](const char* name, const char* what, const char* keys,
                           int (*function)(const TopologyQuery&)) {
    CLI::App* sub = topology->add_subcommand(name, what);
    sub->add_option("--graph", query.graph, "One of " + syncd::topology::known_graphs());
    sub->add_option("--workers", query.workers, "How many workers (a file says it itself)")
        ->check(CLI::Range(1U, kAnalyzeWorkersMax));
    sub->add_option("--adjacency", query.adjacency,
                    "Take the graph of this file instead of --graph: lines FROM TO, or rows of 0 "
                    "and 1 with commas");
    sub->add_option("--hosts", query.hosts, "Host of each worker, comma-separated, for clustered")
        ->delimiter(',');
    sub->footer(with_footer(keys));
    sub->callback([&query, &run_local, function] {
      run_local = [&query, function] { return function(query); };
    });
    return sub;
  };
  command("analyze", "Degrees, diameter, spectral gaps, and whether a job may run on it",
          topology_analyze_keys(), run_topology_analyze);
  CLI::App* bounds = command("bounds", "How many iterations any worker can be ahead of any other",
                             topology_bounds_keys(), run_topology_bounds);
  bounds
      ->add_option("--setting", query.setting,
                   std::string("One of ") + syncd::topology::known_gap_settings())
      ->required();
  bounds->add_option("--max-ig", query.max_ig, "With token queues that start with so many tokens");
}

// The command that tries policies in virtual time; no daemon is asked. It is run at once.
void add_simulate(CLI::App& app, syncd::ctl::SimulateQuery& query,
                  std::function<int()>& run_local) {
  using namespace syncd::ctl;
  CLI::App* sub = app.add_subcommand(
      "simulate", "What policies would do to a job, in virtual time (no daemon)");
  sub->add_option("--workers", query.workers, "How many workers")->capture_default_str();
  sub->add_option(
      "--hosts", query.hosts,
      "Spread them over H hosts, for the graph clustered: worker r of n is on host r*H/n "
      "(rounded down), and one that joins later on host r mod H; without it each has a "
      "host of its own");
  sub->add_option("--iteration-time", query.iteration_time, "How long workers compute: see below")
      ->capture_default_str();
  sub->add_option("--slowdown", query.slowdown, "What slows some of them: see below")
      ->capture_default_str();
  sub->add_option("--delay-ms", query.delay_ms, "How long every message takes, one way")
      ->capture_default_str();
  sub->add_option("--plan-delay-ms", query.plan_delay_ms, "How long the daemon works on a plan")
      ->capture_default_str();
  sub->add_option("--duration-s", query.duration_s, "Virtual seconds to run")
      ->capture_default_str();
  sub->add_option("--seed", query.seed, "Another seed, other draws")->capture_default_str();
  sub->add_option("--policy", query.policy, "The policy to try");
  sub->add_option("--compare", query.compare, "Several policies P1,P2,... under the same draws");
  sub->add_option("--sweep", query.sweep,
                  "Try specsync:fixed over --policy with every pair of abort_time=MS[,MS...],"
                  "abort_rate=SHARE[,SHARE...]");
  sub->add_option("--order", query.order,
                  "Hop: parallel (send, then compute; the default) or serial (compute, then send)");
  sub->add_option("--fail", query.fails, "Worker RANK@SECONDS dies; may be repeated");
  sub->add_option("--leave", query.leaves, "Worker RANK@SECONDS says goodbye; may be repeated");
  sub->add_option("--join", query.joins,
                  "Worker RANK@SECONDS starts, anew or after it failed or left; may be repeated");
  sub->add_option("--switch", query.changes,
                  "The job goes over to POLICY@SECONDS; may be repeated");
  sub->add_option("--worker-grace-s", query.worker_grace_s,
                  "How long the place of one that died is kept")
      ->capture_default_str();
  sub->add_flag("--json", query.json, "JSON instead of a table");
  sub->footer(with_footer(simulate_help()));
  sub->callback([&query, &run_local] {
    run_local = [&query] {
      query.columns = output_columns();
      return run_simulate(query, std::cout, std::cerr);
    };
  });
}

// The first word of the command line if it should be a command and is none; else empty.
std::string unknown_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return {};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->check_name(argv[1])) return {};
  }
  return argv[1];
}

// What a full disk or a closed pipe did not take must not look like success.
int after_output(int code) {
  std::cout.flush();
  const bool written = std::fflush(stdout) == 0 && std::cout;
  if (written || code != syncd::ctl::kExitOk) return code;
  std::cerr << "syncctl: standard output took no more: what it has is not all\n";
  return syncd::ctl::kExitStore;
}

}  // namespace

int main(int argc, char** argv) try {
  using namespace syncd::ctl;
  Options options;
  int (*run)(const Options&) = nullptr;

  CLI::App app{"syncctl: ask a running syncd who is training, who is slow, and what happened"};
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", "syncctl " SYNCD_VERSION);
  app.add_option("--addr", options.addresses,
                 "Addresses to try in turn, comma-separated: unix:PATH, tcp:HOST:PORT or HOST:PORT "
                 "(default: the default Unix socket, then 127.0.0.1:7117)");
  app.add_option("--token-file", options.token_file, "File that holds the shared token");
  app.add_option("--timeout-ms", options.timeout_ms, "How long to wait for each answer")
      ->check(CLI::Range(1, 600000))
      ->capture_default_str();
  app.add_flag("--json", options.json, "Print JSON instead of a table");
  app.fallthrough();

  const auto command = [&](CLI::App& parent, const char* name, const char* what,
                           int (*function)(const Options&)) {
    CLI::App* sub = parent.add_subcommand(name, what);
    sub->callback([&run, function] {
      if (run == nullptr) run = function;  // the innermost command's callback comes first
    });
    return sub;
  };
  const auto filters = [&](CLI::App* sub) {
    constexpr std::uint64_t kMost = INT64_MAX;
    sub->add_option("--from", options.from, "First sequence number")
        ->check(CLI::Range(std::uint64_t{1}, kMost))
        ->capture_default_str();
    sub->add_option("--limit", options.limit, "At most so many records (0: all)")
        ->check(CLI::Range(std::uint64_t{0}, kMost))
        ->capture_default_str();
    sub->add_option("--kind", options.kinds,
                    "Only records of these kinds, such as push,worker_lost")
        ->delimiter(',');
    sub->add_option("--store", options.store,
                    "Read this store directory while its daemon is down, instead of asking one");
  };

  command(app, "status", "The daemon itself: version, store, sessions, totals", run_status)
      ->footer(with_footer(kStatusKeys));
  command(app, "jobs", "All jobs: policy, state, workers, clocks", run_jobs)
      ->footer(with_footer(kJobsKeys));
  CLI::App* workers = command(
      app, "workers", "A job's workers: clock, last push, whom each one waits for", run_workers);
  workers->footer(with_footer(kWorkersKeys));
  workers->add_option("JOB", options.job, "Job name or #ID")->required();

  CLI::App* history = command(app, "history", "A job's recorded facts, oldest first", run_history);
  history->add_option("JOB", options.job, "Job name or #ID");
  filters(history);
  CLI::App* exported = command(*history, "export",
                               "The same for programs, as CSV (RFC 4180) or JSON "
                               "lines; columns and keys are the same",
                               run_export);
  exported->add_option("JOB", options.job, "Job name or #ID")->required();
  exported->add_option("--format", options.format, "csv or jsonl")
      ->required()
      ->check(CLI::IsMember({"csv", "jsonl"}));
  exported->add_option("--output", options.output, "File to write (default: standard output)");
  filters(exported);
  history->footer(with_footer(record_help()));
  exported->footer(with_footer(record_help()));

  CLI::App* job = app.add_subcommand("job", "Create or stop a job");
  job->require_subcommand(1);
  CLI::App* create = command(*job, "create", "Declare a job before its workers join", run_create);
  create->add_option("NAME", options.job, "1-64 of A-Z a-z 0-9 . _ -")->required();
  create->add_option("--policy", options.policy, "One of " + syncd::known_policies());
  create->add_option("--workers", options.workers, "Workers expected before it starts");
  create->add_option("--min-workers", options.min_workers,
                     "So many are enough after the start timeout (0: never with fewer)");
  CLI::App* stop = command(*job, "stop", "Answer every begin of the job with STOP", run_stop);
  stop->add_option("JOB", options.job, "Job name or #ID")->required();
  stop->add_option("--reason", options.reason, "Shown to the workers and kept in the history");

  CLI::App* set_policy =
      command(app, "set-policy", "Change the policy of a job while it runs", run_set_policy);
  set_policy->add_option("JOB", options.job, "Job name or #ID")->required();
  set_policy->add_option("POLICY", options.policy, "One of " + syncd::known_policies())->required();
  set_policy->footer(with_footer(
      "Grants that were given stand, and every later begin is decided by the new policy; no "
      "worker\n"
      "needs to do anything. The history records it as policy_switched. A job keeps to\n"
      "parameter-server policies; one under hop or notify_ack keeps the policy that it has."));

  TopologyQuery topology;
  std::function<int()> run_local;
  add_topology(app, topology, run_local);
  PlanOptions plan;
  add_plan(app, plan, run_local);
  SimulateQuery simulation;
  add_simulate(app, simulation, run_local);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (const std::string unknown = unknown_command(app, argc, argv); !unknown.empty()) {
      std::cerr << "syncctl: there is no command '" << unknown << "': see syncctl --help\n";
      return kExitUsage;
    }
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  if (run_local) return after_output(run_local());
  if (run == run_history && options.job.empty()) {
    std::cerr << "syncctl: history needs a job: syncctl history JOB\n";
    return kExitUsage;
  }
  return after_output(run(options));
} catch (const std::exception& error) {
  std::cerr << "syncctl: " << error.what() << "\n";
  return syncd::ctl::kExitRefused;
}
