// <syncd/server.h> over server::ServerThread. Any thread, but for the log, which is written on the
// server's own.
#include "syncd/server.h"
#include "proto/base/clock.h"

#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/edge/config/config.h"
#include "daemon/edge/server/log_text.h"
#include "daemon/edge/server/server_thread.h"
#include "error.h"
#include "options.h"

using syncd::LogLevel;
using syncd::LogLine;
using syncd::Micros;
using syncd::Status;
using syncd::capi::guarded;
using syncd::capi::Outcome;
using syncd::capi::refuse;

static_assert(SYNCD_LOG_DEBUG == static_cast<int>(LogLevel::kDebug) + 1);
static_assert(SYNCD_LOG_INFO == static_cast<int>(LogLevel::kInfo) + 1);
static_assert(SYNCD_LOG_WARN == static_cast<int>(LogLevel::kWarn) + 1);
static_assert(SYNCD_LOG_ERROR == static_cast<int>(LogLevel::kError) + 1);

struct syncd_server {
  pid_t pid;
  std::unique_ptr<syncd::server::ServerThread> thread;
};

namespace {

// What the struct was in 0.1.0.
constexpr std::size_t kServerOptionsFirstSize = SYNCD_SIZE_UP_TO(syncd_server_options, flags);
static_assert(sizeof(void*) != 8 || kServerOptionsFirstSize == 64, "released layout");

constexpr Micros kStopTimeoutMax = 86'400'000'000;  // a day

// ---- the log -----------------------------------------------------------------------------------

struct Log {
  syncd_log_callback callback = nullptr;
  void* context = nullptr;
  bool to_stderr = false;
  LogLevel least = LogLevel::kInfo;

  void write(const LogLine& line) const;
};

// In one piece, since others write to standard error, too.
void write_to_stderr(LogLevel level, const std::string& text) {
  std::string whole = syncd::utc_text(syncd::wall_clock_us(), 3) + " ";
  whole += to_string(level);
  whole += ' ' + text + '\n';
  std::fwrite(whole.data(), 1, whole.size(), stderr);
}

void Log::write(const LogLine& line) const {
  if (line.level < least || (callback == nullptr && !to_stderr)) return;
  const std::string text = syncd::server::log_text(line);
  if (to_stderr) write_to_stderr(line.level, text);
  if (callback != nullptr) callback(context, static_cast<int>(line.level) + 1, text.c_str());
}

// ---- options -----------------------------------------------------------------------------------

void check(const syncd_server_options& options) {
  if (options.log_level < 0 || options.log_level > SYNCD_LOG_ERROR) {
    refuse("syncd_server_options.log_level is " + std::to_string(options.log_level) +
           "; allowed: 0 or SYNCD_LOG_DEBUG (1) to SYNCD_LOG_ERROR (4)");
  }
  if ((options.flags & ~static_cast<std::uint32_t>(SYNCD_SERVER_LOG_STDERR)) != 0) {
    refuse("syncd_server_options.flags is " + std::to_string(options.flags) +
           "; allowed: 0 or SYNCD_SERVER_LOG_STDERR (1)");
  }
}

syncd::config::Embedded sources_of(const syncd_server_options& options) {
  syncd::config::Embedded sources;
  sources.defaults.tcp = {{"127.0.0.1", 0}};
  sources.defaults.unix_path.clear();
  sources.defaults.store_path = "memory";
  if (options.config != nullptr) sources.toml = options.config;
  sources.toml_name = "syncd_server_options.config";
  sources.defaults.admin.reset();
  sources.refused = {{"listen.admin", "an embedded daemon serves no HTTP; syncd does"},
                     {"log.file",
                      "an embedded daemon writes no log file; allowed: a callback in "
                      "syncd_server_options.log, or SYNCD_SERVER_LOG_STDERR in its flags"},
                     {"cluster.name", "an embedded daemon is no member of a cluster; syncd is"},
                     {"timeouts.exit_when_idle",
                      "an embedded daemon serves until the program stops it; syncd does this"}};
  const std::pair<const char*, const char*> texts[] = {
      {"tcp", options.tcp}, {"unix_path", options.unix_path}, {"store", options.store}};
  const char* const keys[] = {"listen.tcp", "listen.unix", "store.path"};
  for (std::size_t i = 0; i < std::size(texts); ++i) {
    const auto& [field, text] = texts[i];
    if (text == nullptr) continue;
    sources.set.push_back({keys[i], text, std::string("syncd_server_options.") + field});
  }
  return sources;
}

syncd::config::Loaded load(const syncd_server_options& options) {
  syncd::config::Loaded loaded;
  std::vector<std::string> errors;
  if (!syncd::config::load_embedded(sources_of(options), loaded, errors)) {
    std::string text;
    for (const std::string& error : errors) text += (text.empty() ? "" : "\n") + error;
    refuse(std::move(text));
  }
  if (!loaded.missing.empty()) throw Outcome{Status::kStore, std::move(loaded.missing.front())};
  if (options.log_level != 0)
    loaded.config.log_level = static_cast<LogLevel>(options.log_level - 1);
  return loaded;
}

}  // namespace

extern "C" {

syncd_status syncd_server_start(const syncd_server_options* options, syncd_server** server,
                                syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    syncd::capi::need(server, call, "server");
    syncd_server_options known = SYNCD_SERVER_OPTIONS_INIT;
    if (options != nullptr) {
      syncd::capi::read_struct(options, kServerOptionsFirstSize, "syncd_server_options", known);
    }
    check(known);
    syncd::config::Loaded loaded = load(known);
    const Log log{known.log, known.log_context, (known.flags & SYNCD_SERVER_LOG_STDERR) != 0,
                  loaded.config.log_level};
    for (const LogLine& line : syncd::config::warning_lines(loaded)) log.write(line);
    auto made = std::make_unique<syncd_server>();
    made->pid = getpid();
    made->thread = std::make_unique<syncd::server::ServerThread>(
        std::move(loaded.config), syncd_version(), [log](const LogLine& line) { log.write(line); });
    Outcome outcome;
    outcome.status = made->thread->start(outcome.message);
    if (outcome.status == Status::kOk) *server = made.release();
    return outcome;
  });
}

const char* syncd_server_address(const syncd_server* server, size_t index) {
  if (server == nullptr || index >= server->thread->endpoints().size()) return nullptr;
  return server->thread->endpoints()[index].c_str();
}

syncd_status syncd_server_stop(syncd_server* server, int64_t timeout_ms, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) -> Outcome {
    if (server == nullptr) return {};
    if (getpid() != server->pid) {
      return {Status::kForked, std::string(call) + ": the server belongs to process " +
                                   std::to_string(server->pid) + ", the parent of this one"};
    }
    if (server->thread->is_own_thread()) {
      return {Status::kState,
              std::string(call) +
                  ": called from the server's own log callback, where nothing may wait for the "
                  "server"};
    }
    const Micros timeout_us =
        syncd::capi::make_timeout(call, timeout_ms, server->thread->shutdown_timeout_us());
    const std::unique_ptr<syncd_server> owned(server);
    Outcome outcome;
    outcome.status = owned->thread->stop(std::min(timeout_us, kStopTimeoutMax), outcome.message);
    return outcome;
  });
}

}  // extern "C"
