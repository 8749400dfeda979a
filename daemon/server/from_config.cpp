// See the header. Any thread.
#include "daemon/server/from_config.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace syncd::server {
namespace {

// The default store's directory may lie in one that nobody has made yet, such as ~/.local/state.
bool make_parents(const std::string& path, std::string& error) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (mkdir(parent.c_str(), 0700) == 0 || errno == EEXIST) continue;
    // An unwritable or read-only parent matters only if it is not there.
    struct stat found {};
    const int code = errno;
    if (stat(parent.c_str(), &found) == 0) continue;
    error = "cannot make " + parent + " for the store " + path + ": " + std::strerror(code) +
            "; choose another directory with --store DIR";
    return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<store::Store> open_store(const config::Config& config, std::string& error) {
  if (config.store_in_memory()) return store::make_memory_store();
  if (config.store_path_is_default && !make_parents(config.store_path, error)) return nullptr;
  store::Options options;
  options.path = config.store_path;
  options.mode = config.durable ? store::Mode::kDurable : store::Mode::kFast;
  options.queue_records_max = config.store_queue_records_max;
  options.queue_bytes_max = config.store_queue_bytes_max;
  return store::open_rocks_store(options, error);
}

ServerOptions server_options(const config::Config& config, std::string version) {
  const auto ms = [](Micros us) { return static_cast<std::uint64_t>(us / 1000); };
  ServerOptions options;
  options.version = std::move(version);
  options.engine.auto_create = config.auto_create;
  options.engine.defaults = config.job_defaults;
  options.engine.snapshot_every_records = config.snapshot_every_records;
  options.jobs = config.jobs;
  options.network.connections_max = config.connections_max;
  options.network.outbound_bytes_max = config.outbound_bytes_max;
  options.network.connection.handshake_timeout_ms = ms(config.handshake_timeout_us);
  options.network.connection.idle_timeout_ms = ms(config.heartbeat_timeout_us);
  options.network.connection.write_timeout_ms = ms(config.write_timeout_us);
  options.tcp = config.tcp;
  options.unix_path = config.unix_path;
  options.unix_mode = static_cast<mode_t>(config.unix_mode);
  options.shutdown_timeout_us = config.shutdown_timeout_us;
  return options;
}

}  // namespace syncd::server
