// The table of settings; see the header.
#include "daemon/config/settings.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>

#include "daemon/config/duration.h"

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

bool read_tcp(const RawValue& value, Config& config, std::string& why) {
  std::vector<std::string> texts;
  if (value.kind == RawValue::Kind::kList) {
    texts = value.list;
  } else if (value.kind != RawValue::Kind::kText) {
    return false;
  } else if (!is_off(value.text)) {
    texts = value.typed ? std::vector<std::string>{value.text} : split(value.text);
  }
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
template <auto Field, std::int64_t Low, std::int64_t High>
bool read_limit(const RawValue& value, Config& config, std::string&) {
  return read_size(value, Low, High, config.*Field);
}

// ---- showing values -----------------------------------------------------------------------------

std::string show_tcp(const Config& config) {
  if (config.tcp.empty()) return "\"off\"";
  std::string text;
  for (const net::TcpAddress& address : config.tcp) {
    text += (text.empty() ? "" : ", ") + toml_string(address.text());
  }
  return config.tcp.size() == 1 ? text : "[" + text + "]";
}
template <Micros Config::*Field>
std::string show_timeout(const Config& config) {
  return toml_string(show_duration(config.*Field));
}
template <Micros JobSpec::*Field>
std::string show_default_threshold(const Config& config) {
  return toml_string(show_duration(config.job_defaults.*Field));
}
template <Micros JobSpec::*Field>
std::string show_threshold(const JobSpec& job) {
  return toml_string(show_duration(job.*Field));
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
constexpr Micros kMs100 = 100'000;
constexpr Micros kMinutes10 = 600'000'000;
constexpr Micros kHour = 3'600'000'000;
constexpr const char* kSpanText = "a duration from 0s to 30d, such as \"500ms\" or \"10s\"";
constexpr const char* kNeverText = "a duration from 0s (never) to 30d, such as \"90s\" or \"10m\"";

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
      {"listen.insecure", "--insecure", "true or false",
       "listen beyond localhost although anybody may then connect",
       [](const RawValue& v, Config& c, std::string&) { return read_boolean(v, c.insecure); },
       [](const Config& c) { return show_boolean(c.insecure); }},
      {"listen.auto_create", nullptr, "true or false",
       "let a join create its job (default: if only this machine can join)",
       [](const RawValue& v, Config& c, std::string&) { return read_boolean(v, c.auto_create); },
       [](const Config& c) { return show_boolean(c.auto_create); }},

      {"store.path", "--store", "a directory whose parent exists, or \"memory\"",
       "where the history is kept", read_store_path,
       [](const Config& c) { return toml_string(c.store_path); }},
      {"store.mode", "--mode", "\"durable\" or \"fast\"",
       "durable: a push is on disk before it is acknowledged; fast: it survives a crash of the "
       "daemon, not of the machine",
       read_store_mode,
       [](const Config& c) { return toml_string(c.durable ? "durable" : "fast"); }},

      {"limits.connections_max", nullptr, "1 to 16384", "connections at once",
       read_limit<&Config::connections_max, 1, limits::kConnectionsMax>,
       show_number<&Config::connections_max>},
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
      {"timeouts.warn_after", nullptr, kNeverText,
       "in one iteration before the log names the worker",
       read_default_threshold<&JobSpec::warn_after_us>,
       show_default_threshold<&JobSpec::warn_after_us>},
      {"timeouts.evict_after", nullptr, kNeverText,
       "in one iteration before the worker counts as lost",
       read_default_threshold<&JobSpec::evict_after_us>,
       show_default_threshold<&JobSpec::evict_after_us>},

      {"log.level", "--log-level", "\"debug\", \"info\", \"warn\" or \"error\"",
       "the least important lines that are written", read_log_level,
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
      {"warn_after", kNeverText, read_threshold<&JobSpec::warn_after_us>,
       show_threshold<&JobSpec::warn_after_us>},
      {"evict_after", kNeverText, read_threshold<&JobSpec::evict_after_us>,
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

const char* planned(std::string_view key) {
  if (key == "listen.admin") return "it has no admin listener yet";
  if (key.starts_with("tls.") || key == "tls") return "it has no TLS yet";
  if (key.starts_with("auth.") || key == "auth") return "it has no authentication yet";
  if (key.starts_with("store.retention_")) return "it keeps every record";
  return nullptr;
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
