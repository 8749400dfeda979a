// syncctl: asks a running syncd, or a store directory, what is going on. This file owns the command
// line; commands.cpp does the work.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <iostream>

#include "daemon/core/engine/policy.h"
#include "daemon/core/topology/bounds.h"
#include "daemon/core/topology/graph_spec.h"
#include "daemon/tools/ctl/commands.h"
#include "daemon/tools/ctl/connection.h"
#include "daemon/tools/ctl/plan.h"
#include "daemon/tools/ctl/simulate.h"
#include "daemon/tools/ctl/table.h"
#include "daemon/tools/ctl/tls_init.h"
#include "daemon/tools/ctl/topology.h"
#include "proto/base/help_lines.h"
#include "proto/base/shard.h"

namespace {

using namespace syncd::ctl;

constexpr const char* kFooter =
    "JOB is a job's name (of several by one name, the latest) or #ID.\n"
    "Of several addresses each is tried again for --timeout-ms. In a cluster with shards, any "
    "daemon that\n"
    "serves one will do; a shard that cannot be asked is named on standard error (exit code 3).\n"
    "Exit codes: 0 done, 1 the daemon refused, 2 the command line is wrong, 3 no daemon answered,\n"
    "4 a store could not be read or a file not written.\n"
    "Environment, where the option is not given: SYNCD_ADDR (--addr), SYNCD_TOKEN_FILE,\n"
    "SYNCD_CA_FILE, SYNCD_CERTIFICATE_FILE, SYNCD_KEY_FILE, SYNCD_SERVER_NAME.";

constexpr const char* kStatusKeys =
    "JSON keys: version, pid, started_us, now_us (since the Unix epoch), store, mode, sessions, "
    "jobs,\nworkers, pushes, frames_in, frames_out, read_only, store_error, store_error_since_us "
    "(null: none),\ncommit_failures, records_removed (by retention). Of a cluster with shards it "
    "is a list with one "
    "object\nfor each daemon that answers, with the key shard, too.";
constexpr const char* kJobsKeys =
    "JSON: a list of objects with the keys id, name, policy, state (waiting, running, stopped, "
    "unreadable), "
    "epoch,\nexpected_workers, active_workers, clock_min, clock_max, pushes, waiting, note, "
    "created_us,\nstragglers (workers that are slower than is usual for them, beside the others), "
    "hang (who is at\nfault while workers wait for longer than hang_after) and hang_ranks. Of a "
    "cluster with shards\neach has the key shard, too.";
constexpr const char* kWorkersKeys =
    "JSON: a list of objects with the keys rank, name, host, state, incarnation, clock, granted,\n"
    "connected, last_push_us (null: none yet), waiting_us (null: not waiting), waiting_for, "
    "reason,\nwarn_after_us and evict_after_us (how long in one iteration before the log names it, "
    "before it\nis lost; 0: never), late_rule (how the two were chosen), computed_us and "
    "exchange_us "
    "(of its latest\niteration, until its mark and after it; null: not marked), straggler_since_us "
    "and straggler_factor\n(since when it is slower than is usual for it, beside the others, and "
    "how "
    "many times; null: it is not).";

constexpr const char* kMembersHelp =
    R"(`syncctl workers` shows how far each worker is and whom it waits for. A worker that left or was lost
stays in the list until another takes its rank. CONNECTED: its connection is open. HEARD: when its
latest request came, or the grant that it waited for; once its connection was cut, when that was.
INCARNATION: rises with each new life of a worker. DATA: what it shows to the others, such as an
address; in hexadecimal if it is not text.
JSON: a list of objects with the keys rank, name, host, state, connected, incarnation, heard_us
(null: not known), data (each byte as two hexadecimal digits), data_text (null: none, or not text).
Example: syncctl members my-job)";

constexpr const char* kStragglersHelp =
    R"(A wait is the time that a worker was held in begin before an iteration that it then pushed. The whole
