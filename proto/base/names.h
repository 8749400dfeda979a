// What may be a name, or the host in an address. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace syncd {

// 1 to `bytes_max` of A-Z a-z 0-9 . _ -, as the names of jobs, phases, tokens and clients have.
bool is_name(std::string_view text, std::size_t bytes_max = 64);

// This machine's name; "localhost" if it has none.
std::string this_host();

// Letters, digits, ".", "-" and "_", at most 255 of them (DNS's own limit); so has an IPv4 address.
bool is_host_name(std::string_view host);

// "::1", or "fe80::1%eth0", whose scope is for getaddrinfo to understand.
bool is_ipv6_address(std::string_view host);

}  // namespace syncd
