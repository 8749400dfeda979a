// syncd: the command line, the configuration, the log, and then a Daemon.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "daemon/daemon.h"
#include "daemon/edge/cluster/host.h"
#include "daemon/edge/config/config.h"
#include "daemon/edge/log/log.h"
#include "daemon/edge/server/from_config.h"
#include "daemon/edge/server/keep_memory.h"
#include "daemon/edge/server/signals.h"
#include "proto/base/check.h"

namespace {

using namespace syncd;

int tell(const std::string& problem, ExitCode code) {
  std::fprintf(stderr, "syncd: %s\n", problem.c_str());
  return code;
}

int check_config(const config::Loaded& loaded) {
  for (const std::string& warning : loaded.warnings) tell("warning: " + warning, kClean);
  // A daemon starts all the same, and says so in its log: it serves those on its Unix socket.
  if (!loaded.certificate_problem.empty()) return tell(loaded.certificate_problem, kBadConfig);
  return std::fputs(loaded.effective.c_str(), stdout), kClean;
}

}  // namespace

int main(int argc, char** argv) try {
  cluster::keep_command_line(argv, environ);
  server::keep_freed_memory();
  config::Flags flags;
  std::string text;
  const auto command = config::parse_command_line(argc, argv, SYNCD_VERSION, flags, text);
  if (command == config::Command::kUsage) return tell(text, kBadConfig);
  if (command == config::Command::kPrint) return std::fputs(text.c_str(), stdout), kClean;
  std::vector<net::ListenSocket> inherited;
  if (!server::take_sockets(flags.inherited, inherited, text)) return tell(text, kCannotListen);
  config::Loaded loaded;
  std::vector<std::string> errors;
  const bool good = config::load(flags, config::environment_of(environ), loaded, errors);
  errors.insert(errors.end(), loaded.missing.begin(), loaded.missing.end());
  for (const std::string& error : errors) tell(error, kBadConfig);
  if (!errors.empty()) return good ? kBadStore : kBadConfig;
  if (flags.check_config) return check_config(loaded);
  server::prepare_process();
  const auto log = Log::open(loaded.config.log_file, loaded.config.log_level, text);
  if (!log) return tell("log.file = \"" + loaded.config.log_file + "\": " + text, kBadConfig);
  for (const LogLine& line : config::warning_lines(loaded)) log->write(line);
  return Daemon(loaded.config, flags, std::move(inherited), *log).run();
} catch (const InternalError& error) {
  tell(error.what(), kOther);
  std::abort();
} catch (const std::exception& error) {
  return tell(error.what(), kOther);
}