wait is charged to the worker whose push, leave or loss ended it. So under bsp the last worker of each
barrier is charged with all that the others waited there. If something else ended the wait (the start
of the job, a change of policy, a planner's time), no worker is charged.
If workers mark when they have computed (syncd_worker_mark), their waits in the exchange before the push
count too: the worker with the shortest exchange of an iteration came last, and is charged with what the
exchange of each other worker takes longer.
LOST: the sum of the charged waits. SHARE: of all charged waits. ALONE: the part of LOST after the last
push of any other worker; being as fast as the next-slowest would save it. LONGEST: the longest wait.
WAITS: how many. MOMENTS: how often it let others continue (bsp: barriers at which it was last).
JSON keys: lost_us, elsewhere_us, computed_us (the pushed iterations, up to the mark), exchange_us (after
it, without the waits), workers and hosts, each a list of
objects with rank and name (workers), host, lost_us, alone_us, longest_us, waits, moments.
With --input no job is asked about. A worker is slow for a while if its iterations (up to the mark) take
longer than the median of the others', beyond what is usual for it, in several iterations; a single slow
one does not count. FACTOR: how many times longer. It takes 16 iterations to know what is usual, and 5 workers.
JSON: a list of objects with rank, from and to (iterations; to is null: until the end), factor.
Examples: syncctl stragglers my-job --since 10m --top 5
          syncctl stragglers my-job --store /var/lib/syncd/store --json
          syncctl stragglers --input history.jsonl)";
constexpr const char* kTopHelp =
    R"(Keys: q quit; j, k, arrows, page up and down, g, G scroll; s changes the order: by rank, clock
(lowest first), waiting (longest first), rate (slowest first), host. NO_COLOR is respected.
IT/S: iterations per second over about the last 5 s. AHEAD: iterations ahead of the slowest worker
that is present. WAITED: how long it has waited so far, FOR whom (ranks). away: its connection is
cut. slow x2.0: its iterations take twice its usual time, beside the others'. COMPUTES, EXCHANGE: its
latest iteration until its mark (syncd_worker_mark), and after it. If the daemon does not answer, top keeps showing the last answer and asks again.
Examples: syncctl top my-job --sort waiting
          syncctl top --once)";
constexpr const char* kExplainHelp =
    "Also says who waits for it. JSON keys: rank, name, host, state, clock, policy, waiting_us "
    "(null: not\nwaiting), reason, waiting_for, waits_for and waited_for_by (lists of objects).\n"
    "Without WORKER: who is at fault while workers of a job under observation wait for longer than "
    "its\n"
    "hang_after. JSON keys: name, state, waiting, note, hang and hang_ranks (empty: nobody).\n"
    "Examples: syncctl explain my-job\n"
    "          syncctl explain my-job 3\n"
    "          syncctl explain my-job trainer-a --json";

constexpr const char* kInspectHelp =
    R"(Asks the processes of the job's connected workers, one after the other. Each answers by a thread of
its own, also while it hangs: a Python worker with the stacks of all its threads and torch's flight
recorder, a C program with what its on_inspect says, at most 16 KiB. No answer within 2 s says that the
interpreter's lock is held, or that the process is stopped. You need the rights of auth.admin. Neither
you nor the worker may be connected in plain text from another machine.
With inspect_on_hang in its [[job]], syncd asks those at fault by itself, once a hang, and keeps what
they say in memory until the next one: --stored.
JSON: a list of objects with rank, name, host, state, stacks, failure (why there are none), at_us.
Examples: syncctl inspect my-job 3
          syncctl inspect my-job --hanging)";

