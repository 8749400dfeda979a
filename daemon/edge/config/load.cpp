// From sources to one checked configuration; see config.h. Any thread.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <set>

#include "daemon/core/policies/graph_file.h"
#include "daemon/edge/config/config.h"
#include "daemon/edge/config/settings.h"
#include "daemon/edge/config/toml_file.h"
#include "proto/base/file.h"
#include "proto/base/suggest.h"
#include "proto/transport/secret_file.h"

namespace syncd::config {
namespace {

using Errors = std::vector<std::string>;
constexpr std::size_t kPemBytesMax = 1 << 20;

using Sources = std::map<std::string, std::string>;  // setting key -> where its value was found

RawValue text_value(std::string text, std::string where) {
  return {.text = std::move(text), .list = {}, .where = std::move(where)};
}

std::vector<std::string> keys_of_section(const std::string& section) {
  std::vector<std::string> keys;
  for (const Setting& setting : settings()) {
    if (setting.section() == section) keys.push_back(setting.name());
  }
  return keys;
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const Setting& setting : settings()) {
    if (names.empty() || names.back() != setting.section()) names.push_back(setting.section());
  }
  names.push_back("job");
  return names;
}

// What to say about a key that no setting has.
std::string unknown_key(const std::string& where, const std::string& key) {
  const std::size_t dot = key.find('.');
  const std::string section = dot == std::string::npos ? std::string{} : key.substr(0, dot);
  const std::string name = key.substr(dot == std::string::npos ? 0 : dot + 1);
  const std::vector<std::string> known = keys_of_section(section);
  const std::string text = fmt::format("{}: unknown key {}; ", where, key);
  if (const std::string near = nearest(name, known); !near.empty()) {
    return fmt::format("{}did you mean {}{}{}?", text, section, section.empty() ? "" : ".", near);
  }
  // "tcp" belongs in [listen].
  const auto home = std::ranges::find(settings(), name, &Setting::name);
  if (home != settings().end()) {
    return fmt::format("{}did you mean {} (in section [{}])?", text, home->key, home->section());
  }
  if (!known.empty()) return fmt::format("{}[{}] has {}", text, section, fmt::join(known, ", "));
  return fmt::format("{}each key belongs to one of the sections {}", text,
                     fmt::join(section_names(), ", "));
}

std::string unknown_section(const std::string& where, const std::string& section) {
  const std::string text = fmt::format("{}: unknown section [{}]; ", where, section);
  const std::vector<std::string> known = section_names();
  const std::string near = nearest(section, known);
  if (near == "job") return text + "did you mean [[job]]?";
  if (!near.empty()) return fmt::format("{}did you mean [{}]?", text, near);
  return fmt::format("{}there are {}", text, fmt::join(known, ", "));
}

std::string what_is_missing(const Config& config) {
  return config.has_auth()  ? "there is no TLS"
         : config.has_tls() ? "there is no authentication"
                            : "there is neither TLS nor authentication";
}

const Setting* find_by_variable(const std::vector<Setting>& rows, const std::string& name) {
  const auto found =
      std::ranges::find(rows, name, [](const Setting& row) { return environment_name(row.key); });
  return found != rows.end() ? &*found : nullptr;
}

class Loader {
 public:
  // Writes to `loaded` what is no mistake of the configuration.
  Loader(Config& config, Errors& errors, Loaded& loaded)
      : config_(config), errors_(errors), loaded_(loaded) {
    loaded.missing.clear();
    loaded.certificate_problem.clear();
    loaded.warnings.clear();
  }

  void file(const std::string& path) {
    TomlFile toml;
    std::string error;
    if (!read_toml_file(path, toml, error)) {
      errors_.push_back(error);
      return;
    }
    take(std::move(toml));
  }

