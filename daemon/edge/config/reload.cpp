// See the header.
#include "daemon/edge/config/reload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>

#include "daemon/edge/config/settings.h"
#include "proto/base/file.h"

namespace syncd::config {
namespace {

std::string text_of(const std::vector<JobSpec>& jobs) {
  std::string text;
  for (const JobSpec& job : jobs) {
    for (const JobSetting& setting : job_settings()) text += setting.show(job) + "\n";
  }
  return text;
}

// A signal does not say whose it is: who may send one is root or the daemon's own user.
LogLine audit_line(const char* result, const std::string& changed, const std::string& files) {
  return {LogLevel::kInfo,
          "audit",
          {{"action", "reload"},
           {"signal", "SIGHUP"},
           {"changed", changed.empty() ? "no setting" : changed},
           {"files", files.empty() ? "none" : files},
           {"result", result}}};
}

}  // namespace

bool plan_reload(const Config& in_force, const Config& wanted, Reload& reload, std::string& error) {
  reload = {.next = in_force, .changed = {}, .needs_restart = {}};
  // TLS cannot be switched on or off under a listener's clients.
  const bool switches_tls = wanted.has_tls() != in_force.has_tls();
  std::vector<std::string> changed;
  std::vector<std::string> needs_restart;
  std::vector<std::string> rules;
  std::vector<std::string> doors;
  for (const Setting& setting : settings()) {
    const std::string_view key = setting.key;
    const bool is_tls = key.starts_with("tls.");
    const std::string old = setting.show(in_force);
    const std::string now = setting.show(wanted);
    const bool taken = setting.reloadable && !(is_tls && switches_tls);
    if (taken) setting.copy(wanted, reload.next);
    if (now == old) continue;
    if (taken) {
      changed.push_back(fmt::format("{}: {} -> {}", key, old, now));
    } else {
      needs_restart.emplace_back(key);
    }
    if (key.starts_with("auth.")) rules.emplace_back(key);
    const bool is_door = key.starts_with("listen.") && key != "listen.insecure";
    if (!taken && (is_door || is_tls)) doors.emplace_back(key);
  }
  if (text_of(wanted.jobs) != text_of(in_force.jobs)) needs_restart.emplace_back("[[job]]");
  reload.changed = fmt::format("{}", fmt::join(changed, ", "));
  reload.needs_restart = fmt::format("{}", fmt::join(needs_restart, ", "));
  // Rules without their addresses could admit clients that the new configuration keeps out.
  if (!rules.empty() && !doors.empty()) {
    error = fmt::format(
        "{} cannot be taken on without {}, which needs a restart: restart it, or change one at "
        "a time",
        fmt::join(rules, ", "), fmt::join(doors, ", "));
    return false;
  }
  // The new rules may only be good together with new addresses, which are not taken on.
  const Config& next = reload.next;
  const bool pages_open = next.admin && !next.admin->is_loopback() && !next.has_auth();
  if (!next.insecure && (next.open_to_anybody() || pages_open)) {
    error =
        "it listens beyond this machine until you restart it, and without authentication ([auth], "
        "tls.client_ca) anyone there could use it: restart it instead";
    return false;
  }
  return true;
}

FileHashes hash_named_files(const Config& config) {
  FileHashes hashes;
  const std::pair<const char*, const std::string&> named[] = {
      {"auth.token_file", config.auth.token_file},
      {"tls.certificate", config.tls.certificate_file},
      {"tls.client_ca", config.tls.client_ca_file},
      {"tls.key", config.tls.key_file},
  };
  for (const auto& [key, path] : named) {
    if (path.empty()) continue;
    if (std::string bytes; read_file(path, bytes)) hashes[key] = std::hash<std::string>()(bytes);
  }
  return hashes;
}

std::string differing_files(const FileHashes& before, const FileHashes& now) {
  std::map<std::string, std::size_t> differing;
  std::ranges::set_symmetric_difference(before, now, std::inserter(differing, differing.end()));
  std::vector<std::string> keys;
  for (const auto& [key, hash] : differing) keys.push_back(key);
  return fmt::format("{}", fmt::join(keys, ", "));
}

std::vector<LogLine> reloaded_lines(const Reload& reload, const std::string& files) {
  return {audit_line("done", reload.changed, files),
          {LogLevel::kInfo,
           "reloaded",
           {{"signal", "SIGHUP"},
            {"what", "configuration, certificates, keys and tokens"},
            {"changed", reload.changed.empty() ? "no setting" : reload.changed},
            {"files", files.empty() ? "none" : files},
            {"needs_restart", reload.needs_restart.empty() ? "nothing" : reload.needs_restart}}}};
}

std::vector<LogLine> refused_lines(const std::vector<std::string>& errors) {
  return {{LogLevel::kError,
           "not_reloaded",
           {{"signal", "SIGHUP"},
            {"reason", fmt::format("{}", fmt::join(errors, "; "))},
            {"hint", "nothing changed, also no certificate, key or token"}}},
          audit_line("refused", {}, {})};
}

}  // namespace syncd::config