// The tree of commands, and what the chosen one does.
struct Commands {
  // A command that runs `function`. Its text is followed by what holds for all of them.
  CLI::App* add(CLI::App& parent, const char* name, const std::string& what,
                const std::function<int()>& function, const std::string& text = {}) {
    CLI::App* sub = parent.add_subcommand(name, what);
    if (!text.empty()) sub->footer(text + "\n\n" + kFooter);
    sub->callback([this, function] {
      if (!run) run = function;  // the innermost command's callback comes first
    });
    return sub;
  }
  // The same of a function that takes options, which are read after this.
  template <class Options>
  CLI::App* add(CLI::App& parent, const char* name, const std::string& what,
                int (*function)(const Options&), const Options& options,
                const std::string& text = {}) {
    return add(
        parent, name, what, [function, &options] { return function(options); }, text);
  }
  // A command that only has others below it.
  CLI::App& group(const char* name, const char* what) {
    CLI::App* sub = app.add_subcommand(name, what);
    sub->require_subcommand(1);
    return *sub;
  }

  CLI::App& app;
  std::function<int()> run;
};

CLI::Option* add_job(CLI::App* command, Options& options) {
  return command->add_option("JOB", options.job, "Job name or #ID")->required();
}

std::string record_help() {
  std::string text =
      "Columns of CSV and keys of JSON; what a kind of record does not have is empty "
      "or left out:\n";
  for (const RecordColumn& column : record_columns()) {
    std::string line = "  " + std::string(column.name);
    line.resize(20, ' ');
    text += line + column.meaning + "\n";
  }
  return text;
}

