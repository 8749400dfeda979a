// See connection.h.
#include "daemon/tools/ctl/connection.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "proto/transport/secret_file.h"

namespace syncd::ctl {
namespace {

std::string given_or_variable(const std::string& given, const char* variable) {
  const char* value = given.empty() ? std::getenv(variable) : nullptr;
  return value != nullptr ? value : given;
}

}  // namespace

bool how_to_ask(const Options& options, Address& address, std::string& error) {
  const std::string addresses = given_or_variable(options.addresses, "SYNCD_ADDR");
  address.endpoints = client::default_endpoints();
  if (!addresses.empty() && !client::parse_endpoints(addresses, address.endpoints, error)) {
    return false;
  }
  const std::string token_file = given_or_variable(options.token_file, "SYNCD_TOKEN_FILE");
  if (!token_file.empty() && !read_token_file(token_file, address.token, error)) return false;
  address.tls.server_name = given_or_variable(options.server_name, "SYNCD_SERVER_NAME");
  return client::make_tls(address.endpoints,
                          {given_or_variable(options.ca_file, "SYNCD_CA_FILE"),
                           given_or_variable(options.certificate_file, "SYNCD_CERTIFICATE_FILE"),
                           given_or_variable(options.key_file, "SYNCD_KEY_FILE")},
                          address.tls, error);
}

void add_connection_options(CLI::App& app, Options& options) {
  app.add_option("--addr", options.addresses,
                 "Up to 16 addresses to try in turn, comma-separated: unix:PATH, tls:HOST:PORT, "
                 "tcp:HOST:PORT or HOST:PORT "
                 "(default: the default Unix socket, then 127.0.0.1:7117)");
  app.add_option("--token-file", options.token_file, "File that holds the shared token");
  app.add_option("--ca", options.ca_file,
                 "For tls: addresses: the authority that signed the daemon's certificate (PEM)");
  app.add_option("--certificate", options.certificate_file, "This client's certificate (PEM)");
  app.add_option("--key", options.key_file, "Its private key (PEM)");
  app.add_option("--server-name", options.server_name,
                 "The name that the daemon's certificate must have (default: the address's host)");
  app.add_option("--timeout-ms", options.timeout_ms, "How long to wait for each answer")
      ->check(CLI::Range(1, 600000))
      ->capture_default_str();
  app.add_flag("--json", options.json, "Print JSON instead of a table");
}

}  // namespace syncd::ctl
