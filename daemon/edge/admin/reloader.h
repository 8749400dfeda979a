// The configuration in force, and a reload of it: read again, checked as a whole, and put into
// force or refused as a whole. Loop thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/edge/admin/pages.h"
#include "daemon/edge/config/config.h"
#include "daemon/edge/config/reload.h"
#include "daemon/edge/server/server.h"

namespace syncd::admin {

class Reloader {
 public:
  // `in_force` is called with another configuration before the log says so.
  Reloader(config::Config config, const config::Flags& flags, server::Server::LogSink log,
           std::function<void(const config::Config&)> in_force)
      : config_(std::move(config)),
        flags_(flags),
        log_(std::move(log)),
        in_force_(std::move(in_force)) {}

  const config::Config& config() const { return config_; }
  // The log says what has changed, or why nothing has.
  void reload(server::Server& server, Pages& pages);

 private:
  bool put_into_force(const config::Config& wanted, server::Server& server, Pages& pages,
                      std::string& error);

  config::Config config_;
  config::FileHashes files_ = config::hash_named_files(config_);
  const config::Flags& flags_;
  const server::Server::LogSink log_;
  const std::function<void(const config::Config&)> in_force_;
};

}  // namespace syncd::admin