// Run a planner on what a file says; no daemon is asked.
void add_plan(Commands& commands, PlanOptions& options) {
  CLI::App& plan = commands.group(
      "plan", "What the daemon's planners decide on given numbers (JSON in, JSON out; no daemon)");
  const auto command = [&](const char* name, const char* what, const char* formats, PlanKind kind) {
    const auto run = [&options, kind] {
      return run_plan(kind, options, std::cin, std::cout, std::cerr);
    };
    CLI::App* sub = commands.add(plan, name, what, run, formats);
    sub->add_option("FILE,--input", options.input, "What to read; - is standard input")
        ->capture_default_str();
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
  command("dssp", "How many more iterations the fastest worker may run", kPlanDsspHelp,
          PlanKind::kDssp);
}

// Make certificates.
void add_tls(Commands& commands, TlsOptions& options) {
  CLI::App& tls = commands.group("tls", "Make your own certificates");
  const auto command = [&](const char* name, const char* what,
                           int (*function)(const TlsOptions&, std::ostream&, std::ostream&),
                           const char* text) {
    const auto run = [&options, function] { return function(options, std::cout, std::cerr); };
    CLI::App* sub = commands.add(tls, name, what, run, text);
    sub->add_option("DIR", options.directory, "Where the files are")->required();
    sub->add_option("--days", options.days, "How long certificates are valid")
        ->check(CLI::Range(1, 3650))
        ->capture_default_str();
    return sub;
  };
  CLI::App* init = command(
      "init", "Make an authority, the daemon's and a first client's certificate, and syncd.toml",
      run_tls_init,
      "A first secure set-up is three commands: this one, `syncd --config DIR/syncd.toml`, and on "
      "a\n"
      "worker's machine the export line that this one prints. Existing files are left alone.");
  init->add_option("--host", options.hosts,
                   "A name or address by which workers reach the daemon; may be repeated (default: "
                   "this machine's name; localhost always works)")
      ->allow_extra_args(false);
  init->add_option("--client", options.name, "Name of the client: its identity is cert:NAME")
      ->capture_default_str();
  command("issue", "Make one more client's certificate from DIR/ca.key", run_tls_issue, "")
      ->add_option("NAME", options.name, "Name of the client: its identity is cert:NAME")
      ->required();
  command("renew", "Make DIR/NAME.crt anew from DIR/ca.key, for the same names and key",
          run_tls_renew, "")
      ->add_option("NAME", options.name, "server, or a client's name")
      ->required();
}

// About a store whose daemon is down.
void add_store(Commands& commands, Options& options) {
  CLI::App& store = commands.group("store", "Check, copy, restore or compact a store");
  const auto add_dir = [&](CLI::App* command, const char* what) {
    command->add_option("DIR", options.store, what)->required();
  };
  add_dir(commands.add(
              store, "check", "Read every record and snapshot; says what is damaged or missing",
              run_store_check, options,
              R"(It also checks a store that a daemon has open, except for its latest commits.
Exit status 4 if anything is wrong. JSON: sound, recovery (why a daemon would not start
with it), and per job id, name, records, last_sequence, snapshot_sequence, bytes, problems;
kept_checkpoints (of removed jobs, how many) and problems (of those).)"),
          "The store");
  const auto back_up = [&options] {
    return options.store.empty() ? run_checkpoint(options) : run_store_backup(options);
  };
  CLI::App* backup = commands.add(
      store, "backup", "Copy the store of a running daemon to a new directory", back_up,
      R"(The daemon makes the copy on its own machine: TO must be an absolute path, and the daemon's user must
be able to write there. The copy holds everything that was acknowledged before. Workers continue
meanwhile. You need the rights of auth.admin. Files that no longer change are hard links if both are
on one file system. Of a cluster with shards, the daemon at the first address that answers copies the
shard that it serves, and says which. With --store, syncctl copies a store on this machine whose daemon
is down.)");
  backup->add_option("TO", options.other, "The copy, a directory that is not there yet")
      ->required();
  backup->add_option("--store", options.store,
                     "Copy this store, whose daemon is down, instead of asking one");
  CLI::App* restore =
      commands.add(store, "restore", "Make a store from a backup; the backup does not change",
                   run_store_restore, options);
  restore->add_option("BACKUP", options.other, "What `store backup` made")->required();
  add_dir(restore, "The new store: a path that does not exist yet, or an empty directory");
  add_dir(commands.add(store, "compact", "Free disk space that a store no longer needs",
                       run_store_compact, options),
          "The store");
}

// Ask etcd rather than a daemon.
void add_cluster(Commands& commands, Options& options) {
  CLI::App& cluster = commands.group("cluster", "Set up and examine a cluster of daemons");
  const auto command = [&](const char* name, const char* what, int (*function)(const Options&),
                           const char* notes) {
    CLI::App* sub = commands.add(cluster, name, what, function, options, notes);
    sub->add_option("--config", options.config,
                    "The configuration of one of its members, with [cluster] (default: that of "
                    "SYNCD_CONFIG)");
    return sub;
  };
  CLI::App* init = command(
      "init", "Make the cluster in etcd, once, before its members start", run_cluster_init,
      R"(With --from it begins with the jobs of a store whose daemon is down: that of a single daemon,
or, when etcd has lost its data or was restored from a backup, the copy of the member that had come
furthest. Stop all members first. What that copy lacks is lost. The store becomes a copy of the new
cluster, at the next generation; other members' copies are set aside and made anew. Keep a copy first:
a single daemon does not take this store again. Without --from it refuses while store.path, which
the configuration names, holds a copy of a cluster. With --shards
the jobs are spread over as many shards, by their names, for ever; each has a leader of its own, and a
process of its own on each machine.)");
  init->add_option("--from", options.from_store, "The store that the cluster begins with");
  init->add_option("--shards", options.shards, "How many shards there are")
      ->check(CLI::Range(1U, syncd::kShardsMax))
      ->capture_default_str();
  command(
      "status", "Who leads, and how far each member's copy has come", run_cluster_status,
      R"(It shows what etcd knows: a member that has died stays until its lease ends, and copies are as
of a few seconds ago. JSON: cluster, generation, format (of records),
draining (names), etcd_bytes (that its database uses), etcd_file_bytes, leader (empty: none), term, first and last (entries of the log), pin (the member that is wanted), members (name, version, format, addresses,
copy, can_lead). With several shards: "shards", a list with leader and what follows of each.)");
  CLI::App* drain = command(
      "drain", "Let a member hand over what it leads, and take nothing", run_cluster_drain,
      R"(For a machine that is to be serviced. Workers wait for about half a second. It holds across
restarts of the member, until --undo. Where no other member can lead, the member goes on.)");
  drain->add_option("member", options.member, "The member's name")->required();
  const auto add_absent = [&](CLI::App* sub) {
    sub->add_flag("--absent", options.absent, "Even if no such member is there now");
  };
  drain->add_flag("--undo", options.undo, "Let it lead again");
  add_absent(drain);
  CLI::App* move = command(
      "move", "Let a member lead a shard whenever it is there", run_cluster_move,
      R"(The shard goes to the member at once if its copy is close to the log's end, and, until --undo,
back to it half a minute to a minute after it has come back.)");
  const auto is_number = [](const std::string& text) {
    return text.find_first_not_of("0123456789") == std::string::npos
               ? std::string()
               : "the shard is a number, as in `cluster move 0 " + text + "`";
  };
  move->add_option("shard", options.shard, "The shard; 0 in a cluster that has one")
      ->check(CLI::Validator(is_number, ""))
      ->required();
  CLI::Option* member = move->add_option("member", options.member, "The member's name");
  move->add_flag("--undo", options.undo, "Let any member lead it")->excludes(member);
  add_absent(move);
  command(
      "finish-upgrade", "Let members write what the newest version can write",
      run_cluster_finish_upgrade,
      R"(Call it once all members run the new version. Afterwards no version takes part that cannot read
the new format: there is no way back. It refuses while such a member is there. So far all versions
write the same, and there is nothing to do.)");
  commands
      .add(cluster, "copy", "How far a member's copy on this machine has come", run_cluster_copy,
           options, "It asks neither etcd nor a daemon. JSON: store, generation, copy (an entry).")
      ->add_option("--store", options.store, "The store of the member")
      ->required();
}

// Ask a graph rather than a daemon.
void add_topology(Commands& commands, TopologyQuery& query) {
  CLI::App& topology =
      commands.group("topology", "Examine a communication graph (needs no daemon)");
  const auto command = [&](const char* name, const char* what, const char* keys,
                           int (*function)(const TopologyQuery&)) {
    CLI::App* sub = commands.add(topology, name, what, function, query, keys);
    sub->add_option("--graph", query.graph, "One of " + syncd::topology::known_graphs());
    sub->add_option("--workers", query.workers, "How many workers (a file says it itself)")
        ->check(CLI::Range(1U, kAnalyzeWorkersMax));
    sub->add_option("--adjacency", query.adjacency,
                    "Take the graph of this file instead of --graph: lines FROM TO, or rows of 0 "
                    "and 1 with commas");
    sub->add_option(
           "--hosts", query.hosts,
           "For the graphs by host (clustered): H hosts of equal size, or the size of each "
           "as in 4,2,2, as with simulate; or each worker's host by name, as in a,a,b")
        ->delimiter(',');
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

// Tries policies in virtual time; no daemon is asked.
void add_simulate(Commands& commands, SimulateQuery& query) {
  const auto run = [&query] {
    query.columns = output_columns();
    return run_simulate(query, std::cout, std::cerr);
  };
  CLI::App* sub = commands.add(commands.app, "simulate",
                               "What policies would do to a job, in virtual time (no daemon)", run,
                               simulate_help());
  const auto with_default = [&](const char* name, auto& value, const char* help) {
    sub->add_option(name, value, help)->capture_default_str();
  };
  with_default("--workers", query.workers, "How many workers");
  sub->add_option(
      "--hosts", query.hosts,
      "Spread them over hosts, for the graphs by host (clustered): H hosts of equal size, or the "
      "size of each "
      "as in 4,2,2; ranks in order, and one that joins later on host r mod H; without it each has "
      "a host of its own");
  with_default("--iteration-time", query.iteration_time, "How long workers compute: see below");
  with_default("--slowdown", query.slowdown, "What slows some of them: see below");
  with_default("--delay-ms", query.delay_ms, "How long every message takes, one way");
  sub->add_option("--link-mbps", query.link_mbps,
                  "Mbit/s of the server's link, or of each worker's without a server; with "
                  "--parameters-mb");
  sub->add_option("--parameters-mb", query.parameters_mb,
                  "Megabytes of the parameters, and of an update: what a transfer carries");
  with_default("--plan-delay-ms", query.plan_delay_ms, "How long the daemon works on a plan");
  with_default("--duration-s", query.duration_s, "Virtual seconds to run");
  with_default("--seed", query.seed, "Another seed, other draws");
  sub->add_option("--policy", query.policy, "The policy to try");
  sub->add_option("--compare", query.compare, "Several policies P1,P2,... under the same draws");
  sub->add_option("--sweep", query.sweep,
                  "Try specsync:fixed over --policy with every pair of abort_time=MS[,MS...],"
                  "abort_rate=SHARE[,SHARE...]");
  sub->add_option("--order", query.order,
                  "Hop: parallel (send, then compute; the default) or serial (compute, then send)");
  sub->add_option("--fail", query.fails, "Worker RANK@SECONDS dies; may be repeated");
  sub->add_option("--leave", query.leaves, "Worker RANK@SECONDS leaves; may be repeated");
  sub->add_option("--join", query.joins,
                  "Worker RANK@SECONDS starts, anew or after it failed or left; may be repeated");
  sub->add_option("--switch", query.changes, "The job changes to POLICY@SECONDS; may be repeated");
  with_default("--worker-grace-s", query.worker_grace_s,
               "How long a worker that died keeps its place");
  sub->add_flag("--json", query.json, "JSON instead of a table");
}

// What a daemon's history, or that of a store, is asked.
void add_history(Commands& commands, Options& options) {
  const auto add_store_option = [&](CLI::App* sub) {
    return sub->add_option(
        "--store", options.store,
        "Read this store directory while its daemon is down, instead of asking one");
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
    add_store_option(sub);
  };
  const auto print_history = [&options] {
    if (!options.job.empty()) return run_history(options);
    std::cerr << "syncctl: history needs a job: syncctl history JOB\n";
    return kExitUsage;
  };
  CLI::App* history = commands.add(commands.app, "history", "A job's recorded facts, oldest first",
                                   print_history, record_help());
  history->add_option("JOB", options.job, "Job name or #ID");
  filters(history);
  CLI::App* exported = commands.add(
      *history, "export",
      "The same for programs, as CSV (RFC 4180) or JSON lines; columns and keys are the same",
      run_export, options,
      record_help() +
          "chrome: a job is a process, a worker a track, an iteration a slice from its grant to "
          "the arrival of its\npush, with computing and exchange in it if the worker marks the "
          "one's "
          "end, the wait before it and, under hop and notify_ack, what "
          "the worker did after it; everything\nelse is an instant on the job's own track.");
  add_job(exported, options);
  exported
      ->add_option("--format", options.format,
                   "csv, jsonl, or chrome: a trace for https://ui.perfetto.dev and "
                   "speedscope")
      ->required()
      ->check(CLI::IsMember({"csv", "jsonl", "chrome"}));
  exported->add_option("--output", options.output, "File to write (default: standard output)");
  filters(exported);

  CLI::App* stragglers = commands.add(
      commands.app, "stragglers",
      "Who made the others wait: time lost per worker and per host, out of the history",
      run_stragglers, options, kStragglersHelp);
  CLI::Option* job = add_job(stragglers, options)->required(false);
  CLI::Option* since = stragglers->add_option(
      "--since", options.since,
      "Only waits that ended at most this long ago, by this machine's clock: 90s, "
      "10m, 2h");
  stragglers->add_option("--top", options.top, "Only the N worst workers and hosts (0: all)");
  CLI::Option* store = add_store_option(stragglers);
  stragglers
      ->add_option("--input", options.input,
                   "Show when workers were slow for a while, out of this file: what history export "
                   "wrote as csv or jsonl")
      ->excludes(job)
      ->excludes(store)
      ->excludes(since);
}

// What a running daemon is asked, or told to do, about its jobs.
void add_jobs(Commands& commands, Options& options) {
  CLI::App& job = commands.group("job", "Create or stop a job");
  CLI::App* create =
      commands.add(job, "create", "Declare a job before its workers join", run_create, options);
  create->add_option("NAME", options.job, "1-64 of A-Z a-z 0-9 . _ -")->required();
  create->add_option("--policy", options.policy, "One of " + syncd::known_policies());
  create->add_option("--workers", options.workers, "Workers expected before it starts");
  create->add_option("--min-workers", options.min_workers,
                     "So many are enough after the start timeout (0: wait for all)");
  CLI::App* stop =
      commands.add(job, "stop", "Answer every begin of the job with STOP", run_stop, options);
  add_job(stop, options);
  stop->add_option("--reason", options.reason, "Shown to the workers and kept in the history");

  CLI::App* set_policy = commands.add(
      commands.app, "set-policy", "Change the policy of a job while it runs", run_set_policy,
      options,
      R"(Grants that were given stay valid. The new policy decides every later begin. Workers need not do
anything, but syncd refuses a worker that joins later and names another policy. The history records
the change as policy_switched. Both policies must be for a parameter server: a job under hop or
notify_ack keeps its policy.)");
  add_job(set_policy, options);
  set_policy->add_option("POLICY", options.policy, "One of " + syncd::known_policies())->required();

  CLI::App* checkpoint = commands.add(
      commands.app, "checkpoint", "Let the workers of a job save a checkpoint",
      run_agreed_checkpoint, options,
      R"(The workers that take part (syncd_join_options.checkpoints) save at iterations that fit together: under
bsp and elastic_bsp at the next barrier. One that is open already is joined. A checkpoint is complete
when all of its shards are saved, and given up when a worker goes before, or after checkpoint_timeout.
JSON keys: checkpoint (its number); with --wait and --latest also epoch, iteration, completed_us, shards
(a list of objects with shard, rank, iteration, location), open, open_text, closed, closed_reason.
Examples: syncctl checkpoint my-job --wait
          syncctl checkpoint my-job --latest --json)");
  add_job(checkpoint, options);
  checkpoint->add_option("--reason", options.reason, "Shown in the log and kept in the history");
  CLI::Option* waits = checkpoint->add_flag("--wait", options.wait,
                                            "Until it is complete, or given up (exit code 1)");
  checkpoint
      ->add_flag("--latest", options.latest,
                 "Ask for none: show the latest complete one, and what is open")
      ->excludes(waits);

  const auto about_worker = [&](const char* name, const char* what, int (*function)(const Options&),
                                const char* footer) {
    CLI::App* sub = commands.add(commands.app, name, what, function, options, footer);
    add_job(sub, options);
    sub->add_option("WORKER", options.worker, "The worker's rank, or its name")->required();
    return sub;
  };
  about_worker("explain", "Why a worker waits, or who makes a job hang", run_explain, kExplainHelp)
      ->get_option("WORKER")
      ->required(false);
  CLI::App* inspect = about_worker("inspect", "Where workers' processes are: their stacks",
                                   run_inspect, kInspectHelp);
  inspect->get_option("WORKER")->required(false);
  inspect->add_flag("--hanging", options.hanging, "Only those that a hang's verdict names");
  inspect->add_flag("--stored", options.stored, "What they said during the latest hang");
  about_worker("drain", "Let a worker finish its iteration and leave", run_drain,
               "The worker gets no further iteration: its next begin returns STOP. The others wait "
               "for it until its\n"
               "push arrives (under hop and notify_ack: until it asks for the next iteration). Its "
               "process may not\n"
               "come back; a new one may.")
      ->add_option("--reason", options.reason, "Shown to the worker and kept in the history");
  about_worker("kick", "Declare a worker lost at once", run_kick,
               "The others no longer wait for it, and syncd refuses what its process still sends. "
               "That process may\n"
               "not come back; a new one may.")
      ->add_option("--reason", options.reason, "Shown to the worker and kept in the history");
  CLI::App* exclude = commands.add(
      commands.app, "exclude", "Keep a host's workers out of a job's rounds", run_exclude, options,
      R"(For jobs under gather. The present round breaks and forms again without the host. Its workers stay
in the job and wait until --undo. syncd refuses to leave a round with fewer members than MIN, unless
--force is given.

HOST is the name that the clients there say of themselves: a client that says another one is not
excluded. This keeps a faulty machine out, not a hostile one.)");
  add_job(exclude, options);
  exclude->add_option("HOST", options.host, "As syncctl workers shows it")->required();
  exclude->add_flag("--undo", options.undo, "Take its workers into rounds again");
  exclude->add_flag("--force", options.force, "Even if fewer than MIN members are left");
  exclude->add_option("--reason", options.reason, "Kept in the history and the log");
  CLI::App* phase =
      about_worker("phase", "Grant a worker a long phase in which it is not late", run_phase,
                   "As if the worker had announced it itself: until its next begin or push, and "
                   "for at most the lease,\n"
                   "syncd neither reports it as slow nor evicts it for that. A connection that "
                   "stays cut still ends in\n"
                   "a loss.");
  phase->add_option("NAME", options.phase, "What it does meanwhile, such as evaluation")
      ->required();
  phase->add_option("--lease", options.lease, "For how long at most: 90s, 10m, 2h")->required();
}

// What a running daemon shows.
void add_views(Commands& commands, Options& options) {
  CLI::App& app = commands.app;
  commands.add(app, "status", "The daemon itself: version, store, sessions, totals", run_status,
               options, kStatusKeys);
  commands.add(app, "jobs", "All jobs: policy, state, workers, clocks", run_jobs, options,
               kJobsKeys);
  add_job(commands.add(app, "workers", "A job's workers: clock, last push, whom each one waits for",
                       run_workers, options, kWorkersKeys),
          options);
  add_job(commands.add(app, "members",
                       "Who a job's workers are: host, state, life, when last heard, data",
                       run_members, options, kMembersHelp),
          options);
  CLI::App* top = commands.add(app, "top", "A job's workers, or all jobs, in a live table", run_top,
                               options, kTopHelp);
  top->add_option("JOB", options.job, "Job name or #ID (default: all jobs)");
  top->add_option("--interval", options.interval, "How often to ask: 500ms, 2s")
      ->capture_default_str();
  top->add_option("--sort", options.sort, "By rank, clock, waiting, rate or host")
      ->capture_default_str();
  top->add_flag("--once", options.once,
                "Print one frame, after one interval, and end: for files and pipes");
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
  if (written || code != kExitOk) return code;
  std::cerr << "syncctl: cannot write to standard output: the output is incomplete\n";
  return kExitStore;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app{"syncctl: ask a running syncd who is training, who is slow, and what happened"};
  app.footer(kFooter);
  syncd::keep_help_lines(app);
  app.require_subcommand(1);
  app.set_version_flag("--version", "syncctl " SYNCD_VERSION);
  Options options;
  add_connection_options(app, options);
  app.fallthrough();
  Commands commands{app, {}};
  add_views(commands, options);
  add_history(commands, options);
  add_jobs(commands, options);
  TopologyQuery topology;
  add_topology(commands, topology);
  add_store(commands, options);
  add_cluster(commands, options);
  PlanOptions plan;
  add_plan(commands, plan);
  TlsOptions tls;
  add_tls(commands, tls);
  SimulateQuery simulation;
  add_simulate(commands, simulation);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (const std::string unknown = unknown_command(app, argc, argv); !unknown.empty()) {
      std::cerr << "syncctl: there is no command '" << unknown << "': see syncctl --help\n";
      return kExitUsage;
    }
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return after_output(commands.run());
} catch (const std::exception& error) {
  std::cerr << "syncctl: " << error.what() << "\n";
  return kExitRefused;
}
