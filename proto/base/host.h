// What may stand for a host in an address. Pure functions; any thread.
#pragma once

#include <string_view>

namespace syncd {

// Letters, digits, ".", "-" and "_", at most 255 of them (DNS's own limit); so has an IPv4 address.
bool is_host_name(std::string_view host);

// "::1", or "fe80::1%eth0", whose scope is for getaddrinfo to understand.
bool is_ipv6_address(std::string_view host);

}  // namespace syncd