  void environment(const Environment& environment) {
    std::vector<std::string> known;
    for (const Setting& setting : settings()) known.push_back(environment_name(setting.key));
    for (const auto& [name, text] : environment) {
      const RawValue value = text_value(text, "environment variable " + name);
      if (const Setting* setting = find_by_variable(settings(), name)) {
        apply(*setting, value);
        continue;
      }
      if (const Setting* limit = find_by_variable(test_limits(), name)) {
        warn_retired(*limit, value);
        continue;
      }
      // Other names with our prefix are the client library's; but a name that begins like a section
      // of ours is meant for us.
      for (const std::string& section : section_names()) {
        if (!name.starts_with(environment_name(section + ".")) || section == "job") continue;
        const std::string near = nearest(name, known);
        errors_.push_back(fmt::format(
            "{} is unknown; {}", value.where,
            near.empty() ? "syncd --help lists them" : fmt::format("did you mean {}?", near)));
      }
    }
  }

  void flags(const Flags& flags) {
    for (const auto& [key, text] : flags.settings) {
      const Setting* setting = find_setting(key);
      apply(*setting, text_value(text, fmt::format("flag {}", setting->flag)));
    }
    for (const std::string& given : flags.test_limits) {
      const std::string key = given.substr(0, given.find('='));
      const RawValue value =
          text_value(given.substr(std::min(given.size(), key.size() + 1)), "flag --test-limit");
      if (const Setting* limit = find_test_limit(key)) {
        apply(*limit, value);
      } else {
        errors_.push_back(fmt::format("{}: there is no limit {}", value.where, key));
      }
    }
  }

  void inherited(const InheritedSockets& sockets) {
    is_inherited_ = sockets.workers || sockets.control;
    const char* where = "sockets that syncd was started with";
    if (sockets.workers) {
      config_.tcp = sockets.workers->tcp;
      config_.unix_path = sockets.workers->unix_path;
      sources_["listen.tcp"] = sources_["listen.unix"] = where;
    }
    if (sockets.control) {
      config_.control = *sockets.control;
      sources_["listen.control"] = where;
    }
  }

  void embedded(const Embedded& sources) {
    TomlFile toml;
    std::string error;
    if (!read_toml_text(sources.toml, sources.toml_name, toml, error)) {
      errors_.push_back(error);
      return;
    }
    for (const auto& [key, why] : sources.refused) {
      std::erase_if(toml.entries, [&, &key = key, &why = why](const Entry& entry) {
        if (entry.key != key) return false;
        errors_.push_back(fmt::format("{}: {}: {}", entry.value.where, key, why));
        return true;
      });
    }
    take(std::move(toml));
    for (const Embedded::Given& given : sources.set) {
      apply(*find_setting(given.key), text_value(given.text, given.where));
    }
  }

  void check() {
    config_.admin_is_default = !sources_.contains("listen.admin");
    config_.store_path_is_default = !sources_.contains("store.path");
    check_tls();
    check_auth();
    check_listeners();
    check_store();
    check_cluster();
    check_thresholds();
    for (const TomlFile::Table& table : job_tables_) job(table);
  }

  std::string effective() const {
    std::string text;
    std::string section;
    for (const Setting& setting : settings()) {
      if (setting.section() != section) {
        section = setting.section();
        text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
      }
      text +=
          fmt::format("{} = {}  # {}\n", setting.name(), setting.show(config_), where(setting.key));
    }
    for (const JobSpec& spec : config_.jobs) {
      text += fmt::format("\n[[job]]  # {}\n", job_where_.at(spec.name));
      for (const JobSetting& setting : job_settings()) {
        text += fmt::format("{} = {}\n", setting.key, setting.show(spec));
      }
    }
    return text;
  }

 private:
  template <class Owner>
  bool read(const Row<Owner>& row, const char* table, const RawValue& value, Owner& owner) {
    std::string why;
    if (row.read(value, owner, why)) return true;
    errors_.push_back(fmt::format("{}: {}{} = {}: {}; allowed: {}", value.where, table, row.key,
                                  value.shown(), why.empty() ? "not allowed" : why, row.allowed));
    return false;
  }

  void apply(const Setting& setting, const RawValue& value) {
    if (read(setting, "", value, config_)) sources_[setting.key] = value.where;
  }

  void warn_retired(const Setting& limit, const RawValue& value) {
    loaded_.warnings.push_back(
        fmt::format("{}: {} no longer does anything: remove it; the next release refuses it",
                    value.where, limit.key));
  }

