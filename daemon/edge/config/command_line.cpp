// The daemon's flags; the one file that sees CLI11. See config.h.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>

#include "daemon/edge/config/config.h"
#include "daemon/edge/config/settings.h"
#include "proto/base/help_lines.h"
#include "proto/base/suggest.h"

namespace syncd::config {
namespace {

constexpr const char* kDescription =
    "syncd coordinates the workers of data-parallel training jobs: at every iteration it decides "
    "which\nworkers continue and which wait. Without arguments it serves this machine.";

std::string footer() {
  std::string out =
      "\nSettings: the file's key, its environment variable, and what is allowed. A flag wins "
      "over "
      "the\nenvironment, the environment over the file, the file over the default.\n";
  for (const Setting& setting : settings()) {
    out += fmt::format(
        "  {}, {}{}\n      {}\n      allowed: {}{}\n", setting.key, environment_name(setting.key),
        setting.flag != nullptr ? fmt::format(", {}", setting.flag) : "", setting.help,
        setting.allowed, setting.reloadable ? ". SIGHUP applies it" : "");
  }
  out += "  [[job]] in the file declares a job:\n";
  for (const JobSetting& setting : job_settings()) {
    out += fmt::format("      {}: {}\n", setting.key, setting.allowed);
  }
  return out +
         R"(  SYNCD_CONFIG
      the configuration file, where --config is not given

Signals: SIGTERM and SIGINT stop syncd cleanly; a second one stops it at once. SIGHUP reads the
configuration again, with certificates, keys and tokens. If all of it is good, syncd applies at
once what can change while it runs, and the log names what needs a restart. If anything is
wrong, nothing changes and the log says what. The settings above say whether SIGHUP applies
them: tls.* and auth.* to new connections, a job's timeouts to new jobs.

systemd: with Type=notify, syncd reports when it is ready, what it does (STATUS=), when it
reloads and when it stops. Its event loop feeds the watchdog (WatchdogSec=).

Exit codes: 0 stopped cleanly; 1 another failure; 2 bad configuration or usage; 3 the store
cannot be opened, read or written; 4 cannot listen. If an internal check fails, syncd logs
server_failed and ends with SIGABRT.
)";
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
  keep_help_lines(app);
  app.set_version_flag("-V,--version", "syncd " + version, "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");

  app.add_option("-c,--config", flags.config_file, "Configuration file (TOML)")->type_name("FILE");
  std::map<std::string, std::vector<std::string>> given;  // by the setting's key
  std::map<std::string, bool> switched;                   // likewise, of flags without a value
  for (const Setting& setting : settings()) {
    if (setting.flag == nullptr) continue;
    if (setting.flag_value == nullptr) {
      app.add_flag(setting.flag, switched[setting.key], setting.help);
    } else {
      CLI::Option* option = app.add_option(setting.flag, given[setting.key], setting.help);
      option->type_name(setting.flag_value)->allow_extra_args(false);
      if (!setting.flag_repeats) option->expected(1);
    }
  }
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
  // For our tests, which reach limits that are too high to be reached in one. In no group, so that
  // no help, page or completion has it.
  app.add_option("--test-limit", flags.test_limits)->allow_extra_args(false)->group("");
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
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

  for (const Setting& setting : settings()) {
    if (setting.flag == nullptr || app.count(setting.flag) == 0) continue;
    std::string value;
    if (setting.flag_value == nullptr) value = switched[setting.key] ? "true" : "false";
    for (const std::string& one : given[setting.key]) value += (value.empty() ? "" : ",") + one;
    flags.settings.emplace_back(setting.key, std::move(value));
  }
  return Command::kRun;
}

}  // namespace syncd::config
