// The daemon's flags; the one file that sees CLI11. See config.h.
#include <CLI/CLI.hpp>
#include <sstream>

#include "daemon/edge/config/config.h"
#include "daemon/edge/config/settings.h"
#include "daemon/edge/config/suggest.h"

namespace syncd::config {
namespace {

constexpr const char* kDescription =
    "syncd coordinates the workers of data-parallel training jobs: it decides at every iteration "
    "who\n"
    "goes on and who waits. Without arguments it serves this machine.";

std::string footer() {
  std::ostringstream out;
  out << "\nSettings: the file's key, its environment variable, and what is allowed. A flag wins "
         "over "
         "the\nenvironment, the environment over the file, the file over the default.\n";
  for (const Setting& setting : settings()) {
    out << "  " << setting.key << ", " << environment_name(setting);
    if (setting.flag != nullptr) out << ", " << setting.flag;
    out << "\n      " << setting.help << "\n      allowed: " << setting.allowed << "\n";
  }
  out << "  [[job]] in the file declares a job:\n";
  for (const JobSetting& setting : job_settings()) {
    out << "      " << setting.key << ": " << setting.allowed << "\n";
  }
  out << "  SYNCD_CONFIG\n      the configuration file, where --config is not given\n"
         "\nSignals: SIGTERM and SIGINT stop it in good order (a second one at once). SIGHUP reads "
         "the\n"
         "configuration again, with certificates, keys and tokens: if all of it is good, what may\n"
         "change while it runs does, at once and together, and the log names what needs a "
         "restart;\n"
         "if anything is wrong, nothing changes and the log says what. These change: tls.*, "
         "auth.*,\n"
         "limits.* (but store_queue_*), log.level, listen.auto_create, timeouts.shutdown_timeout, "
         "and\n"
         "timeouts' thresholds for jobs made from then on. tls.* and auth.* are for new "
         "connections.\n"
         "\nsystemd: with Type=notify it says when it is ready, what it does (STATUS=), when it "
         "reloads\n"
         "and stops, and keeps the watchdog fed from its event loop (WatchdogSec=).\n"
         "\nExit codes: 0 stopped in good order; 1 another failure; 2 bad configuration or usage;\n"
         "3 the store cannot be opened, read or written; 4 cannot listen. A defect that a check\n"
         "inside finds ends it with SIGABRT, after the log line server_failed.\n";
  return out.str();
}

// CLI11's own text for an unknown flag, with a suggestion.
std::string explain(const CLI::ParseError& error, int argc, const char* const* argv,
                    const std::vector<std::string>& known) {
  std::string text = error.what();
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const std::string name = word.substr(0, word.find('='));
      const std::string near = nearest(name, known);
      if (near.empty() || near == name || text.find(name) == std::string::npos) continue;
      text += "; did you mean " + near + "?";
    }
  }
  return text + "; see syncd --help";
}

}  // namespace

Command parse_command_line(int argc, const char* const* argv, const std::string& version,
                           Flags& flags, std::string& text) {
  CLI::App app(kDescription, "syncd");
  app.footer(footer());
  app.set_version_flag("-V,--version", "syncd " + version, "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");

  std::string store, mode, unix_path, level, log_file, admin;
  std::vector<std::string> tcp;
  bool insecure = false;
  app.add_option("-c,--config", flags.config_file, "Configuration file (TOML)")->type_name("FILE");
  app.add_option("--store", store, "Where the history is kept")->type_name("DIR|memory");
  app.add_option("--mode", mode, "When a push is acknowledged")->type_name("durable|fast");
  app.add_option("--tcp", tcp, "Listen for workers over TCP; may be repeated")
      ->type_name("ADDR:PORT|off")
      ->allow_extra_args(false);
  app.add_option("--unix", unix_path, "Listen on a Unix socket")->type_name("PATH|off");
  app.add_option("--admin", admin, "Serve /metrics, /healthz, /readyz and /status over HTTP")
      ->type_name("ADDR:PORT|off");
  app.add_option("--log-level", level, "Least important lines written")
      ->type_name("debug|info|warn|error");
  app.add_option("--log-file", log_file, "Where lines are appended")->type_name("PATH|stderr");
  app.add_flag("--insecure", insecure, "Allow listening beyond localhost");
  app.add_flag(
      "--check-config", flags.check_config,
      "Print the configuration in force and exit: 0 if it is good, 2 if not, 3 if its store "
      "has no place to be");
  app.add_flag("--store-salvage", flags.store_salvage,
               "If the store is damaged, start with what is whole; the log says what was dropped, "
               "and the damaged store stays beside it as DIR.damaged");
  app.add_option("--ready-file", flags.ready_file,
                 "Write the endpoints into this file once workers can connect, one a line")
      ->type_name("FILE");
  const std::vector<std::string> known = {
      "--config",     "--store",         "--mode",    "--tcp",      "--unix",
      "--log-level",  "--log-file",      "--admin",   "--insecure", "--check-config",
      "--ready-file", "--store-salvage", "--version", "--help"};
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    text = app.help();
    return Command::kPrint;
  } catch (const CLI::CallForVersion&) {
    text = "syncd " + version + "\n";
    return Command::kPrint;
  } catch (const CLI::ParseError& error) {
    text = explain(error, argc, argv, known);
    return Command::kUsage;
  }

  const auto set = [&](const char* flag, const char* key, std::string value) {
    if (app.count(flag) > 0) flags.settings.emplace_back(key, std::move(value));
  };
  std::string addresses;
  for (const std::string& address : tcp) addresses += (addresses.empty() ? "" : ",") + address;
  set("--store", "store.path", store);
  set("--mode", "store.mode", mode);
  set("--tcp", "listen.tcp", addresses);
  set("--unix", "listen.unix", unix_path);
  set("--admin", "listen.admin", admin);
  set("--log-level", "log.level", level);
  set("--log-file", "log.file", log_file);
  set("--insecure", "listen.insecure", insecure ? "true" : "false");
  return Command::kRun;
}

}  // namespace syncd::config
