// The command line's half of connection.h, which is slow to compile.
#include <CLI/CLI.hpp>

#include "daemon/tools/ctl/connection.h"

namespace syncd::ctl {

void add_connection_options(CLI::App& app, Options& options) {
  app.add_option(
      "--addr", options.addresses,
      "Addresses to try in turn, comma-separated: unix:PATH, tls:HOST:PORT, tcp:HOST:PORT "
      "or HOST:PORT "
      "(default: the default Unix socket, then 127.0.0.1:7117)");
  app.add_option("--token-file", options.token_file, "File that holds the shared token");
  app.add_option("--ca", options.ca_file,
                 "For tls: addresses: who may sign the daemon's certificate");
  app.add_option("--certificate", options.certificate_file, "This client's certificate (PEM)");
  app.add_option("--key", options.key_file, "Its private key (PEM)");
  app.add_option(
      "--server-name", options.server_name,
      "For whom the daemon's certificate must be made out (default: the address's host)");
  app.add_option("--timeout-ms", options.timeout_ms, "How long to wait for each answer")
      ->check(CLI::Range(1, 600000))
      ->capture_default_str();
  app.add_flag("--json", options.json, "Print JSON instead of a table");
}

}  // namespace syncd::ctl
