// A daemon's admin pages: where they are served, who may read them, and what they show. Loop
// thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/edge/admin/admin_server.h"
#include "daemon/edge/admin/loop_monitor.h"
#include "daemon/edge/config/config.h"
#include "daemon/edge/server/server.h"

namespace syncd::admin {

// Who may read the pages, and over what. False, with a sentence in `error`, if a file is unfit.
bool make_security(const config::Config& config, AdminSecurity& security, std::string& error);

class Pages {
 public:
  // What the pages show, of so many jobs at most, and of the cluster if it is a member of one.
  using View = std::function<server::ServerView(std::size_t jobs_max,
                                                std::optional<cluster::MemberView>& member)>;

  // The loop outlives it, and does not run yet.
  Pages(uv_loop_t* loop, View view, server::Server::LogSink log)
      : loop_(loop), view_(std::move(view)), log_(std::move(log)), monitor_(loop) {}

  // Listens, if the configuration wants pages. A default port that is taken is a warning; false,
  // with a sentence in `error`, if one that was asked for is.
  bool listen(const config::Config& config, std::string& error);
  // Serves what listens. False, with a sentence in `error`, if that fails.
  bool serve(const config::Config& config, std::string& error);
  void secure(AdminSecurity security);
  void count_reload(bool good);
  // The object may be destroyed when the loop has closed its handles.
  void close();

 private:
  std::shared_ptr<const Snapshot> snapshot() const;

  uv_loop_t* loop_;
  const View view_;
  server::Server::LogSink log_;
  LoopMonitor monitor_;
  ReloadFigures reloads_;
  std::vector<net::ListenSocket> sockets_;  // until they are served
  std::unique_ptr<AdminServer> admin_;      // null: there are no pages
};

}  // namespace syncd::admin
