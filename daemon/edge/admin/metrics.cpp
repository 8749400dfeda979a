// The table of metrics; see the header. Any thread.
//
// To add a metric, and what fails if a step is forgotten:
// 1. If the engine counts it, add a field to JobCounters (core/engine/counters.h); if the network
//    or the store does, to NetworkStats or StoreFigures. The row does not compile without it.
//    Count it where it happens, with a test: no other test can tell that it stays 0.
// 2. Add one row to kMetrics below: name, type, labels, help, how it is written. metrics_test fails
//    if no sample has the name and type, or if the labels differ from the row's.
// 3. Add one row to packaging/doc/metrics.md, which metrics_test compares with this table.
// 4. If people should look at it, add a panel in packaging/grafana or an alert in
//    packaging/prometheus. metrics_test fails if they ask for a metric that is not here.
#include "daemon/edge/admin/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <concepts>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>

namespace syncd::admin {
namespace {

using Labels = std::initializer_list<std::pair<const char*, std::string_view>>;

struct All {
  const Snapshot& snapshot;
  const ProcessFigures& process;
  const AdminFigures& admin;
};

// The shortest text that reads back as the same number.
void append_number(std::string& out, double value) {
  char digits[64];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}
void append_number(std::string& out, std::integral auto value) {
  out += fmt::format_int(value).str();
}

void append_label_value(std::string& out, std::string_view value) {
  for (const char c : value) {
    if (c == '\\' || c == '"' || c == '\n') out += '\\';
    out += c == '\n' ? 'n' : c;
  }
}

// Writes the samples of one metric.
class Samples {
 public:
  Samples(std::string& out, const char* name) : out_(out), name_(name) {}

  void add(auto value, Labels labels = {}) { sample("", labels, {}, value); }

  // `units`: so many of the histogram's units are one of the metric's.
  template <std::size_t N>
  void add_histogram(const Histogram<N>& histogram, const std::array<std::int64_t, N>& bounds,
                     double units, Labels labels = {}) {
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < N; ++i) {
      below += histogram.counts[i];
      std::string bound;
      append_number(bound, static_cast<double>(bounds[i]) / units);
      sample("_bucket", labels, bound, below);
    }
    below += histogram.counts[N];
    sample("_bucket", labels, "+Inf", below);
    sample("_sum", labels, {}, static_cast<double>(histogram.sum) / units);
    sample("_count", labels, {}, below);
  }
  void add_spans(const SpanHistogram& spans, Labels labels = {}) {
    add_histogram(spans, kSpanBounds, 1e6, labels);
  }

 private:
  void sample(const char* suffix, Labels labels, std::string_view bound, auto value) {
    out_ += name_;
    out_ += suffix;
    char before = '{';
    const auto label = [&](const char* name, std::string_view text) {
      out_ += std::exchange(before, ',');
      out_ += name;
      out_ += "=\"";
      append_label_value(out_, text);
      out_ += '"';
    };
    for (const auto& [name, text] : labels) label(name, text);
    if (!bound.empty()) label("le", bound);
    if (before == ',') out_ += '}';
    out_ += ' ';
    append_number(out_, value);
    out_ += '\n';
  }

