// See the header.
#include "daemon/edge/admin/reloader.h"

#include <unistd.h>

#include <utility>

#include "daemon/edge/config/reload.h"
#include "daemon/edge/server/certificate_lines.h"
#include "daemon/edge/server/from_config.h"

namespace syncd::admin {

void Reloader::reload(server::Server& server, Pages& pages) {
  config::Loaded loaded;
  std::vector<std::string> errors;
  bool good = config::load(flags_, config::environment_of(environ), loaded, errors);
  if (good) {
    for (const LogLine& line : config::warning_lines(loaded)) log_(line);
    good = put_into_force(loaded.config, server, pages, errors.emplace_back());
  }
  pages.count_reload(good);
  if (good) return;
  for (const LogLine& line : config::refused_lines(errors)) log_(line);
}

// Whatever can fail is made before anything is put into force.
bool Reloader::put_into_force(const config::Config& wanted, server::Server& server, Pages& pages,
                              std::string& error) {
  config::Reload plan;
  AdminSecurity security;
  if (!config::plan_reload(config_, wanted, plan, error) ||
      !make_security(plan.next, security, error)) {
    return false;
  }
  const server::ServerView view = server.view(0);
  if (security.tls != nullptr) {
    error = server::lapsed_certificate(plan.next.tls, security.tls->facts(), view.certificates,
                                       view.wall_clock_s);
    if (!error.empty()) return false;
  }
  if (!server.reconfigure(server::server_options(plan.next, view.version), error)) return false;
  pages.secure(std::move(security));
  config_ = plan.next;
  in_force_(config_);
  // Read a moment after they were put into force, for the log only.
  const config::FileHashes before = std::exchange(files_, config::hash_named_files(config_));
  for (const LogLine& line :
       config::reloaded_lines(plan, config::differing_files(before, files_))) {
    log_(line);
  }
  return true;
}

}  // namespace syncd::admin