  void take(TomlFile&& toml) {
    std::set<std::string> unknown_sections;
    for (const auto& [section, where] : toml.sections) {
      if (!keys_of_section(section).empty()) continue;
      unknown_sections.insert(section);
      errors_.push_back(unknown_section(where, section));
    }
    for (const Entry& entry : toml.entries) {
      if (unknown_sections.contains(entry.key.substr(0, entry.key.find('.')))) continue;
      if (const Setting* setting = find_setting(entry.key)) {
        apply(*setting, entry.value);
      } else if (const Setting* limit = find_test_limit(entry.key)) {
        warn_retired(*limit, entry.value);
      } else {
        errors_.push_back(unknown_key(entry.value.where, entry.key));
      }
    }
    // Jobs take the thresholds that they do not set from [timeouts], which the environment may
    // change yet: they are read last.
    job_tables_ = std::move(toml.jobs);
  }

  bool job_key(const Entry& entry, JobSpec& spec, std::set<std::string>& seen) {
    std::vector<std::string> known;
    for (const JobSetting& setting : job_settings()) {
      known.emplace_back(setting.key);
      if (entry.key != setting.key) continue;
      seen.insert(entry.key);
      return read(setting, "job.", entry.value, spec);
    }
    const std::string near = nearest(entry.key, known);
    errors_.push_back(fmt::format("{}: unknown key job.{}; {}", entry.value.where, entry.key,
                                  near.empty()
                                      ? fmt::format("[[job]] has {}", fmt::join(known, ", "))
                                      : fmt::format("did you mean job.{}?", near)));
    return false;
  }

  void job(const TomlFile::Table& table) {
    JobSpec spec = config_.engine.defaults;
    spec.name.clear();
    std::set<std::string> seen;
    bool good = true;
    for (const Entry& entry : table.entries) good = job_key(entry, spec, seen) && good;
    for (const char* required : {"name", "expected_workers"}) {
      if (seen.contains(required)) continue;
      errors_.push_back(
          fmt::format("{}: [[job]] without {}: every job needs one", table.where, required));
      good = false;
    }
    if (!good) return;
    spec.graph_file = read_graph_file(spec.policy);
    if (std::string error = validate(spec); !error.empty()) {
      errors_.push_back(fmt::format("{}: [[job]] \"{}\": {}", table.where, spec.name, error));
      return;
    }
    const auto [first, is_new] = job_where_.emplace(spec.name, table.where);
    if (is_new) {
      config_.jobs.push_back(std::move(spec));
    } else {
      errors_.push_back(fmt::format(
          "{}: job.name = \"{}\" is used at {} already; allowed: a name that no other job has",
          table.where, spec.name, first->second));
    }
  }

  std::string where(const std::string& key) const {
    const auto found = sources_.find(key);
    return found == sources_.end() ? "default" : found->second;
  }

  void check_listeners() {
    if (config_.tcp.empty() && config_.unix_path.empty()) {
      wrong("listen.tcp",
            "listen.tcp and listen.unix are both \"off\": nobody could connect; allowed: at least "
            "one of them");
    }
    if (!config_.insecure && config_.open_to_anybody()) {
      const auto complain = [&](const std::string& key, const net::TcpAddress& address) {
        if (address.is_loopback()) return;
        wrong(
            key,
            fmt::format(
                "{} = \"{}\" can be reached from other machines, and {}: anyone there could join, "
                "push and stop jobs; allowed: TLS (tls.certificate and tls.key, which syncctl tls "
                "init makes) with authentication (tls.client_ca or auth.token_file), a localhost "
                "address (127.0.0.1:{}), or listen.insecure = true (--insecure) on a network where "
                "you trust everyone",
                key, address.text(), what_is_missing(config_), address.port));
      };
      for (const net::TcpAddress& address : config_.tcp) complain("listen.tcp", address);
      for (const net::TcpAddress& address : config_.control.tcp) {
        complain("listen.control", address);
      }
    }
    if (!config_.control.empty() && config_.control.unix_path == config_.unix_path) {
      wrong("listen.control",
            fmt::format("listen.control = \"{}\" is listen.unix, too; allowed: another path",
                        config_.unix_path));
    }
    check_admin();
    if (!sources_.contains("listen.auto_create")) {
      config_.engine.auto_create = config_.local_only() && config_.control.empty();
    }
  }

