// See the header.
#include "daemon/edge/admin/pages.h"

#include <utility>

#include "daemon/edge/admin/metrics.h"
#include "proto/base/clock.h"

namespace syncd::admin {

bool make_security(const config::Config& config, AdminSecurity& security, std::string& error) {
  if (config.has_tls()) {
    tls::ServerSettings settings = config.tls;
    settings.http = true;
    // /healthz needs no certificate; AdminServer asks for one on the other pages.
    security.wants_certificate = std::exchange(settings.require_client_certificate, false);
    security.handshakes_per_machine_per_s = config.network.handshakes_per_machine_per_s;
    security.tls = tls::Context::server(settings, error);
    if (security.tls == nullptr) return false;
  }
  // Every rule holds for the pages, too. Without any, all clients may read them.
  security.admission = net::Admission::make(config.auth, error);
  return security.admission != nullptr;
}

bool Pages::listen(const config::Config& config, std::string& error) {
  if (!config.admin) return true;
  if (!net::open_tcp_sockets(*config.admin, sockets_, error)) {
    sockets_.clear();
    if (!config.admin_is_default) {
      error = "listen.admin: " + error;
      return false;
    }
    log_(
        {LogLevel::kWarn,
         "no_admin_pages",
         {{"reason", error}, {"hint", "set another port, or \"off\", in listen.admin (--admin)"}}});
    return true;
  }
  for (net::ListenSocket& socket : sockets_) {
    socket.endpoint.replace(0, socket.endpoint.find(':'), config.has_tls() ? "https" : "http");
    log_({LogLevel::kInfo, "listening", {{"endpoint", socket.endpoint}, {"for", "admin"}}});
  }
  if (!config.admin->is_loopback() && !(config.has_tls() && config.has_auth())) {
    log_({LogLevel::kWarn,
          "admin_open_to_anybody",
          {{"hint",
            "anyone who reaches this machine can read what jobs run: listen.insecure is "
            "set, but TLS or authentication (auth.token_file, tls.client_ca) is missing"}}});
  }
  return true;
}

bool Pages::serve(const config::Config& config, std::string& error) {
  reloads_.last_good_us = wall_clock_us();
  if (sockets_.empty()) return true;
  AdminSecurity security;
  if (!make_security(config, security, error)) return false;
  admin_ = AdminServer::start(
      loop_, std::move(sockets_), std::move(security), [this] { return snapshot(); }, {}, error);
  return admin_ != nullptr;
}

std::shared_ptr<const Snapshot> Pages::snapshot() const {
  auto made = std::make_shared<Snapshot>();
  made->server = view_(kJobsExportedMax, made->member);
  made->loop_turns = monitor_.turns();
  made->reload = reloads_;
  return made;
}

void Pages::secure(AdminSecurity security) {
  if (admin_ != nullptr) admin_->secure(std::move(security));
}

void Pages::count_reload(bool good) {
  reloads_.last_good = good;
  ++(good ? reloads_.good : reloads_.failed);
  if (good) reloads_.last_good_us = wall_clock_us();
}

void Pages::close() {
  monitor_.close();
  if (admin_ != nullptr) admin_->stop([] {});
}

}  // namespace syncd::admin
