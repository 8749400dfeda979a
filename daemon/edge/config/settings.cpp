// The table of settings; see the header.
#include "daemon/edge/config/settings.h"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "daemon/core/topology/graph_spec.h"
#include "daemon/edge/config/duration.h"

namespace syncd::config {
namespace {

constexpr std::size_t kPathBytesMax = 107;  // of a sockaddr_un

// ---- reading values -----------------------------------------------------------------------------

bool read_text(const RawValue& value, std::string& out) {
  if (value.kind != RawValue::Kind::kText) return false;
  out = value.text;
  return true;
}

bool read_boolean(const RawValue& value, bool& out) {
  if (value.kind == RawValue::Kind::kBoolean) {
    out = value.boolean;
    return true;
  }
  if (value.typed || (value.text != "true" && value.text != "false")) return false;
  out = value.text == "true";
  return true;
}

bool read_integer(const RawValue& value, std::int64_t low, std::int64_t high, std::int64_t& out) {
  std::int64_t number = value.integer;
  if (value.kind != RawValue::Kind::kInteger) {
    if (value.typed || value.kind != RawValue::Kind::kText) return false;
    const char* end = value.text.data() + value.text.size();
    const auto [stop, code] = std::from_chars(value.text.data(), end, number);
    if (code != std::errc{} || stop != end) return false;
  }
  if (number < low || number > high) return false;
  out = number;
  return true;
}

template <class T>
bool read_size(const RawValue& value, std::int64_t low, std::int64_t high, T& out) {
  std::int64_t number = 0;
  if (!read_integer(value, low, high, number)) return false;
  out = static_cast<T>(number);
  return true;
}

bool read_span(const RawValue& value, Micros low, Micros high, Micros& out, std::string& why) {
  if (value.kind == RawValue::Kind::kInteger) {
    why = "a duration needs a unit";
    return false;
  }
  Micros span = 0;
  if (value.kind != RawValue::Kind::kText || !parse_duration(value.text, span)) return false;
  if (span < low || span > high) return false;
  out = span;
  return true;
}

bool is_off(const std::string& text) {
  return text.empty() || text == "off";
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  while (at <= text.size()) {
    std::size_t comma = text.find(',', at);
    if (comma == std::string::npos) comma = text.size();
    std::string part = text.substr(at, comma - at);
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    parts.push_back(std::move(part));
    at = comma + 1;
  }
  return parts;
}

bool read_list(const RawValue& value, std::vector<std::string>& out) {
  if (value.kind == RawValue::Kind::kList) {
    out = value.list;
  } else if (value.kind != RawValue::Kind::kText) {
    return false;
  } else if (is_off(value.text)) {
    out.clear();
  } else {
    out = value.typed ? std::vector<std::string>{value.text} : split(value.text);
  }
  return true;
}

bool read_tcp(const RawValue& value, Config& config, std::string& why) {
  std::vector<std::string> texts;
  if (!read_list(value, texts)) return false;
  std::vector<net::TcpAddress> addresses;
  for (const std::string& text : texts) {
    net::TcpAddress address;
    if (!net::parse_tcp_address(text, address, why)) return false;
    addresses.push_back(std::move(address));
  }
  config.tcp = std::move(addresses);
  return true;
}

// Clients and tools run in other directories, and are told these paths.
std::string absolute(const std::string& path) {
  std::error_code code;
  const std::filesystem::path full = std::filesystem::absolute(path, code);
  return code ? path : full.lexically_normal().string();
}

bool read_unix(const RawValue& value, Config& config, std::string& why) {
  std::string text;
  if (!read_text(value, text)) return false;
  if (is_off(text)) {
    config.unix_path.clear();
    return true;
  }
  text = absolute(text);
  if (text.size() > kPathBytesMax) {
    why = "a Unix socket's path has at most " + std::to_string(kPathBytesMax) +
          " bytes, this has " + std::to_string(text.size());
    return false;
  }
  config.unix_path = std::move(text);
  return true;
}

bool read_http(const RawValue& value, Config& config, std::string& why) {
  std::string text;
  if (!read_text(value, text)) return false;
  std::optional<net::TcpAddress> address;
  if (!is_off(text) && !net::parse_tcp_address(text, address.emplace(), why)) return false;
  config.admin = std::move(address);
  config.admin_is_default = false;
  return true;
}

bool read_control(const RawValue& value, Config& config, std::string& why) {
  std::vector<std::string> texts;
  if (!read_list(value, texts)) return false;
  std::vector<net::TcpAddress> addresses;
  std::string path;
  for (const std::string& text : texts) {
    if (text.starts_with('/')) {
      if (!path.empty()) {
        why = "one Unix socket is enough";
        return false;
      }
      path = text;
      if (path.size() <= kPathBytesMax) continue;
      why = "a Unix socket's path has at most " + std::to_string(kPathBytesMax) + " bytes";
      return false;
    }
    if (!net::parse_tcp_address(text, addresses.emplace_back(), why)) return false;
  }
  config.control_tcp = std::move(addresses);
  config.control_unix_path = std::move(path);
  return true;
}

template <auto Field>
bool read_path(const RawValue& value, Config& config, std::string&) {
  std::string text;
  if (!read_text(value, text)) return false;
  config.tls.*Field = is_off(text) ? std::string{} : absolute(text);
  return true;
}

// A number, or what the system knows by this name.
template <class Id, class Find>
bool read_ids(const RawValue& value, std::vector<Id>& ids, const char* what, Find find,
              std::string& why) {
  std::vector<std::string> texts;
  if (!read_list(value, texts)) return false;
  std::vector<Id> found;
  for (const std::string& text : texts) {
    Id id = 0;
    const char* end = text.data() + text.size();
    const auto [stop, code] = std::from_chars(text.data(), end, id);
    if ((code != std::errc{} || stop != end) && !find(text.c_str(), id)) {
      why = "there is no " + std::string(what) + " '" + text + "' on this machine";
      return false;
    }
    found.push_back(id);
  }
  ids = std::move(found);
  return true;
}

bool read_users(const RawValue& value, Config& config, std::string& why) {
  const auto find = [](const char* name, uid_t& id) {
    const passwd* found = getpwnam(name);
    if (found != nullptr) id = found->pw_uid;
    return found != nullptr;
  };
  return read_ids(value, config.auth.unix_users, "user", find, why);
}

bool read_groups(const RawValue& value, Config& config, std::string& why) {
  const auto find = [](const char* name, gid_t& id) {
    const group* found = getgrnam(name);
    if (found != nullptr) id = found->gr_gid;
    return found != nullptr;
  };
  return read_ids(value, config.auth.unix_groups, "group", find, why);
}

bool is_identity_pattern(const std::string& text, std::string& why) {
  for (const char* kind : {"cert:", "cert-sha256:", "token:", "uid:", "gid:"}) {
    if (text.starts_with(kind) && text.size() > std::strlen(kind)) return true;
  }
  if (text == "*" || text == "token") return true;
  why = "'" + text + "' is no identity";
  return false;
}

bool read_allow(const RawValue& value, Config& config, std::string& why) {
  std::vector<std::string> texts;
  if (!read_list(value, texts)) return false;
  std::vector<net::AdmissionRules::Allow> rules;
  for (const std::string& text : texts) {
    const std::size_t blank = text.find(' ');
    const std::size_t job = text.find_first_not_of(' ', blank);
    if (blank == std::string::npos || job == std::string::npos ||
        text.find(' ', job) != std::string::npos) {
      why = "'" + text + "' is not an identity, a blank and a job";
      return false;
    }
    rules.push_back({text.substr(0, blank), text.substr(job)});
    if (!is_identity_pattern(rules.back().who, why)) return false;
  }
  config.auth.allow = std::move(rules);
  return true;
}

template <auto Field>
bool read_identities(const RawValue& value, Config& config, std::string& why) {
  std::vector<std::string> texts;
  if (!read_list(value, texts)) return false;
  for (const std::string& text : texts) {
    if (!is_identity_pattern(text, why)) return false;
  }
  config.auth.*Field = std::move(texts);
  return true;
}

bool read_unix_mode(const RawValue& value, Config& config, std::string&) {
  std::string text;
  if (!read_text(value, text) || (text != "0600" && text != "0660")) return false;
  config.unix_mode = text == "0600" ? 0600 : 0660;
  return true;
}

bool read_store_path(const RawValue& value, Config& config, std::string&) {
  std::string text;
  if (!read_text(value, text) || text.empty()) return false;
  config.store_path = text == "memory" ? text : absolute(text);
  // Neighbours are named by what is added to it.
  while (config.store_path.size() > 1 && config.store_path.ends_with('/')) {
    config.store_path.pop_back();
  }
  config.store_path_is_default = false;
  return true;
}

bool read_store_mode(const RawValue& value, Config& config, std::string&) {
  std::string text;
  if (!read_text(value, text) || (text != "durable" && text != "fast")) return false;
  config.durable = text == "durable";
  return true;
}

bool read_log_level(const RawValue& value, Config& config, std::string&) {
  std::string text;
  if (!read_text(value, text)) return false;
  for (const LogLevel level : kLogLevels) {
    if (text != to_string(level)) continue;
    config.log_level = level;
    return true;
  }
  return false;
}

bool read_log_file(const RawValue& value, Config& config, std::string&) {
  std::string text;
  if (!read_text(value, text) || text.empty()) return false;
  config.log_file = text == "stderr" ? std::string{} : text;
  return true;
}

template <Micros Config::*Field, Micros Low, Micros High>
bool read_timeout(const RawValue& value, Config& config, std::string& why) {
  return read_span(value, Low, High, config.*Field, why);
}
template <Micros JobSpec::*Field>
bool read_default_threshold(const RawValue& value, Config& config, std::string& why) {
  return read_span(value, 0, limits::kSpanMax, config.job_defaults.*Field, why);
}
template <Micros JobSpec::*Field>
bool read_threshold(const RawValue& value, JobSpec& job, std::string& why) {
  return read_span(value, 0, limits::kSpanMax, job.*Field, why);
}
// A threshold of lateness may be left to the daemon.
bool read_lateness(const RawValue& value, Micros& out, std::string& why) {
  if (value.kind == RawValue::Kind::kText && value.text == "auto") {
    out = kAutoSpan;
    return true;
  }
  return read_span(value, 0, limits::kSpanMax, out, why);
}
template <Micros JobSpec::*Field>
bool read_default_lateness(const RawValue& value, Config& config, std::string& why) {
  return read_lateness(value, config.job_defaults.*Field, why);
}
template <Micros JobSpec::*Field>
bool read_job_lateness(const RawValue& value, JobSpec& job, std::string& why) {
  return read_lateness(value, job.*Field, why);
}
template <auto Field, std::int64_t Low, std::int64_t High>
bool read_limit(const RawValue& value, Config& config, std::string&) {
  return read_size(value, Low, High, config.*Field);
}

// ---- showing values -----------------------------------------------------------------------------

std::string show_list(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + toml_string(item);
  return "[" + text + "]";
}
template <class Id>
std::string show_ids(const std::vector<Id>& ids) {
  std::vector<std::string> texts;
  for (const Id id : ids) texts.push_back(std::to_string(id));
  return show_list(texts);
}

std::string show_path(const std::string& path) {
  return toml_string(path.empty() ? "off" : path);
}

std::string show_tcp(const Config& config) {
  if (config.tcp.empty()) return "\"off\"";
  std::string text;
  for (const net::TcpAddress& address : config.tcp) {
    text += (text.empty() ? "" : ", ") + toml_string(address.text());
  }
  return config.tcp.size() == 1 ? text : "[" + text + "]";
}
std::string show_control(const Config& config) {
  std::vector<std::string> texts;
  if (!config.control_unix_path.empty()) texts.push_back(config.control_unix_path);
  for (const net::TcpAddress& address : config.control_tcp) texts.push_back(address.text());
  if (texts.empty()) return "\"off\"";
  return texts.size() == 1 ? toml_string(texts[0]) : show_list(texts);
}
template <Micros Config::*Field>
std::string show_timeout(const Config& config) {
  return toml_string(show_duration(config.*Field));
}
template <Micros JobSpec::*Field>
std::string show_threshold(const JobSpec& job) {
  const Micros span = job.*Field;
  return toml_string(span == kAutoSpan ? "auto" : show_duration(span));
}
template <Micros JobSpec::*Field>
std::string show_default_threshold(const Config& config) {
  return show_threshold<Field>(config.job_defaults);
}
template <auto Field>
std::string show_number(const Config& config) {
  return std::to_string(config.*Field);
}
std::string show_boolean(bool value) {
  return value ? "true" : "false";
}

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;
constexpr std::int64_t kTiB = 1024 * 1024 * kMiB;
constexpr Micros kMs100 = 100'000;
constexpr Micros kYears10 = Micros{3650} * 24 * 3600 * 1'000'000;
constexpr Micros kMinutes10 = 600'000'000;
constexpr Micros kHour = 3'600'000'000;
constexpr const char* kSpanText = "a duration from 0s to 30d, such as \"500ms\" or \"10s\"";
constexpr const char* kPemText = "the path of a PEM file, or \"off\"";
constexpr const char* kLatenessText =
    "\"auto\" (by the worker's own latest iterations), or a duration from 0s (never) to 30d, such "
    "as "
    "\"90s\" or \"10m\"";

std::vector<Setting> make_settings() {
  return {
      {"listen.tcp", "--tcp", "HOST:PORT, several of them, or \"off\"; port 0 takes any free one",
       "where workers connect over TCP", read_tcp, show_tcp},
      {"listen.unix", "--unix", "a path of at most 107 bytes, or \"off\"",
       "the Unix socket for workers on this machine", read_unix,
       [](const Config& c) { return toml_string(c.unix_path.empty() ? "off" : c.unix_path); }},
      {"listen.unix_mode", nullptr, "\"0600\" (this user) or \"0660\" (its group too)",
       "who may use the Unix socket", read_unix_mode,
       [](const Config& c) { return toml_string(c.unix_mode == 0600 ? "0600" : "0660"); }},
      {"listen.admin", "--admin", "HOST:PORT or \"off\"; port 0 takes any free one",
       "where /metrics, /healthz, /readyz and /status are served over HTTP, to read only",
       read_http, [](const Config& c) { return toml_string(c.admin ? c.admin->text() : "off"); }},
      {"listen.control", nullptr, "a Unix socket's absolute path, HOST:PORT, both, or \"off\"",
       "where alone jobs can be created, stopped and changed (default: wherever workers connect)",
       read_control, show_control},
      {"listen.insecure", "--insecure", "true or false",
       "listen beyond localhost although anybody may then connect",
       [](const RawValue& v, Config& c, std::string&) { return read_boolean(v, c.insecure); },
       [](const Config& c) { return show_boolean(c.insecure); }},
      {"listen.auto_create", nullptr, "true or false",
       "let a join create its job (default: if only this machine can join and listen.control is "
       "off)",
       [](const RawValue& v, Config& c, std::string&) { return read_boolean(v, c.auto_create); },
       [](const Config& c) { return show_boolean(c.auto_create); }},

      {"tls.certificate", nullptr, kPemText,
       "the daemon's certificate, then what signed it; with it, listen.tcp speaks TLS 1.3 alone",
       read_path<&tls::ServerSettings::certificate_file>,
       [](const Config& c) { return show_path(c.tls.certificate_file); }},
      {"tls.key", nullptr, kPemText, "its private key, which nobody else may read",
       read_path<&tls::ServerSettings::key_file>,
       [](const Config& c) { return show_path(c.tls.key_file); }},
      {"tls.client_ca", nullptr, kPemText,
       "who signs the certificates of clients; with it, clients are asked for one",
       read_path<&tls::ServerSettings::client_ca_file>,
       [](const Config& c) { return show_path(c.tls.client_ca_file); }},
      {"tls.require_client_certificate", nullptr, "true or false",
       "refuse clients that show none (default: if tls.client_ca is set)",
       [](const RawValue& v, Config& c, std::string&) {
         return read_boolean(v, c.tls.require_client_certificate);
       },
       [](const Config& c) { return show_boolean(c.tls.require_client_certificate); }},

      {"auth.token_file", nullptr,
       "the path of a file that only its owner and group can read, or \"off\"",
       "tokens, one a line, \"[NAME] TOKEN\" or \"TOKEN\", of which every client needs one, but "
       "those "
       "that the Unix socket knows (root, the daemon's own user, auth.unix_users and "
       "auth.unix_groups); SIGHUP reads it again",
       [](const RawValue& v, Config& c, std::string&) {
         std::string text;
         if (!read_text(v, text)) return false;
         c.auth.token_file = is_off(text) ? std::string{} : absolute(text);
         return true;
       },
       [](const Config& c) { return show_path(c.auth.token_file); }},
      {"auth.unix_users", nullptr, "a list of users, by name or number, as in [\"1000\", \"ops\"]",
       "who may use the Unix socket without a token, beside root and the daemon's own user",
       read_users, [](const Config& c) { return show_ids(c.auth.unix_users); }},
      {"auth.unix_groups", nullptr,
       "a list of groups, by name or number, as in [\"998\", \"syncd\"]",
       "the same by a group that the user is in", read_groups,
       [](const Config& c) { return show_ids(c.auth.unix_groups); }},
      {"auth.allow", nullptr,
       "a list of \"IDENTITY JOB\", both patterns of *, ? and [...], as in \"cert:*.a.example "
       "a-*\"; "
       "identities are cert:NAME (a DNS name, e-mail address or URI of the certificate), "
       "cert-sha256:DIGEST (of one without any, in hexadecimal), token:NAME, token, uid:N and "
       "gid:N",
       "who may use which jobs (default: whoever is admitted, all)", read_allow,
       [](const Config& c) {
         std::vector<std::string> texts;
         for (const auto& rule : c.auth.allow) texts.push_back(rule.who + " " + rule.job);
         return show_list(texts);
       }},
      {"auth.admin", nullptr, "a list of patterns of identities, as in \"token:ops\"",
       "who may create, stop and change jobs, beside root and the daemon's own user on this "
       "machine "
       "(default: whoever is admitted, unless auth.allow is set)",
       read_identities<&net::AdmissionRules::admin>,
       [](const Config& c) { return show_list(c.auth.admin); }},
      {"auth.metrics", nullptr, "a list of patterns of identities, as in \"token:prometheus\"",
       "who, beside auth.admin, may read /metrics and /status of listen.admin "
       "(default: whoever may change jobs)",
       read_identities<&net::AdmissionRules::metrics>,
       [](const Config& c) { return show_list(c.auth.metrics); }},

      {"store.path", "--store", "a directory whose parent exists, or \"memory\"",
       "where the history is kept", read_store_path,
       [](const Config& c) { return toml_string(c.store_path); }},
      {"store.mode", "--mode", "\"durable\" or \"fast\"",
       "durable: a push is on disk before it is acknowledged; fast: it survives a crash of the "
       "daemon, not of the machine",
       read_store_mode,
       [](const Config& c) { return toml_string(c.durable ? "durable" : "fast"); }},
      {"store.retention", nullptr, "a duration from 0s (for ever) to 3650d, such as \"7d\"",
       "how long history is kept: what is older and before a job's latest snapshot is removed, and "
       "jobs that ended so long ago are",
       read_timeout<&Config::retention_us, 0, kYears10>, show_timeout<&Config::retention_us>},
      {"store.retention_bytes", nullptr, "0 (any number) to 1099511627776",
       "bytes of each job's history that are kept, uncompressed: the oldest go first, never those "
       "after its latest snapshot",
       read_limit<&Config::retention_bytes, 0, kTiB>, show_number<&Config::retention_bytes>},

      {"limits.connections_max", nullptr, "1 to 16384", "connections at once",
       read_limit<&Config::connections_max, 1, limits::kConnectionsMax>,
       show_number<&Config::connections_max>},
      {"limits.connections_per_machine_max", nullptr, "1 to 16384",
       "of them from one IPv4 address, or one /64 of IPv6",
       read_limit<&Config::connections_per_machine_max, 1, limits::kConnectionsMax>,
       show_number<&Config::connections_per_machine_max>},
      {"limits.handshakes_per_machine_per_s", nullptr, "0 (any number) to 100000",
       "TLS handshakes that one such machine may begin each second, and five seconds' worth at "
       "once; each costs the daemon about a millisecond",
       read_limit<&Config::handshakes_per_machine_per_s, 0, 100'000>,
       show_number<&Config::handshakes_per_machine_per_s>},
      {"limits.connections_per_identity_max", nullptr, "1 to 16384",
       "of them of one client by certificate, token or user",
       read_limit<&Config::connections_per_identity_max, 1, limits::kConnectionsMax>,
       show_number<&Config::connections_per_identity_max>},
      {"limits.jobs_per_identity_max", nullptr, "1 to 10000",
       "jobs that one such client has made since the daemon's start and that go on",
       read_limit<&Config::jobs_per_identity_max, 1, limits::kJobsMax>,
       show_number<&Config::jobs_per_identity_max>},
      {"limits.workers_per_job_max", nullptr, "1 to 1000000",
       "members of one job at once; while the daemon starts or ends a job, it serves no other "
       "client "
       "for about a microsecond per member",
       read_limit<&Config::workers_per_job_max, 1, limits::kWorkersPerJobMax>,
       show_number<&Config::workers_per_job_max>},
      {"limits.graph_edges_max", nullptr, "1 to 16777216",
       "edges of a decentralized job's graph where a worker may talk to many (complete, clustered, "
       "file:), and a sixteenth of the bytes of such a file; while the daemon makes the graph "
       "anew, "
       "it serves no other client for about 0.1 microseconds per edge",
       read_limit<&Config::graph_edges_max, 1, topology::kEdgesMax>,
       show_number<&Config::graph_edges_max>},
      {"limits.unintroduced_max", nullptr, "1 to 16384",
       "connections that have not said who they are; beyond it the oldest of these makes room",
       read_limit<&Config::unintroduced_max, 1, limits::kConnectionsMax>,
       show_number<&Config::unintroduced_max>},
      {"limits.outbound_bytes_max", nullptr, "131072 to 4194304",
       "bytes that may wait for one slow client before it is disconnected",
       read_limit<&Config::outbound_bytes_max, 128 * kKiB, limits::kOutboundBytesMax>,
       show_number<&Config::outbound_bytes_max>},
      {"limits.store_queue_records_max", nullptr, "1000 to 1000000",
       "records that may wait for the disk before pushes are refused",
       read_limit<&Config::store_queue_records_max, 1000, limits::kStoreQueueRecordsMax>,
       show_number<&Config::store_queue_records_max>},
      {"limits.store_queue_bytes_max", nullptr, "1048576 to 268435456", "their bytes, likewise",
       read_limit<&Config::store_queue_bytes_max, kMiB, limits::kStoreQueueBytesMax>,
       show_number<&Config::store_queue_bytes_max>},
      {"limits.snapshot_every_records", nullptr, "100 to 10000000",
       "records of a job between two snapshots, which bound the work of a restart",
       read_limit<&Config::snapshot_every_records, 100, 10'000'000>,
       show_number<&Config::snapshot_every_records>},

      {"timeouts.handshake_timeout", nullptr, "a duration from 100ms to 10m",
       "for a new connection to introduce itself",
       read_timeout<&Config::handshake_timeout_us, kMs100, kMinutes10>,
       show_timeout<&Config::handshake_timeout_us>},
      {"timeouts.heartbeat_timeout", nullptr, "a duration from 100ms to 1h",
       "a connection from which nothing came for so long is closed",
       read_timeout<&Config::heartbeat_timeout_us, kMs100, kHour>,
       show_timeout<&Config::heartbeat_timeout_us>},
      {"timeouts.write_timeout", nullptr, "a duration from 100ms to 1h",
       "a client that takes nothing of what waits for it for so long is disconnected",
       read_timeout<&Config::write_timeout_us, kMs100, kHour>,
       show_timeout<&Config::write_timeout_us>},
      {"timeouts.shutdown_timeout", nullptr, "a duration from 100ms to 10m",
       "for a stop in good order", read_timeout<&Config::shutdown_timeout_us, kMs100, kMinutes10>,
       show_timeout<&Config::shutdown_timeout_us>},
      {"timeouts.start_timeout", nullptr, kSpanText,
       "of a job, from its first worker's being ready, until min_workers are enough",
       read_default_threshold<&JobSpec::start_timeout_us>,
       show_default_threshold<&JobSpec::start_timeout_us>},
      {"timeouts.worker_grace", nullptr, kSpanText,
       "how long a dropped connection keeps a worker's place",
       read_default_threshold<&JobSpec::worker_grace_us>,
       show_default_threshold<&JobSpec::worker_grace_us>},
      {"timeouts.warn_after", nullptr, kLatenessText,
       "in one iteration before the log names the worker",
       read_default_lateness<&JobSpec::warn_after_us>,
       show_default_threshold<&JobSpec::warn_after_us>},
      {"timeouts.evict_after", nullptr, kLatenessText,
       "in one iteration before the worker counts as lost",
       read_default_lateness<&JobSpec::evict_after_us>,
       show_default_threshold<&JobSpec::evict_after_us>},

      {"log.level", "--log-level", "\"debug\", \"info\", \"warn\" or \"error\"",
       "the least important lines that are written, beside those of `audit`", read_log_level,
       [](const Config& c) { return toml_string(to_string(c.log_level)); }},
      {"log.file", "--log-file", "a path, or \"stderr\"", "where lines are appended", read_log_file,
       [](const Config& c) { return toml_string(c.log_file.empty() ? "stderr" : c.log_file); }},
  };
}

std::vector<JobSetting> make_job_settings() {
  return {
      {"name", "1 to 64 of A-Z a-z 0-9 . _ -",
       [](const RawValue& v, JobSpec& j, std::string&) { return read_text(v, j.name); },
       [](const JobSpec& j) { return toml_string(j.name); }},
      {"policy", "a policy such as \"bsp\", \"asp\" or \"ssp:3\"",
       [](const RawValue& v, JobSpec& j, std::string&) { return read_text(v, j.policy); },
       [](const JobSpec& j) { return toml_string(j.policy); }},
      {"expected_workers", "1 to 1000000",
       [](const RawValue& v, JobSpec& j, std::string&) {
         return read_size(v, 1, limits::kWorkersPerJobMax, j.expected_workers);
       },
       [](const JobSpec& j) { return std::to_string(j.expected_workers); }},
      {"min_workers", "0 (never start with fewer) to expected_workers",
       [](const RawValue& v, JobSpec& j, std::string&) {
         return read_size(v, 0, limits::kWorkersPerJobMax, j.min_workers);
       },
       [](const JobSpec& j) { return std::to_string(j.min_workers); }},
      {"start_timeout", kSpanText, read_threshold<&JobSpec::start_timeout_us>,
       show_threshold<&JobSpec::start_timeout_us>},
      {"worker_grace", kSpanText, read_threshold<&JobSpec::worker_grace_us>,
       show_threshold<&JobSpec::worker_grace_us>},
      {"warn_after", kLatenessText, read_job_lateness<&JobSpec::warn_after_us>,
       show_threshold<&JobSpec::warn_after_us>},
      {"evict_after", kLatenessText, read_job_lateness<&JobSpec::evict_after_us>,
       show_threshold<&JobSpec::evict_after_us>},
  };
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

const Setting* find_setting(std::string_view key) {
  for (const Setting& setting : settings()) {
    if (setting.key == key) return &setting;
  }
  return nullptr;
}

std::string environment_name(const Setting& setting) {
  std::string name = "SYNCD_";
  for (const char c : std::string_view(setting.key)) {
    name += c == '.' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  }
  return name;
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04X", static_cast<unsigned char>(c));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace syncd::config