  void check_admin() {
    if (!config_.admin || config_.admin->is_loopback() || config_.insecure) return;
    if (config_.has_tls() && config_.has_auth()) return;
    wrong("listen.admin",
          fmt::format(
              "listen.admin = \"{}\" can be reached from other machines, and {}: anyone there "
              "could read what jobs run; allowed: TLS (tls.certificate and tls.key) with "
              "auth.token_file or tls.client_ca, a localhost address (127.0.0.1:{}), or "
              "listen.insecure = true",
              config_.admin->text(), what_is_missing(config_), config_.admin->port));
  }

  void check_tls() {
    tls::ServerSettings& tls = config_.tls;
    if (!sources_.contains("tls.require_client_certificate")) {
      tls.require_client_certificate = !tls.client_ca_file.empty();
    }
    const auto needs = [&](const char* key, bool given, const char* other, bool other_given) {
      if (!given || other_given) return true;
      wrong(key, fmt::format("{} is set, but {} is not; allowed: both, or neither", key, other));
      return false;
    };
    const bool certificate = config_.has_tls();
    const bool key = !tls.key_file.empty();
    const bool authority = !tls.client_ca_file.empty();
    if (!needs("tls.certificate", certificate, "tls.key", key) ||
        !needs("tls.key", key, "tls.certificate", certificate) ||
        !needs("tls.client_ca", authority, "tls.certificate", certificate) ||
        !needs("tls.require_client_certificate", tls.require_client_certificate, "tls.client_ca",
               authority) ||
        !certificate) {
      return;
    }
    std::string error;
    const auto context = tls::Context::server(tls, error);
    if (context != nullptr) error = context->facts().unfit;
    if (!error.empty()) {
      return wrong("tls.certificate", "[tls]: " + error);
    }
    const auto now_s = static_cast<std::int64_t>(std::time(nullptr));
    const tls::ServerFacts& facts = context->facts();
    if (std::string why = tls::why_not_in_force(facts.certificate, now_s); !why.empty()) {
      loaded_.certificate_problem =
          fmt::format("{}: certificate {} {}", where("tls.certificate"), tls.certificate_file, why);
    } else if (authority) {
      why = tls::why_not_in_force(tls::best_of(facts.authorities, now_s), now_s);
      if (why.empty()) return;
      loaded_.certificate_problem = fmt::format("{}: certificate authority {} {}",
                                                where("tls.client_ca"), tls.client_ca_file, why);
    }
  }

