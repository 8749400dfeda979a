// See connection.h.
#include "daemon/tools/ctl/connection.h"

#include <algorithm>
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
  const auto is_tls = [](const client::Endpoint& endpoint) {
    return endpoint.kind == client::Endpoint::Kind::kTls;
  };
  if (std::any_of(address.endpoints.begin(), address.endpoints.end(), is_tls)) {
    address.tls.context =
        tls::Context::client({given_or_variable(options.ca_file, "SYNCD_CA_FILE"),
                              given_or_variable(options.certificate_file, "SYNCD_CERTIFICATE_FILE"),
                              given_or_variable(options.key_file, "SYNCD_KEY_FILE")},
                             error);
    if (address.tls.context == nullptr) return false;
  }
  return true;
}

}  // namespace syncd::ctl
