#include "proto/base/names.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace syncd {
namespace {

constexpr std::size_t kHostBytesMax = 255;

}  // namespace

bool is_name(std::string_view text, std::size_t bytes_max) {
  constexpr std::string_view kCharacters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  return !text.empty() && text.size() <= bytes_max &&
         text.find_first_not_of(kCharacters) == std::string_view::npos;
}

std::string this_host() {
  char name[kHostBytesMax + 1] = {};
  return gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

bool is_host_name(std::string_view host) {
  return host.empty() || is_name(host, kHostBytesMax);
}

bool is_ipv6_address(std::string_view host) {
  in6_addr parsed{};
  const std::string bare(host.substr(0, host.find('%')));
  // inet_pton() ends at a zero, and says nothing of the scope.
  const auto is_plain = [](char c) { return c > ' ' && c < 0x7f && c != '['; };
  return host.size() <= kHostBytesMax && std::all_of(host.begin(), host.end(), is_plain) &&
         inet_pton(AF_INET6, bare.c_str(), &parsed) == 1;
}

}  // namespace syncd