  void check_auth() {
    std::string error;
    if (net::Admission::make(config_.auth, error) != nullptr) return;
    // Somebody who puts the token in the place of the file's name must not find it in the log.
    const std::filesystem::path file = config_.auth.token_file;
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored) &&
        file.parent_path() == std::filesystem::current_path(ignored)) {
      error = fmt::format(
          "there is no such file in {} (its name is not repeated, for it might be a token); "
          "allowed: "
          "the path of a file with one token a line",
          file.parent_path().string());
    }
    wrong("auth.token_file", "auth.token_file: " + error);
  }

  void check_cluster() {
    const Config::Cluster& cluster = config_.cluster;
    if (!config_.is_member()) {
      const Config defaults;
      for (const Setting& setting : settings()) {
        const bool is_default = setting.show(config_) == setting.show(defaults);
        if (setting.section() != "cluster" || is_default) continue;
        wrong(setting.key, fmt::format("{} is set, but cluster.name is not; allowed: both, or "
                                       "neither",
                                       setting.key));
        return;
      }
      return;
    }
    const auto needs = [this](const char* key, const std::string& given, const char* other,
                              const std::string& other_given) {
      if (given.empty() || !other_given.empty()) return;
      wrong(key, fmt::format("{} is set, but {} is not; allowed: both, or neither", key, other));
    };
    if (cluster.etcd.empty()) {
      wrong("cluster.name",
            "cluster.name is set, but cluster.etcd is not; allowed: both, or "
            "neither");
    }
    const bool has_port = std::ranges::any_of(
        config_.tcp, [](const net::TcpAddress& address) { return address.port != 0; });
    if (!has_port) {
      wrong("listen.tcp",
            "a member of a cluster is reached over TCP when it leads; allowed: an address with a "
            "port other than 0 as listen.tcp");
    }
    check_ports();
    needs("cluster.certificate", cluster.certificate_file, "cluster.key", cluster.key_file);
    needs("cluster.key", cluster.key_file, "cluster.certificate", cluster.certificate_file);
    needs("cluster.user", cluster.user, "cluster.password_file", cluster.password_file);
    needs("cluster.password_file", cluster.password_file, "cluster.user", cluster.user);
    check_cluster_files();
    if (!is_name(cluster.member_name())) {
      wrong("cluster.name", fmt::format("the host's name, '{}', cannot be a member's; set "
                                        "cluster.member; allowed: 1 to 64 of A-Z a-z 0-9 . _ -",
                                        cluster.member_name()));
    }
    if (config_.store_in_memory() || !config_.durable) {
      wrong(config_.durable ? "store.path" : "store.mode",
            "a member of a cluster keeps a copy of its history, durably; allowed: store.mode = "
            "\"durable\", and a directory as store.path");
    }
    if (is_inherited_) {
      errors_.push_back(
          "sockets that syncd was started with: a member of a cluster opens its own when it leads; "
          "allowed: listen.tcp and listen.unix without socket activation");
    }
  }

  // They are read again when etcd is asked.
  void check_cluster_files() {
    const auto check = [this](const char* key, const std::string& file, bool is_pem,
                              bool is_secret) {
      if (file.empty()) return;
      std::string text;
      std::string why;
      const std::size_t bytes_max = is_pem ? kPemBytesMax : kTokenBytesMax;
      if (!(is_secret ? read_secret_file(file, bytes_max, text, why) : read_file(file, text))) {
        if (why.empty()) why = file + ": " + std::strerror(errno);
      } else if (is_pem && text.find("-----BEGIN ") == std::string::npos) {
        why = file + ": it holds no PEM text (-----BEGIN ...)";
      } else if (text.find_first_not_of('\n') == std::string::npos) {
        why = file + ": it is empty";
      }
      wipe(text);
      if (!why.empty()) loaded_.missing.push_back(fmt::format("{}: {}: {}", where(key), key, why));
    };
    check("cluster.ca", config_.cluster.ca_file, true, false);
    check("cluster.certificate", config_.cluster.certificate_file, true, false);
    check("cluster.key", config_.cluster.key_file, true, true);
    check("cluster.password_file", config_.cluster.password_file, false, true);
  }

  // The shard is added to them.
  void check_ports() {
    const auto check = [this](const char* key, const net::TcpAddress& address) {
      if (address.port + config_.cluster.shard <= UINT16_MAX) return;
      wrong(key, fmt::format("{} = \"{}\" with cluster.shard = {} added to its port is above "
                             "{}; allowed: a lower port",
                             key, address.text(), config_.cluster.shard, UINT16_MAX));
    };
    for (const net::TcpAddress& address : config_.tcp) check("listen.tcp", address);
    for (const net::TcpAddress& address : config_.control.tcp) check("listen.control", address);
    if (config_.admin) check("listen.admin", *config_.admin);
    for (const net::TcpAddress& address : config_.cluster.advertised) {
      check("cluster.advertise", address);
    }
  }

  void check_store() {
    // The default's parents are made at the start; a path that somebody chose may be a typing
    // error.
    if (config_.store_in_memory() || config_.store_path_is_default) return;
    const std::string parent = parent_of(config_.store_path);
    struct stat found {};
    const bool there = stat(parent.c_str(), &found) == 0;
    if (there && S_ISDIR(found.st_mode)) return;
    loaded_.missing.push_back(fmt::format(
        "{}: store.path = \"{}\": its parent {} {}; allowed: a directory whose parent exists, or "
        "\"memory\"",
        where("store.path"), config_.store_path, parent,
        there || errno == ENOTDIR ? "is not a directory" : "does not exist"));
  }

  void check_thresholds() {
    JobSpec defaults = config_.engine.defaults;
    defaults.name = "defaults";
    if (const std::string error = validate(defaults); !error.empty()) {
      wrong(
          sources_.contains("timeouts.warn_after") ? "timeouts.warn_after" : "timeouts.evict_after",
          "[timeouts]: " + error);
    }
  }

  // A mistake in what the setting `key` says.
  void wrong(const std::string& key, const std::string& what) {
    errors_.push_back(fmt::format("{}: {}", where(key), what));
  }

  Config& config_;
  Errors& errors_;
  Loaded& loaded_;
  Sources sources_;
  bool is_inherited_ = false;  // it was started with sockets
  Sources job_where_;          // by name
  std::vector<TomlFile::Table> job_tables_;
};

