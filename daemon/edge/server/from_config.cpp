// See the header. Any thread.
#include "daemon/edge/server/from_config.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/edge/net/inherited_sockets.h"
#include "daemon/edge/server/limits_table.h"  // its relations of limits hold in every build
#include "daemon/edge/store/salvage.h"
#include "proto/base/file.h"

namespace syncd::server {
namespace {

// The default store's directory may lie in one that nobody has made yet, such as ~/.local/state.
bool make_parents(const std::string& path, std::string& error) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (mkdir(parent.c_str(), 0700) == 0) {
      // Else a power cut could take what was just made in it, and the store with it. A file system
      // that cannot sync directories does without.
      sync_to_disk(parent.substr(0, std::max<std::size_t>(1, parent.rfind('/'))));
      continue;
    }
    if (errno == EEXIST) continue;
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

bool salvage_store(const config::Config& config, const Server::LogSink& log,
                   const std::function<void()>& progress, std::string& error) {
  if (config.store_in_memory()) return true;
  store::Salvaged salvaged;
  if (!store::salvage_store(config.store_path, salvaged, error, progress)) return false;
  if (!salvaged.needed) {
    log({LogLevel::kInfo,
         "store_sound",
         {{"store", config.store_path}, {"hint", "there was nothing to salvage"}}});
    return true;
  }
  for (const std::string& file : salvaged.files) {
    log({LogLevel::kWarn, "store_file_lost", {{"store", config.store_path}, {"file", file}}});
  }
  for (const store::SalvagedJob& job : salvaged.jobs) {
    LogLine line{LogLevel::kWarn,
                 "store_dropped",
                 {{"job", job.name},
                  {"id", "#" + std::to_string(job.id)},
                  {"records_dropped", std::to_string(job.dropped)},
                  {"first_kept", std::to_string(job.first)},
                  {"last_kept", std::to_string(job.last)}}};
    for (const std::string& what : job.what) line.fields.emplace_back("what", what);
    log(line);
  }
  log({LogLevel::kWarn,
       "store_salvaged",
       {{"store", config.store_path},
        {"damaged_store", salvaged.damaged_path},
        {"hint", "remove the damaged one when nothing of it is needed any more"}}});
  return true;
}

}  // namespace

store::Options store_options(const config::Config& config) {
  store::Options options;
  options.path = config.store_path;
  options.mode = config.durable ? store::Mode::kDurable : store::Mode::kFast;
  options.queue_records_max = config.store_queue_records_max;
  options.queue_bytes_max = config.store_queue_bytes_max;
  options.retention_us = config.retention_us;
  options.retention_bytes = config.retention_bytes;
  return options;
}

bool make_store_parents(const config::Config& config, std::string& error) {
  return !config.store_path_is_default || make_parents(config.store_path, error);
}

std::unique_ptr<store::Store> open_store(const config::Config& config, std::string& error) {
  if (config.store_in_memory()) return store::make_memory_store();
  if (!make_store_parents(config, error)) return nullptr;
  return store::open_rocks_store(store_options(config), error);
}

std::unique_ptr<store::Store> prepare_store(const config::Config& config, bool salvage,
                                            const Server::LogSink& log,
                                            const std::function<void()>& progress,
                                            std::string& error) {
  progress();
  if (salvage && !salvage_store(config, log, progress, error)) return nullptr;
  std::unique_ptr<store::Store> store = open_store(config, error);
  if (store != nullptr && config.store_in_memory()) {
    log({LogLevel::kWarn,
         "store_in_memory",
         {{"hint", "the history ends with this process: name a directory to keep it"}}});
  }
  return store;
}

bool take_sockets(config::InheritedSockets& found, std::vector<net::ListenSocket>& sockets,
                  std::string& error) {
  std::vector<net::InheritedSocket> taken;
  if (!net::take_inherited_sockets(taken, error)) return false;
  for (net::InheritedSocket& one : taken) {
    auto& addresses = one.socket.is_control ? found.control : found.workers;
    if (!addresses) addresses.emplace();
    if (one.socket.is_tcp) {
      addresses->tcp.push_back(std::move(one.tcp));
    } else {
      addresses->unix_path = std::move(one.unix_path);
    }
    sockets.push_back(std::move(one.socket));
  }
  return true;
}

LogLine inherited_line(const config::InheritedSockets& found, std::size_t sockets) {
  const char* in_place_of = !found.control   ? "listen.tcp and listen.unix"
                            : !found.workers ? "listen.control"
                                             : "listen.tcp, listen.unix and listen.control";
  return {LogLevel::kInfo,
          "sockets_inherited",
          {{"sockets", std::to_string(sockets)}, {"in_place_of", in_place_of}}};
}

ServerOptions server_options(const config::Config& config, std::string version) {
  ServerOptions options;
  options.version = std::move(version);
  options.engine = config.engine;
  options.engine.workers_max = std::max(limits::kWorkersMax, config.engine.workers_per_job_max);
  // Two of a client's heartbeats, and a second.
  options.engine.exit_grace_us =
      static_cast<Micros>(config.connection.idle_timeout_ms) * 1000 / 2 + 1'000'000;
  options.jobs_per_identity_max = config.jobs_per_identity_max;
  options.jobs = config.jobs;
  static_cast<net::NetworkLimits&>(options.network) = config.network;
  options.network.connection = config.connection;
  options.tls = config.tls;
  options.admission = config.auth;
  options.open_to_anybody = config.open_to_anybody();
  options.tcp = config.tcp;
  options.unix_path = config.unix_path;
  options.control_tcp = config.control.tcp;
  options.control_unix_path = config.control.unix_path;
  options.unix_mode = static_cast<mode_t>(config.unix_mode);
  options.shutdown_timeout_us = config.shutdown_timeout_us;
  options.exit_when_idle_us = config.exit_when_idle_us;
  return options;
}

}  // namespace syncd::server