  std::string& out_;
  const char* name_;
};

// The label of a job is not "job": Prometheus gives that to what it scrapes.
struct Metric {
  const char* name;
  const char* type;
  const char* labels;
  const char* help;
  void (*write)(const All& all, Samples& samples);
};

double seconds(Micros us) {
  return static_cast<double>(us) / 1e6;
}

// The same for each job.
template <auto Value>
void per_job(const All& all, Samples& samples) {
  for (const JobFigures& job : all.snapshot.server.jobs) {
    samples.add(Value(job), {{"job_name", job.name}});
  }
}
template <SpanHistogram JobCounters::*Spans>
void spans_per_job(const All& all, Samples& samples) {
  for (const JobFigures& job : all.snapshot.server.jobs) {
    samples.add_spans(job.counters.*Spans, {{"job_name", job.name}});
  }
}
template <Clock JobFigures::*Field>
void clock_per_job(const All& all, Samples& samples) {
  for (const JobFigures& job : all.snapshot.server.jobs) {
    if (job.has_clocks) samples.add(job.*Field, {{"job_name", job.name}});
  }
}
template <std::uint64_t JobCounters::*Field>
void count_per_job(const All& all, Samples& samples) {
  per_job<[](const JobFigures& job) { return job.counters.*Field; }>(all, samples);
}
template <auto Value>
void one(const All& all, Samples& samples) {
  samples.add(Value(all));
}
template <auto Value>
void of_member(const All& all, Samples& samples) {
  if (const auto& member = all.snapshot.member) {
    samples.add(Value(*member),
                {{"cluster_name", member->cluster}, {"shard", std::to_string(member->shard)}});
  }
}
template <auto Value>
void of_leader(const All& all, Samples& samples) {
  if (all.snapshot.member && all.snapshot.member->leads) of_member<Value>(all, samples);
}
constexpr Metric kMetrics[] = {
    // ---- the daemon
    {"syncd_build_info", "gauge", "version", "Always 1; its label says which version runs.",
     [](const All& all, Samples& samples) {
       samples.add(1, {{"version", all.snapshot.server.version}});
     }},
    {"syncd_ready", "gauge", "",
     "Whether the daemon has recovered, listens, can write its store and is not stopping.",
     one<[](const All& all) { return all.snapshot.server.not_ready.empty() ? 1 : 0; }>},
    {"syncd_loop_turn_seconds", "histogram", "",
     "How long the event loop was busy between two waits for events; an event waits at most so "
     "long.",
     [](const All& all, Samples& samples) { samples.add_spans(all.snapshot.loop_turns); }},
    {"syncd_config_reload_success", "gauge", "",
     "Whether the latest reading of the configuration was good (1) or left everything as it was "
     "(0).",
     one<[](const All& all) { return all.snapshot.reload.last_good ? 1 : 0; }>},
    {"syncd_config_reload_success_timestamp_seconds", "gauge", "",
     "When the configuration in force was read, in seconds since the Unix epoch.",
     one<[](const All& all) { return seconds(all.snapshot.reload.last_good_us); }>},
    {"syncd_config_reloads_total", "counter", "result",
     "SIGHUPs by what became of them: good, failed.",
     [](const All& all, Samples& samples) {
       samples.add(all.snapshot.reload.good, {{"result", "good"}});
       samples.add(all.snapshot.reload.failed, {{"result", "failed"}});
     }},
    {"syncd_admin_requests_total", "counter", "result",
     "HTTP requests before this one: answered, or refused (also those that took too long).",
     [](const All& all, Samples& samples) {
       samples.add(all.admin.answered, {{"result", "answered"}});
       samples.add(all.admin.refused, {{"result", "refused"}});
     }},
    {"syncd_tls_not_after_timestamp_seconds", "gauge", "certificate",
     "When the daemon's certificate expires (server), and the last of those in force that may sign "
     "clients' (client_ca), in seconds since the Unix epoch.",
     [](const All& all, Samples& samples) {
       const tls::ServerFacts& facts = all.snapshot.server.certificates;
       if (facts.certificate.until_s == 0) return;
       samples.add(facts.certificate.until_s, {{"certificate", "server"}});
       if (facts.authorities.empty()) return;
       const tls::Validity best = tls::best_of(facts.authorities, all.snapshot.server.wall_clock_s);
       samples.add(best.until_s, {{"certificate", "client_ca"}});
     }},

    // ---- connections
    {"syncd_sessions", "gauge", "", "Clients that are connected and have introduced themselves.",
     one<[](const All& all) { return all.snapshot.server.network.sessions; }>},
    {"syncd_connections", "gauge", "",
     "Open connections, with those that have not introduced themselves.",
     one<[](const All& all) { return all.snapshot.server.network.connections; }>},
    {"syncd_connections_accepted_total", "counter", "", "Connections that were let in.",
     one<[](const All& all) { return all.snapshot.server.network.accepted; }>},
    {"syncd_connections_refused_total", "counter", "reason",
     "Connections turned away or cut off, by the limit or rule that did it.",
     [](const All& all, Samples& samples) {
       for (std::size_t i = 0; i < net::kRefusalNames.size(); ++i) {
         samples.add(all.snapshot.server.network.refused[i], {{"reason", net::kRefusalNames[i]}});
       }
     }},
    {"syncd_connections_held_total", "counter", "",
     "Times that a connection had to wait for others, because answering it had taken its client's "
     "part of a turn of the event loop.",
     one<[](const All& all) { return all.snapshot.server.network.held; }>},
    {"syncd_connection_buffer_bytes", "gauge", "", "Memory of the buffers of all connections.",
     one<[](const All& all) { return all.snapshot.server.network.buffered; }>},
    {"syncd_received_bytes_total", "counter", "", "Bytes of frames from clients.",
     one<[](const All& all) { return all.snapshot.server.network.bytes_in; }>},
    {"syncd_sent_bytes_total", "counter", "", "Bytes of frames for clients.",
     one<[](const All& all) { return all.snapshot.server.network.bytes_out; }>},
    {"syncd_received_frames_total", "counter", "", "Frames from clients.",
     one<[](const All& all) { return all.snapshot.server.network.frames_in; }>},
    {"syncd_sent_frames_total", "counter", "", "Frames for clients.",
     one<[](const All& all) { return all.snapshot.server.network.frames_out; }>},

    // ---- the store
    {"syncd_store_read_only", "gauge", "",
     "Whether the store cannot be written now (1), so that pushes and joins are refused.",
     one<[](const All& all) { return all.snapshot.server.writable ? 0 : 1; }>},
    {"syncd_store_commit_seconds", "histogram", "",
     "How long one commit took; in mode durable, until it was on disk.",
     [](const All& all, Samples& samples) {
       samples.add_spans(all.snapshot.server.store_figures.commit_time);
     }},
    {"syncd_store_commit_records", "histogram", "", "Records that one commit took along.",
     [](const All& all, Samples& samples) {
       samples.add_histogram(all.snapshot.server.store_figures.commit_records, server::kBatchBounds,
                             1);
     }},
    {"syncd_store_queue_records", "gauge", "", "Records that wait for the disk.",
     one<[](const All& all) { return all.snapshot.server.store_figures.records_waiting; }>},
    {"syncd_store_failures_total", "counter", "",
     "Times that the store could no longer be written.",
     one<[](const All& all) { return all.snapshot.server.store_figures.failures; }>},

    {"syncd_store_removed_records_total", "counter", "",
     "Records that were removed because they were old or too many (store.retention).",
     one<[](const All& all) { return all.snapshot.server.store_figures.records_removed; }>},

    // ---- the cluster
    {"syncd_cluster_leads", "gauge", "cluster_name, shard, member",
     "Whether this member leads (1) or follows (0). Absent, with the next nine: the daemon is no "
     "member of a cluster.",
     [](const All& all, Samples& samples) {
       if (const auto& member = all.snapshot.member) {
         samples.add(member->leads ? 1 : 0, {{"cluster_name", member->cluster},
                                             {"shard", std::to_string(member->shard)},
                                             {"member", member->member}});
       }
     }},
    {"syncd_cluster_term", "gauge", "cluster_name, shard",
     "The number under which the leader leads that this member saw last; each leader has a higher "
     "one than those before it. 0: it sees none.",
     of_member<[](const cluster::MemberView& member) { return member.term; }>},
    {"syncd_cluster_log_entries", "gauge", "cluster_name, shard",
     "Entries of the cluster's log in etcd.",
     of_member<[](const cluster::MemberView& member) { return member.last + 1 - member.first; }>},
    {"syncd_cluster_copy_lag_entries", "gauge", "cluster_name, shard",
     "Entries of that log which this member's copy does not have yet.",
     of_member<[](const cluster::MemberView& member) {
       return member.last - std::min(member.copied, member.last);
     }>},
    {"syncd_cluster_copies_set_aside", "gauge", "cluster_name, shard",
     "Earlier copies of this member, as STORE.set_aside-GENERATION-TIME beside its store, that "
     "were there when it started or came since.",
     of_member<[](const cluster::MemberView& member) { return member.set_aside; }>},
    {"syncd_cluster_take_overs_total", "counter", "cluster_name, shard, cause",
     "Times that this process began to lead, 0 or 1: who leads no longer starts anew. given: by "
     "the leader before it, which stopped, or which balancing or an operator relieved; free: that "
     "one had gone, or there was none.",
     [](const All& all, Samples& samples) {
       if (const auto& member = all.snapshot.member) {
         for (const bool given : {true, false}) {
           samples.add(member->leads && member->was_given == given ? 1 : 0,
                       {{"cluster_name", member->cluster},
                        {"shard", std::to_string(member->shard)},
                        {"cause", given ? "given" : "free"}});
         }
       }
     }},
    {"syncd_cluster_lease_left_seconds", "gauge", "cluster_name, shard",
     "For how long this member may still answer if etcd says nothing any more. Absent, with the "
     "next three: it does not lead.",
     of_leader<[](const cluster::MemberView& member) {
       return static_cast<double>(member.lease_left) / 1e6;
     }>},
    {"syncd_cluster_etcd_used_bytes", "gauge", "cluster_name, shard",
     "Bytes that etcd's database uses, as of a few seconds ago. 0: it has not said so yet.",
     of_leader<[](const cluster::MemberView& member) { return member.etcd_bytes; }>},
    {"syncd_cluster_etcd_file_bytes", "gauge", "cluster_name, shard",
     "Bytes of its database's file, which only a defragmentation makes smaller. At its quota etcd "
     "takes nothing.",
     of_leader<[](const cluster::MemberView& member) { return member.etcd_file_bytes; }>},
    {"syncd_cluster_etcd_quota_bytes", "gauge", "cluster_name, shard",
     "What it may come to (cluster.etcd_quota_bytes). Above 60 % what must be stored is refused.",
     of_leader<[](const cluster::MemberView& member) { return member.etcd_quota_bytes; }>},

    // ---- all jobs
    {"syncd_jobs", "gauge", "", "Jobs that are not stopped.",
     one<[](const All& all) { return all.snapshot.server.engine.jobs; }>},
    {"syncd_jobs_unreadable", "gauge", "",
     "Jobs of a cluster's store that this version cannot read: their workers are answered STORE.",
     one<[](const All& all) { return all.snapshot.server.engine.jobs_unreadable; }>},
    {"syncd_jobs_unexported", "gauge", "",
     "Jobs without series of their own, because there are too many.",
     one<[](const All& all) { return all.snapshot.server.jobs_left_out; }>},
    {"syncd_workers", "gauge", "", "Members of all jobs.",
     one<[](const All& all) { return all.snapshot.server.engine.workers; }>},
    {"syncd_pushes_total", "counter", "", "Pushes that counted or came late, of all jobs.",
     one<[](const All& all) { return all.snapshot.server.engine.pushes; }>},
    {"syncd_grants_total", "counter", "", "Iterations that were granted, of all jobs.",
     one<[](const All& all) { return all.snapshot.server.engine.grants; }>},

    // ---- each job
    {"syncd_job_info", "gauge", "job_name, policy, state",
     "Always 1; its labels say which policy the job runs and whether it is waiting, running or "
     "stopped.",
     [](const All& all, Samples& samples) {
       for (const JobFigures& job : all.snapshot.server.jobs) {
         samples.add(
             1, {{"job_name", job.name}, {"policy", job.policy}, {"state", to_string(job.state)}});
       }
     }},
    {"syncd_job_expected_workers", "gauge", "job_name", "Workers that the job is to have.",
     per_job<[](const JobFigures& job) { return job.expected; }>},
    {"syncd_job_members", "gauge", "job_name, state",
     "Workers that are registered, ready, running or draining.",
     [](const All& all, Samples& samples) {
       for (const JobFigures& job : all.snapshot.server.jobs) {
         for (std::size_t i = 0; i < job.members.size(); ++i) {
           samples.add(job.members[i],
                       {{"job_name", job.name}, {"state", to_string(static_cast<WorkerState>(i))}});
         }
       }
     }},
    {"syncd_job_waiting_workers", "gauge", "job_name", "Workers that wait for an answer now.",
     per_job<[](const JobFigures& job) { return job.waiting; }>},
    {"syncd_job_epoch", "gauge", "job_name", "The job's epoch.",
     per_job<[](const JobFigures& job) { return job.epoch; }>},
    {"syncd_job_clock_min", "gauge", "job_name",
     "Lowest clock of its active workers, in iterations.", clock_per_job<&JobFigures::clock_min>},
    {"syncd_job_clock_max", "gauge", "job_name",
     "Highest clock of its active workers, in iterations.", clock_per_job<&JobFigures::clock_max>},
    {"syncd_job_clock_lag", "gauge", "job_name",
     "Iterations between its fastest and its slowest worker, as its policy counts them.",
     clock_per_job<&JobFigures::lag>},
    {"syncd_job_pushes_total", "counter", "job_name", "Pushes that counted, of its whole life.",
     per_job<[](const JobFigures& job) { return job.pushes; }>},
    {"syncd_job_duplicate_pushes_total", "counter", "job_name",
     "Pushes that were sent again and had been counted.", count_per_job<&JobCounters::duplicates>},
    {"syncd_job_late_pushes_total", "counter", "job_name", "Pushes that came too late to count.",
     count_per_job<&JobCounters::late>},
    {"syncd_job_grants_total", "counter", "job_name", "Iterations that were granted.",
     count_per_job<&JobCounters::grants>},
    {"syncd_job_begin_wait_seconds", "histogram", "job_name",
     "How long a worker waited from its begin to the grant.",
     spans_per_job<&JobCounters::begin_wait>},
    {"syncd_job_barriers_total", "counter", "job_name",
     "Barriers that all its workers have passed.",
     per_job<[](const JobFigures& job) { return job.barriers; }>},
    {"syncd_job_barrier_wait_seconds", "histogram", "job_name",
     "How long a worker waited in a begin that ended with a barrier.",
     spans_per_job<&JobCounters::barrier_wait>},
    {"syncd_job_plan_error_seconds", "histogram", "job_name",
     "How far a barrier was from the moment that the plan had predicted, early or late "
     "(ElasticBSP).",
     spans_per_job<&JobCounters::plan_error>},
    {"syncd_job_resyncs_total", "counter", "job_name",
     "Times that a worker was advised to drop its work and pull again.",
     count_per_job<&JobCounters::resyncs>},
    {"syncd_job_restarts_total", "counter", "job_name", "Times that a worker followed such advice.",
     count_per_job<&JobCounters::restarts>},
    {"syncd_job_wasted_compute_seconds_total", "counter", "job_name",
     "Time that workers computed and dropped by it.",
     per_job<[](const JobFigures& job) { return seconds(job.counters.wasted_us); }>},
    {"syncd_job_joins_total", "counter", "job_name", "Workers that joined, also in a new life.",
     count_per_job<&JobCounters::joins>},
    {"syncd_job_reconnects_total", "counter", "job_name",
     "Workers that went on over a new connection.", count_per_job<&JobCounters::reconnects>},
    {"syncd_job_workers_left_total", "counter", "job_name", "Workers that left by themselves.",
     count_per_job<&JobCounters::left>},
    {"syncd_job_workers_lost_total", "counter", "job_name", "Workers that were given up.",
     count_per_job<&JobCounters::lost>},
    {"syncd_job_views_total", "counter", "job_name",
     "Views that were granted; under gather each round is one.",
     count_per_job<&JobCounters::views>},
    {"syncd_job_rounds_broken_total", "counter", "job_name, reason",
     "Rounds that broke, each by its first reason: a member was lost, failed, was preempted, left, "
     "restarted (began anew by itself), began anew for a newcomer, was excluded, or became a spare "
     "because MAX fell. Only under gather.",
     [](const All& all, Samples& samples) {
       for (const JobFigures& job : all.snapshot.server.jobs) {
         for (std::size_t i = 0; job.has_rounds && i < kRoundBreaks; ++i) {
           samples.add(job.counters.rounds_broken[i],
                       {{"job_name", job.name}, {"reason", to_string(static_cast<RoundBreak>(i))}});
         }
       }
     }},
    {"syncd_job_round_workers", "gauge", "job_name, state",
     "Workers that are in the round (in_round), or wait: for the next one, as a spare, or because "
     "their host is excluded. Only under gather.",
     [](const All& all, Samples& samples) {
       for (const JobFigures& job : all.snapshot.server.jobs) {
         for (std::size_t i = 0; job.has_rounds && i < kRoundParts; ++i) {
           samples.add(job.rounds.workers[i],
                       {{"job_name", job.name}, {"state", to_string(static_cast<RoundPart>(i))}});
         }
       }
     }},
    {"syncd_job_excluded_hosts", "gauge", "job_name",
     "Hosts that syncctl exclude keeps out of the job's rounds. Only under gather.",
     [](const All& all, Samples& samples) {
       for (const JobFigures& job : all.snapshot.server.jobs) {
         if (job.has_rounds) samples.add(job.rounds.excluded_hosts, {{"job_name", job.name}});
       }
     }},
    {"syncd_job_hangs_total", "counter", "job_name",
     "Hangs: workers waited for longer than the job's hang_after. Each counts once.",
     count_per_job<&JobCounters::hangs>},
    {"syncd_job_stragglers", "gauge", "job_name",
     "Workers that are slower than is usual for them, beside the others.",
     per_job<[](const JobFigures& job) { return job.stragglers; }>},
    {"syncd_job_stragglers_detected_total", "counter", "job_name",
     "Times that a worker has become such a one.", count_per_job<&JobCounters::stragglers>},
    {"syncd_job_computing_seconds_total", "counter", "job_name",
     "Time from grants to pushes, of workers that mark when they have computed to their marks.",
     per_job<[](const JobFigures& job) { return seconds(job.counters.computed_us); }>},
    {"syncd_job_exchange_seconds_total", "counter", "job_name",
     "Time from marks to pushes, of workers that mark when they have computed.",
     per_job<[](const JobFigures& job) { return seconds(job.counters.exchange_us); }>},
    {"syncd_job_checkpoints_total", "counter", "job_name, result",
     "Agreed checkpoints that ended: complete, or incomplete (given up).",
     [](const All& all, Samples& samples) {
       for (const JobFigures& job : all.snapshot.server.jobs) {
         samples.add(job.counters.checkpoints_complete,
                     {{"job_name", job.name}, {"result", "complete"}});
         samples.add(job.counters.checkpoints_incomplete,
                     {{"job_name", job.name}, {"result", "incomplete"}});
       }
     }},
    {"syncd_job_checkpoint_open", "gauge", "job_name",
     "Whether the job's workers are to save an agreed checkpoint now.",
     per_job<[](const JobFigures& job) { return job.checkpoint_open_us >= 0 ? 1 : 0; }>},
    {"syncd_job_checkpoint_timestamp_seconds", "gauge", "job_name",
     "When the job's latest agreed checkpoint was complete, in seconds since the Unix epoch; "
     "absent: never.",
     [](const All& all, Samples& samples) {
       for (const JobFigures& job : all.snapshot.server.jobs) {
         if (job.checkpoint_complete_us < 0) continue;
         samples.add(seconds(job.checkpoint_complete_us), {{"job_name", job.name}});
       }
     }},

    // ---- the process
    {"process_cpu_seconds_total", "counter", "", "Total user and system CPU time spent in seconds.",
     one<[](const All& all) { return all.process.cpu_s; }>},
    {"process_resident_memory_bytes", "gauge", "", "Resident memory size in bytes.",
     one<[](const All& all) { return all.process.resident_bytes; }>},
    {"process_virtual_memory_bytes", "gauge", "", "Virtual memory size in bytes.",
     one<[](const All& all) { return all.process.virtual_bytes; }>},
    {"process_open_fds", "gauge", "", "Number of open file descriptors.",
     one<[](const All& all) { return all.process.open_fds; }>},
    {"process_max_fds", "gauge", "", "Maximum number of open file descriptors.",
     one<[](const All& all) { return all.process.max_fds; }>},
    {"process_threads", "gauge", "", "Number of threads.",
     one<[](const All& all) { return all.process.threads; }>},
    {"process_start_time_seconds", "gauge", "",
     "Start time of the process since the Unix epoch in seconds.",
     one<[](const All& all) { return all.process.start_s; }>},
};

}  // namespace

std::string metrics_text(const Snapshot& snapshot, const ProcessFigures& process,
                         const AdminFigures& admin) {
  const All all{snapshot, process, admin};
  std::string out;
  out.reserve(16 * 1024 + snapshot.server.jobs.size() * 8 * 1024);
  for (const Metric& metric : kMetrics) {
    fmt::format_to(std::back_inserter(out), "# HELP {0} {1}\n# TYPE {0} {2}\n", metric.name,
                   metric.help, metric.type);
    Samples samples(out, metric.name);
    metric.write(all, samples);
  }
  return out;
}

std::vector<MetricDescription> metric_descriptions() {
  std::vector<MetricDescription> all;
  for (const Metric& metric : kMetrics) {
    all.push_back({metric.name, metric.type, metric.labels, metric.help});
  }
  return all;
}

}  // namespace syncd::admin