// What processes of several shards on one machine may not share.
void move_to_shard(Config& config) {
  const std::uint32_t shard = config.cluster.shard;
  const auto move_port = [shard](net::TcpAddress& address) {
    if (address.port != 0) address.port = static_cast<std::uint16_t>(address.port + shard);
  };
  const auto move_path = [shard](std::string& path) {
    if (shard != 0 && !path.empty()) path += "." + std::to_string(shard);
  };
  std::ranges::for_each(config.tcp, move_port);
  std::ranges::for_each(config.control.tcp, move_port);
  std::ranges::for_each(config.cluster.advertised, move_port);
  if (config.admin) move_port(*config.admin);
  move_path(config.unix_path);
  move_path(config.control.unix_path);
  move_path(config.store_path);
  // Not "log.3", which is what log rotation calls the third one before.
  if (shard != 0 && !config.log_file.empty()) config.log_file += "-shard" + std::to_string(shard);
}

bool finish(Loader& loader, Config& config, Loaded& loaded, const Errors& errors) {
  // What depends on several settings can only be judged if each of them is understood.
  if (errors.empty()) loader.check();
  if (!errors.empty()) return false;
  loaded.effective = loader.effective();
  move_to_shard(config);
  loaded.config = std::move(config);
  return true;
}

}  // namespace

bool Config::local_only() const {
  const auto is_local = [](const net::TcpAddress& address) { return address.is_loopback(); };
  return std::all_of(tcp.begin(), tcp.end(), is_local) &&
         std::all_of(control.tcp.begin(), control.tcp.end(), is_local);
}

Environment environment_of(const char* const* environ) {
  Environment all;
  for (; environ != nullptr && *environ != nullptr; ++environ) {
    if (const char* equals = std::strchr(*environ, '=')) {
      all.emplace_back(std::string(*environ, equals), equals + 1);
    }
  }
  return all;
}

std::vector<LogLine> warning_lines(const Loaded& loaded) {
  std::vector<LogLine> lines;
  for (const std::string& warning : loaded.warnings) {
    lines.push_back({LogLevel::kWarn, "setting_retired", {{"reason", warning}}});
  }
  return lines;
}

bool load(const Flags& flags, const Environment& environment, Loaded& loaded,
          std::vector<std::string>& errors) {
  errors.clear();
  Config config;
  Loader loader(config, errors, loaded);
  std::string file = flags.config_file;
  for (const auto& [name, value] : environment) {
    if (name == "SYNCD_CONFIG" && file.empty()) file = value;
    // A service's, of RuntimeDirectory=: elsewhere it may write nothing that others can see. Of
    // several the first, as with the store's STATE_DIRECTORY.
    if (name == "RUNTIME_DIRECTORY" && !value.empty()) {
      config.unix_path = value.substr(0, value.find(':')) + "/syncd.sock";
    }
  }
  if (!file.empty()) loader.file(file);
  loader.environment(environment);
  loader.flags(flags);
  loader.inherited(flags.inherited);
  return finish(loader, config, loaded, errors);
}

bool load_embedded(const Embedded& sources, Loaded& loaded, std::vector<std::string>& errors) {
  errors.clear();
  Config config = sources.defaults;
  Loader loader(config, errors, loaded);
  loader.embedded(sources);
  return finish(loader, config, loaded, errors);
}

}  // namespace syncd::config
