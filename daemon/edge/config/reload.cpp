// See the header.
#include "daemon/edge/config/reload.h"

#include <string_view>

#include "daemon/edge/config/settings.h"

namespace syncd::config {
namespace {

void append(std::string& list, const std::string& item) {
  list += (list.empty() ? "" : ", ") + item;
}

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
  std::string rules;
  std::string doors;
  for (const Setting& setting : settings()) {
    const std::string_view key = setting.key;
    const bool is_tls = key.starts_with("tls.");
    const std::string old = setting.show(in_force);
    const std::string now = setting.show(wanted);
    const bool taken = setting.reloadable && !(is_tls && switches_tls);
    if (taken) setting.copy(wanted, reload.next);
    if (now == old) continue;
    if (taken) {
      append(reload.changed, std::string(key) + ": " + old + " -> " + now);
    } else {
      append(reload.needs_restart, setting.key);
    }
    if (key.starts_with("auth.")) append(rules, setting.key);
    const bool is_door = key.starts_with("listen.") && key != "listen.insecure";
    if (!taken && (is_door || is_tls)) append(doors, setting.key);
  }
  if (text_of(wanted.jobs) != text_of(in_force.jobs)) append(reload.needs_restart, "[[job]]");
  // Half of it could leave what stays open to whoever the other half was to keep out.
  if (!rules.empty() && !doors.empty()) {
    error = rules + " cannot be taken on without " + doors +
            ", for which it must be restarted: restart it, or change one at a time";
    return false;
  }
  // The new rules may only be good together with new addresses, which are not taken on.
  const Config& next = reload.next;
  const bool pages_open = next.admin && !next.admin->is_loopback() && !next.has_auth();
  if (!next.insecure && (next.open_to_anybody() || pages_open)) {
    error =
        "it listens beyond this machine until it is restarted, where without authentication "
        "([auth], tls.client_ca) anybody could use it: restart it instead";
    return false;
  }
  return true;
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
  std::string reason;
  for (const std::string& error : errors) reason += (reason.empty() ? "" : "; ") + error;
  return {{LogLevel::kError,
           "not_reloaded",
           {{"signal", "SIGHUP"},
            {"reason", reason},
            {"hint", "everything stays as it was, certificates, keys and tokens too"}}},
          audit_line("refused", {}, {})};
}

}  // namespace syncd::config
