// The table of settings; see the header.
#include "daemon/edge/config/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "daemon/core/topology/graph_spec.h"
#include "daemon/edge/config/value_types.h"
#include "proto/base/shard.h"

namespace syncd::config {
namespace {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;
constexpr std::int64_t kTiB = 1024 * 1024 * kMiB;
constexpr Micros kMs100 = 100'000;
constexpr Micros kMinutes10 = 600'000'000;
constexpr Micros kHour = 3'600'000'000;
constexpr Micros kLeaseMin = 2'000'000;  // etcd's own least
constexpr Micros kLeaseMax = 60'000'000;
constexpr Micros kYears10 = Micros{3650} * 24 * kHour;

constexpr const char* kPemFile = "the path of a PEM file, or \"off\"";

// What a path of members leads to: owner.first.second.
template <auto First, auto... Rest, class Owner>
auto& member(Owner& owner) {
  if constexpr (sizeof...(Rest) == 0) {
    return owner.*First;
  } else {
    return member<Rest...>(owner.*First);
  }
}

template <class Owner, auto... Path>
using ValueOf = std::remove_cvref_t<decltype(member<Path...>(std::declval<Owner&>()))>;

template <class Owner, auto... Path>
Row<Owner> row_of(const char* key, const Type<ValueOf<Owner, Path...>>& type, const char* help) {
  Row<Owner> row;
  row.key = key;
  row.help = help;
  row.allowed = type.allowed;
  row.read = [read = type.read](const RawValue& value, Owner& owner, std::string& why) {
    return read(value, member<Path...>(owner), why);
  };
  row.show = [show = type.show](const Owner& owner) { return show(member<Path...>(owner)); };
  row.copy = [](const Owner& from, Owner& to) { member<Path...>(to) = member<Path...>(from); };
  return row;
}

template <auto... Path>
Setting row(const char* key, const Type<ValueOf<Config, Path...>>& type, const char* help = "") {
  return row_of<Config, Path...>(key, type, help);
}
template <auto... Path>
Setting reloaded(const char* key, const Type<ValueOf<Config, Path...>>& type, const char* help) {
  return row_of<Config, Path...>(key, type, help).reloads();
}
// A limit that counts something.
template <auto... Path>
Setting limit(const char* key, std::int64_t low, std::int64_t high, const char* help = "",
              const char* zero = nullptr) {
  return reloaded<Path...>(key, number<ValueOf<Config, Path...>>(low, high, zero), help);
}
template <auto Member>
Setting of_new_jobs(const char* key, const Type<Micros>& type, const char* help) {
  return reloaded<&Config::engine, &EngineOptions::defaults, Member>(key, type, help);
}
template <auto Member>
JobSetting job_row(const char* key, const Type<ValueOf<JobSpec, Member>>& type) {
  return row_of<JobSpec, Member>(key, type, "");
}

std::vector<Setting> make_settings() {
  using net::AdmissionRules;
  using net::NetworkLimits;
  using tls::ServerSettings;
  using Cluster = Config::Cluster;
  return {
      row<&Config::tcp>("listen.tcp", tcp_addresses(), "Where workers connect over TCP")
          .with_flag("--tcp", "ADDR:PORT|off", true),
      row<&Config::unix_path>("listen.unix", socket_path(),
                              "The Unix socket for workers on this machine")
          .with_flag("--unix", "PATH|off"),
      row<&Config::unix_mode>("listen.unix_mode",
                              choice<unsigned>({{"0600", 0600}, {"0660", 0660}},
                                               "\"0600\" (this user) or \"0660\" (its group too)"),
                              "Who may use the Unix socket"),
      row<&Config::admin>(
          "listen.admin", tcp_address(),
          "Where syncd serves /metrics, /healthz, /readyz and /status over HTTP, read-only")
          .with_flag("--admin", "ADDR:PORT|off"),
      row<&Config::control>("listen.control", control_addresses(),
                            "The only place where jobs can be created, stopped and changed "
                            "(default: wherever workers connect)"),
      row<&Config::insecure>(
          "listen.insecure", boolean(),
          "Listen beyond localhost even without TLS or authentication: anyone there can connect")
          .with_flag("--insecure", nullptr),
      reloaded<&Config::engine, &EngineOptions::auto_create>(
          "listen.auto_create", boolean(),
          "Let a join create its job (default: true if only this machine can join and "
          "listen.control is off)"),

      reloaded<&Config::tls, &ServerSettings::certificate_file>(
          "tls.certificate", file_path(kPemFile),
          "The daemon's certificate, followed by the certificates that signed it. With it, "
          "listen.tcp accepts only TLS 1.3"),
      reloaded<&Config::tls, &ServerSettings::key_file>(
          "tls.key", file_path(kPemFile),
          "The certificate's private key. Only the daemon's user and group may be able to read it"),
      reloaded<&Config::tls, &ServerSettings::client_ca_file>(
          "tls.client_ca", file_path(kPemFile),
          "The authority that signs clients' certificates. With it, syncd asks clients for one"),
      reloaded<&Config::tls, &ServerSettings::require_client_certificate>(
          "tls.require_client_certificate", boolean(),
          "Refuse clients that show no certificate (default: true if tls.client_ca is set)"),

      reloaded<&Config::auth, &AdmissionRules::token_file>(
          "auth.token_file",
          file_path("the path of a file that only its owner and group can read, or \"off\""),
          "A file with one token a line, as \"[NAME] TOKEN\" or \"TOKEN\". Every client needs a "
          "token, except over the Unix socket: root, the daemon's own user, auth.unix_users and "
          "auth.unix_groups. SIGHUP reads the file again"),
      reloaded<&Config::auth, &AdmissionRules::unix_users>(
          "auth.unix_users", users(),
          "Users that need no token on the Unix socket, besides root and the daemon's own user"),
      reloaded<&Config::auth, &AdmissionRules::unix_groups>(
          "auth.unix_groups", groups(), "Groups whose users need no token on the Unix socket"),
      reloaded<&Config::auth, &AdmissionRules::allow>(
          "auth.allow", allow_rules(),
          "Which clients may use which jobs (default: all that are admitted may use all jobs)"),
      reloaded<&Config::auth, &AdmissionRules::admin>(
          "auth.admin", identities("a list of patterns of identities, as in \"token:ops\""),
          "Which clients may create, stop and change jobs, besides root and the daemon's own user "
          "on this machine (default: all that are admitted, unless auth.allow is set)"),
      reloaded<&Config::auth, &AdmissionRules::metrics>(
          "auth.metrics",
          identities("a list of patterns of identities, as in \"token:prometheus\""),
          "Which clients may read /metrics and /status of listen.admin, besides those of "
          "auth.admin (default: all that may change jobs)"),

      row<&Config::store_path>(
          "store.path",
          text("a directory whose parent exists, or \"memory\"",
               {.word = "memory", .may_be_empty = false, .is_path = true, .is_directory = true}),
          "Where syncd keeps the history")
          .with_flag("--store", "DIR|memory"),
      row<&Config::durable>(
          "store.mode",
          choice<bool>({{"durable", true}, {"fast", false}}, "\"durable\" or \"fast\""),
          "durable: a push is on disk before syncd acknowledges it. fast: it survives a crash of "
          "the daemon, but not of the machine")
          .with_flag("--mode", "durable|fast"),
      row<&Config::retention_us>("store.retention", span(0, kYears10, "for ever", "\"7d\""),
                                 "How long syncd keeps history. It removes what is older and lies "
                                 "before a job's latest snapshot, and jobs that ended longer ago"),
      row<&Config::retention_bytes>(
          "store.retention_bytes", number<std::uint64_t>(0, kTiB, "any number"),
          "Bytes of history, uncompressed, that syncd keeps of each job. It removes the oldest "
          "first, but nothing after the job's latest snapshot"),

      row<&Config::cluster, &Cluster::name>(
          "cluster.name", text("1 to 64 of A-Z a-z 0-9 . _ -, or \"\"", {.is_name = true}),
          "The cluster that this daemon is a member of; `syncctl cluster init` sets it up"),
      row<&Config::cluster, &Cluster::member>(
          "cluster.member", text("1 to 64 of A-Z a-z 0-9 . _ -, or \"\"", {.is_name = true}),
          "This member's name, which no other member has (default: the host's name)"),
      row<&Config::cluster, &Cluster::etcd>(
          "cluster.etcd", etcd_endpoints(),
          "etcd's endpoints, as in [\"https://etcd-1:2379\", \"https://etcd-2:2379\"]"),
      row<&Config::cluster, &Cluster::ca_file>(
          "cluster.ca", file_path(kPemFile),
          "The authority that signs etcd's certificates (default: the system's)"),
      row<&Config::cluster, &Cluster::certificate_file>("cluster.certificate", file_path(kPemFile),
                                                        "The certificate that etcd knows syncd by"),
      row<&Config::cluster, &Cluster::key_file>("cluster.key", file_path(kPemFile),
                                                "That certificate's private key"),
      row<&Config::cluster, &Cluster::user>("cluster.user", text("a user of etcd, or \"\""),
                                            "The user of etcd, where etcd asks for one"),
      row<&Config::cluster, &Cluster::password_file>(
          "cluster.password_file", file_path("the path of a file, or \"off\""),
          "A file with that user's password. Only its owner and group may be able to read it"),
      row<&Config::cluster, &Cluster::lease_us>(
          "cluster.lease", span(kLeaseMin, kLeaseMax),
          "How long the cluster waits for a leader that is not heard; workers wait no longer"),
      row<&Config::cluster, &Cluster::old_etcd>("cluster.etcd_old", boolean(), "Accept etcd 3.4"),
      row<&Config::cluster, &Cluster::etcd_quota_bytes>(
          "cluster.etcd_quota_bytes", number<std::uint64_t>(64 * kMiB, kTiB),
          "What etcd's database may come to, as etcd's --quota-backend-bytes says. Above 60 % of "
          "it "
          "pushes are refused, because a full etcd takes nothing, not even what makes room"),
      row<&Config::cluster, &Cluster::shard>(
          "cluster.shard", number<std::uint32_t>(0, kShardsMax - 1),
          "The shard that this process is for, of a cluster whose jobs are spread over several. It "
          "is added to the ports of listen.tcp, listen.admin, listen.control and "
          "cluster.advertise; and if it is not 0, store.path and the paths of sockets end with "
          "it, as in \"store.3\", and log.file as in \"log-shard3\""),
      row<&Config::cluster, &Cluster::advertised>(
          "cluster.advertise", reachable_addresses(),
          "How clients reach this member, where that is not as listen.tcp says"),

      limit<&Config::network, &NetworkLimits::connections_max>(
          "limits.connections_max", 1, limits::kConnectionsMax, "Connections at the same time"),
      limit<&Config::network, &NetworkLimits::connections_per_machine_max>(
          "limits.connections_per_machine_max", 1, limits::kConnectionsMax,
          "Connections from one IPv4 address, or from one /64 of IPv6"),
      limit<&Config::network, &NetworkLimits::handshakes_per_machine_per_s>(
          "limits.handshakes_per_machine_per_s", 0, 100'000,
          "TLS handshakes that one machine may begin each second. It may begin five seconds' worth "
          "at once. Each costs the daemon about a millisecond",
          "any number"),
      limit<&Config::network, &NetworkLimits::connections_per_identity_max>(
          "limits.connections_per_identity_max", 1, limits::kConnectionsMax,
          "Connections of one client, told by its certificate, token or user"),
      limit<&Config::jobs_per_identity_max>(
          "limits.jobs_per_identity_max", 1, limits::kJobsMax,
          "Live jobs that one client has created since the daemon started"),
      limit<&Config::engine, &EngineOptions::workers_per_job_max>(
          "limits.workers_per_job_max", 1, limits::kWorkersPerJobMax,
          "Members of one job at the same time. While syncd starts or ends a job, it serves no "
          "other client for about a microsecond per member"),
      limit<&Config::engine, &EngineOptions::graph_edges_max>(
          "limits.graph_edges_max", 1, topology::kEdgesMax,
          "Edges of a decentralized job's graph, for graphs in which a worker may talk to many "
          "(complete, clustered, file:). A graph file may have 16 bytes per edge. While syncd "
          "builds the graph, it serves no other client for about 0.1 microseconds per edge"),

      row<&Config::connection, &net::ConnectionLimits::idle_timeout_ms>(
          "timeouts.heartbeat_timeout", span_ms(kMs100, kHour),
          "syncd closes a connection after receiving nothing on it for this long"),
      reloaded<&Config::shutdown_timeout_us>("timeouts.shutdown_timeout", span(kMs100, kMinutes10),
                                             "How long a clean stop may take"),
      row<&Config::exit_when_idle_us>(
          "timeouts.exit_when_idle", span(0, kYears10, "never", "\"60s\""),
          "syncd stops cleanly after having had no connection for this long")
          .with_flag("--exit-when-idle", "SPAN"),
      of_new_jobs<&JobSpec::start_timeout_us>(
          "timeouts.start_timeout", job_span(),
          "How long a job waits after its first worker is ready. After that, min_workers are "
          "enough to start it"),
      of_new_jobs<&JobSpec::worker_grace_us>(
          "timeouts.worker_grace", job_span(),
          "How long syncd keeps the place of a worker that it no longer hears"),
      of_new_jobs<&JobSpec::exit_grace_us>(
          "timeouts.exit_grace", exit_grace(),
          "How long syncd keeps a worker's place after the other side closed its connection. If "
          "more than a quarter of a job's connections (at least 3) close within a second, "
          "worker_grace holds for them"),
      of_new_jobs<&JobSpec::warn_after_us>(
          "timeouts.warn_after", lateness(),
          "How long one iteration may take before the log names the worker"),
      of_new_jobs<&JobSpec::evict_after_us>(
          "timeouts.evict_after", lateness(),
          "How long one iteration may take before syncd counts the worker as lost"),

      reloaded<&Config::log_level>(
          "log.level",
          choice<LogLevel>({{"debug", LogLevel::kDebug},
                            {"info", LogLevel::kInfo},
                            {"warn", LogLevel::kWarn},
                            {"error", LogLevel::kError}},
                           "\"debug\", \"info\", \"warn\" or \"error\""),
          "The least important lines that syncd writes. It always writes `audit` lines")
          .with_flag("--log-level", "debug|info|warn|error"),
      row<&Config::log_file>(
          "log.file", text("a path, or \"stderr\"", {.none = "stderr", .may_be_empty = false}),
          "The file to which syncd appends its log")
          .with_flag("--log-file", "PATH|stderr"),
  };
}

std::vector<JobSetting> make_job_settings() {
  return {
      job_row<&JobSpec::name>("name", text("1 to 64 of A-Z a-z 0-9 . _ -")),
      job_row<&JobSpec::policy>("policy", text("a policy such as \"bsp\", \"asp\" or \"ssp:3\"")),
      job_row<&JobSpec::expected_workers>("expected_workers",
                                          number<std::uint32_t>(1, limits::kWorkersPerJobMax)),
      job_row<&JobSpec::min_workers>(
          "min_workers", number<std::uint32_t>(0, limits::kWorkersPerJobMax,
                                               "never start with fewer", "expected_workers")),
      job_row<&JobSpec::start_timeout_us>("start_timeout", job_span()),
      job_row<&JobSpec::worker_grace_us>("worker_grace", job_span()),
      job_row<&JobSpec::warn_after_us>("warn_after", lateness()),
      job_row<&JobSpec::evict_after_us>("evict_after", lateness()),
      job_row<&JobSpec::exit_grace_us>("exit_grace", exit_grace()),
      job_row<&JobSpec::stops_on_failure>(
          "on_failure",
          choice<bool>({{"continue", false}, {"stop", true}}, "\"continue\" or \"stop\"")),
      job_row<&JobSpec::hang_after_us>("hang_after", lateness()),
      job_row<&JobSpec::inspect_on_hang>("inspect_on_hang", boolean()),
      job_row<&JobSpec::checkpoint_every>("checkpoint_every",
                                          number<Iteration>(0, limits::kIterationMax, "never")),
      job_row<&JobSpec::checkpoint_timeout_us>("checkpoint_timeout", job_span()),
  };
}

std::vector<Setting> make_test_limits() {
  using net::ConnectionLimits;
  return {
      limit<&Config::network, &net::NetworkLimits::unintroduced_max>("limits.unintroduced_max", 1,
                                                                     limits::kConnectionsMax),
      limit<&Config::network, &net::NetworkLimits::outbound_bytes_max>(
          "limits.outbound_bytes_max", 128 * kKiB, limits::kOutboundBytesMax),
      limit<&Config::store_queue_records_max>("limits.store_queue_records_max", 1000,
                                              limits::kStoreQueueRecordsMax),
      limit<&Config::store_queue_bytes_max>("limits.store_queue_bytes_max", kMiB,
                                            limits::kStoreQueueBytesMax),
      limit<&Config::engine, &EngineOptions::snapshot_every_records>(
          "limits.snapshot_every_records", 100, 10'000'000),
      row<&Config::connection, &ConnectionLimits::handshake_timeout_ms>(
          "timeouts.handshake_timeout", span_ms(kMs100, kMinutes10)),
      row<&Config::connection, &ConnectionLimits::write_timeout_ms>("timeouts.write_timeout",
                                                                    span_ms(kMs100, kHour)),
  };
}

const Setting* find(const std::vector<Setting>& rows, std::string_view key) {
  const auto found = std::ranges::find(rows, key, &Setting::key);
  return found != rows.end() ? &*found : nullptr;
}

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = make_settings();
  return all;
}

const std::vector<JobSetting>& job_settings() {
  static const std::vector<JobSetting> all = make_job_settings();
  return all;
}

const std::vector<Setting>& test_limits() {
  static const std::vector<Setting> all = make_test_limits();
  return all;
}

const Setting* find_setting(std::string_view key) {
  return find(settings(), key);
}

const Setting* find_test_limit(std::string_view key) {
  return find(test_limits(), key);
}

std::string environment_name(std::string_view key) {
  std::string name = fmt::format("SYNCD_{}", key);
  std::ranges::transform(name, name.begin(), [](char c) {
    return c == '.' ? '_' : static_cast<char>(std::toupper(c));
  });
  return name;
}

}  // namespace syncd::config
