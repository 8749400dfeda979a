// See defaults.h.
#include "proto/defaults.h"

#include <unistd.h>

#include <cstdlib>

namespace syncd {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string{} : std::string(value);
}

}  // namespace

std::string default_unix_socket_path() {
  if (const std::string dir = environment("XDG_RUNTIME_DIR"); !dir.empty()) {
    return dir + "/syncd.sock";
  }
  if (geteuid() == 0) return "/run/syncd/syncd.sock";
  return "/tmp/syncd-" + std::to_string(geteuid()) + "/syncd.sock";
}

std::string default_store_path() {
  if (const std::string dir = environment("STATE_DIRECTORY"); !dir.empty()) {
    return dir.substr(0, dir.find(':'));
  }
  if (geteuid() == 0) return "/var/lib/syncd";
  if (const std::string dir = environment("XDG_STATE_HOME"); !dir.empty()) return dir + "/syncd";
  return environment("HOME") + "/.local/state/syncd";
}

}  // namespace syncd
