// The daemon's configuration: one struct, filled once from defaults, a TOML file, the environment
// and flags (later ones win), checked as a whole, and never changed again. Pure functions; any
// thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/effects.h"
#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/job_spec.h"
#include "daemon/core/engine/limits.h"
#include "daemon/edge/net/address.h"
#include "daemon/edge/net/admission.h"
#include "daemon/edge/net/network_limits.h"
#include "proto/base/defaults.h"
#include "proto/base/names.h"
#include "proto/transport/tls.h"

namespace syncd::config {

struct Addresses {
  std::vector<net::TcpAddress> tcp;
  std::string unix_path;  // empty: no Unix socket

  bool empty() const { return tcp.empty() && unix_path.empty(); }
};

// What a server and its parts use lies here as they use it.
struct Config {
  // [listen]
  std::vector<net::TcpAddress> tcp = {{"127.0.0.1", kDefaultPort}};
  std::string unix_path = default_unix_socket_path();  // empty: no Unix socket
  unsigned unix_mode = 0600;
  bool insecure = false;
  std::optional<net::TcpAddress> admin = net::TcpAddress{"127.0.0.1", kDefaultAdminPort};
  bool admin_is_default = true;  // no source sets it: a busy port is only a warning
  // The only place for administrative requests; none: wherever workers connect.
  Addresses control;

  // [tls]
  tls::ServerSettings tls;  // no certificate_file: TCP is not encrypted
  bool has_tls() const { return !tls.certificate_file.empty(); }

  // [auth]
  net::AdmissionRules auth;
  // Whether clients on other machines need a credential.
  bool has_auth() const { return !auth.token_file.empty() || tls.require_client_certificate; }

  // [store]
  std::string store_path = default_store_path();  // or "memory"
  bool store_path_is_default = true;
  bool durable = true;
  Micros retention_us = Micros{7} * 24 * 3600 * 1'000'000;  // 0: for ever
  std::uint64_t retention_bytes = std::uint64_t{1} << 30;   // of each job; 0: any number

  // [cluster]
  struct Cluster {
    std::string name;    // empty: this daemon is no member of one
    std::string member;  // empty: the host's name
    std::vector<std::string> etcd;
    std::string ca_file;           // of etcd; empty: the system's authorities
    std::string certificate_file;  // with key_file: what this member shows to etcd; empty: none
    std::string key_file;
    std::string user;  // of etcd, with password_file; empty: etcd asks for none
    std::string password_file;
    Micros lease_us = 5'000'000;
    bool old_etcd = false;
    std::uint64_t etcd_quota_bytes = std::uint64_t{2} << 30;  // etcd's own default
    std::uint32_t shard = 0;                                  // that this process serves or follows
    std::vector<net::TcpAddress> advertised;  // how clients reach it; empty: as it listens

    std::string member_name() const { return member.empty() ? this_host() : member; }
  } cluster;
  bool is_member() const { return !cluster.name.empty(); }

  // [limits] and [timeouts]
  net::NetworkLimits network = {.handshakes_per_machine_per_s = 200};
  net::ConnectionLimits connection;
  // Its `auto_create` is by default on if only this machine can join, its `defaults` are for jobs
  // that do not set their own.
  EngineOptions engine = {.defaults = {}, .workers_per_job_max = limits::kWorkersPerJobDefault};
  std::uint32_t jobs_per_identity_max = limits::kJobsMax;
  std::size_t store_queue_records_max = limits::kStoreQueueRecordsMax;
  std::size_t store_queue_bytes_max = limits::kStoreQueueBytesMax;
  Micros shutdown_timeout_us = 10'000'000;
  Micros exit_when_idle_us = 0;  // 0: never

  // [log]
  LogLevel log_level = LogLevel::kInfo;
  std::string log_file;  // empty: standard error

  std::vector<JobSpec> jobs;  // [[job]]

  bool store_in_memory() const { return store_path == "memory"; }
  // Every address is one that only this machine reaches.
  bool local_only() const;
  // Others can reach it, and neither is what they say hidden nor are they asked who they are.
  bool open_to_anybody() const { return !local_only() && !(has_tls() && has_auth()); }
};

// Sockets that the daemon was started with. Those for workers replace listen.tcp and listen.unix,
// those for control replace listen.control, whatever the other sources say.
struct InheritedSockets {
  std::optional<Addresses> workers;
  std::optional<Addresses> control;
};

// What the command line said. A setting's value is found by its key, such as "store.mode".
struct Flags {
  std::string config_file;
  std::string ready_file;  // where to write, once it listens, where
  bool check_config = false;
  bool store_salvage = false;
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<std::string> test_limits;  // "KEY=VALUE"
  InheritedSockets inherited;            // not of the command line, but as constant
};

enum class Command {
  kRun,
  kPrint,  // --help or --version: `text` is for standard output, exit 0
  kUsage,  // `text` says what is wrong
};
Command parse_command_line(int argc, const char* const* argv, const std::string& version,
                           Flags& flags, std::string& text);

// Name and value of each environment variable, as in environ.
using Environment = std::vector<std::pair<std::string, std::string>>;
Environment environment_of(const char* const* environ);

struct Loaded {
  Config config;
  std::string effective;  // the whole as TOML, with where each value comes from as comments
  std::vector<std::string> warnings;  // a sentence for each setting that no longer does anything
  // A sentence for each thing that is not there, or not whole, which is no mistake of the
  // configuration's own: the store's directory may only not be mounted yet, a certificate be
  // renewed just now.
  std::vector<std::string> missing;
  // One sentence if a certificate is not in force at this time, which is no mistake of the
  // configuration's own either. Empty: all are.
  std::string certificate_problem;
};

// The warnings as lines of the log.
std::vector<LogLine> warning_lines(const Loaded& loaded);

// Reads and checks everything. False: `errors` has one sentence for each mistake, with file and
// line (or variable, or flag), key, value, and what is allowed.
bool load(const Flags& flags, const Environment& environment, Loaded& loaded,
          std::vector<std::string>& errors);

// What a program that embeds the daemon gives instead of a file, an environment and flags.
struct Embedded {
  // A setting as text, and where it was given: {"listen.tcp", "127.0.0.1:0", "options.tcp"}.
  struct Given {
    std::string key;
    std::string text;
    std::string where;
  };
  Config defaults;         // for settings that are not given
  std::string toml;        // like a configuration file
  std::string toml_name;   // in the place of a file's name in messages
  std::vector<Given> set;  // wins over the text
  // Keys that cannot be honoured, each with a sentence why.
  std::vector<std::pair<std::string, std::string>> refused;
};

// The same as load() for these sources. It reads neither environment nor files.
bool load_embedded(const Embedded& sources, Loaded& loaded, std::vector<std::string>& errors);

}  // namespace syncd::config
