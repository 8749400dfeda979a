// See defaults.h.
#include "proto/base/defaults.h"

#include <pwd.h>
#include <unistd.h>

#include <vector>

#include "proto/base/environment.h"

namespace syncd {
namespace {

// A service or container may have no HOME: then what the user database says.
std::string home() {
  if (std::string dir = environment("HOME"); !dir.empty()) return dir;
  std::vector<char> buffer(16 * 1024);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr) {
    return "";
  }
  return found->pw_dir;
}

// A service can write only within its state directory, and salvaging a store makes others beside
// it. What was a store itself, before there was a folder for it, still is.
std::string store_within(const std::string& directory) {
  return access((directory + "/CURRENT").c_str(), F_OK) == 0 ? directory : directory + "/store";
}

}  // namespace

std::string default_unix_socket_path() {
  // The same for root with and without a login session: a system's daemon has none.
  if (geteuid() == 0) return "/run/syncd/syncd.sock";
  if (const std::string dir = environment("XDG_RUNTIME_DIR"); !dir.empty()) {
    return dir + "/syncd.sock";
  }
  return "/tmp/syncd-" + std::to_string(geteuid()) + "/syncd.sock";
}

std::string default_store_path() {
  if (const std::string dir = environment("STATE_DIRECTORY"); !dir.empty()) {
    return store_within(dir.substr(0, dir.find(':')));
  }
  if (geteuid() == 0) return store_within("/var/lib/syncd");
  if (const std::string dir = environment("XDG_STATE_HOME"); !dir.empty()) return dir + "/syncd";
  return home() + "/.local/state/syncd";
}

}  // namespace syncd
