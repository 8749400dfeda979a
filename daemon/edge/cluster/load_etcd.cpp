// See etcd.h.
#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "daemon/edge/cluster/etcd.h"
#include "daemon/edge/cluster/module.h"
#include "proto/base/environment.h"
#include "proto/base/file.h"
#include "proto/transport/secret_file.h"

namespace syncd::cluster {
namespace {

namespace fs = std::filesystem;

constexpr char kBuild[] = SYNCD_VERSION "/" SYNCD_CLUSTER_INTERFACE;
constexpr char kVariable[] = "SYNCD_ETCD_MODULE";
constexpr std::size_t kPemBytesMax = 1 << 20;

// ---- options

bool is_port(std::string_view text) {
  if (text.empty() || text.size() > 5) return false;
  unsigned port = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    port = port * 10 + static_cast<unsigned>(c - '0');
  }
  return port >= 1 && port <= 65535;
}

// A name, an IPv4 address, or an IPv6 address in brackets. gRPC takes other texts for addresses of
// its own kinds ("unix:..."), or for several.
bool is_host(std::string_view text) {
  const bool brackets = text.size() > 2 && text.front() == '[' && text.back() == ']';
  if (brackets) text = text.substr(1, text.size() - 2);
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    return letter || c == '.' || (brackets ? c == ':' : c == '-' || c == '_');
  });
}

bool parse_endpoint(const std::string& text, EtcdAccess::Endpoint& endpoint) {
  constexpr std::string_view kPlain = "http://";
  constexpr std::string_view kTls = "https://";
  std::string_view rest = text;
  if (rest.starts_with(kTls)) {
    endpoint.tls = true;
    rest.remove_prefix(kTls.size());
  } else if (rest.starts_with(kPlain)) {
    rest.remove_prefix(kPlain.size());
  } else {
    return false;
  }
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || !is_host(rest.substr(0, colon)) ||
      !is_port(rest.substr(colon + 1))) {
    return false;
  }
  endpoint.name = text;
  endpoint.address = rest;
  return true;
}

bool read_pem(const char* option, const std::string& path, std::string& text, std::string& error) {
  errno = 0;
  if (!read_file(path, text)) {
    const int cause = errno;
    error = std::string(option) + ": " + path + ": " +
            (cause == 0 ? "it cannot be read" : std::generic_category().message(cause));
    return false;
  }
  if (text.find("-----BEGIN ") == std::string::npos) {
    error = std::string(option) + ": " + path + ": it holds no PEM text (-----BEGIN ...)";
    return false;
  }
  return true;
}

bool read_files(const EtcdOptions& options, EtcdAccess& access, std::string& error) {
  if (!options.ca_file.empty() && !read_pem("cluster.ca", options.ca_file, access.ca, error)) {
    return false;
  }
  if (options.certificate_file.empty() != options.key_file.empty()) {
    error = options.key_file.empty()
                ? "cluster.certificate is set (" + options.certificate_file +
                      "), but cluster.key is not"
                : "cluster.key is set (" + options.key_file + "), but cluster.certificate is not";
    error += ": set both or neither";
    return false;
  }
  if (options.key_file.empty()) return true;
  if (!read_pem("cluster.certificate", options.certificate_file, access.certificate, error))
    return false;
  std::string why;
  if (!read_secret_file(options.key_file, kPemBytesMax, access.key, why)) {
    error = "cluster.key: " + why;
    return false;
  }
  return true;
}

bool check(const EtcdOptions& options, EtcdAccess& access, std::string& error) {
  if (options.endpoints.empty()) {
    error =
        "cluster.etcd is empty: it takes one address of etcd or more, as http://HOST:PORT or "
        "https://HOST:PORT";
    return false;
  }
  for (const std::string& text : options.endpoints) {
    if (!parse_endpoint(text, access.endpoints.emplace_back())) {
      error = "cluster.etcd: '" + text +
              "' is no address of etcd; allowed: http://HOST:PORT and https://HOST:PORT, with an "
              "IPv6 address in brackets";
      return false;
    }
  }
  if (options.user.empty() && !options.password.empty()) {
    error = "a password for etcd is set, but cluster.user is not: set both or neither";
    return false;
  }
  if (options.silence <= 0) {
    error = "an endpoint of etcd must have more than 0 s to answer";
    return false;
  }
  if (!read_files(options, access, error)) return false;
  access.user = options.user;
  access.password = options.password;
  access.silence = options.silence;
  return true;
}

// ---- the module

// The directory of the program or library that this code is in.
fs::path own_directory() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  Dl_info found{};
  const bool named =
      dladdr(reinterpret_cast<const void*>(&open_etcd), &found) != 0 && found.dli_fname != nullptr;
  // Of a program this is what it was called by, which may be relative to another directory.
  const fs::path file = named ? fs::path(found.dli_fname) : fs::path();
  return (file.is_absolute() && file.filename() != program.filename() ? file : program)
      .parent_path();
}

// Where a module may lie: of an installed program or library, and of a tree that was built.
std::vector<fs::path> places() {
  const fs::path own = own_directory();
  const fs::path prefix = own.parent_path();
  return {prefix / SYNCD_LIBDIR / "syncd" / kModuleFile, own / "syncd" / kModuleFile,
          prefix / "lib" / kModuleFile};
}

bool find_module(std::string& path, std::string& error) {
  path = environment(kVariable);
  std::error_code ignored;
  if (!path.empty()) {
    if (fs::exists(path, ignored)) return true;
    error = std::string(kVariable) + " names " + path + ", which is not there";
    return false;
  }
  std::string looked;
  for (const fs::path& place : places()) {
    if (fs::exists(place, ignored)) {
      path = place;
      return true;
    }
    looked += (looked.empty() ? "" : ", ") + place.string();
  }
  error = "[cluster] needs the package syncd-cluster, which is not installed: install it, or set " +
          std::string(kVariable) + " to its syncd-cluster.so (looked for: " + looked + ")";
  return false;
}

OpenEtcd* load(const std::string& path, std::string& error) {
  // It stays: gRPC's threads outlive every call.
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* symbol = module == nullptr ? nullptr : dlsym(module, kOpenEtcdName);
  if (symbol == nullptr) {
    const char* why = dlerror();
    error = "the module for [cluster] cannot be loaded: " +
            std::string(why == nullptr ? path + " lacks its entry" : why);
  }
  return reinterpret_cast<OpenEtcd*>(symbol);
}

}  // namespace

std::unique_ptr<Etcd> open_etcd(const EtcdOptions& options, std::string& error) {
  EtcdAccess access;
  std::string path;
  if (!check(options, access, error) || !find_module(path, error)) return nullptr;
  OpenEtcd* const open = load(path, error);
  if (open == nullptr) return nullptr;
  Etcd* etcd = nullptr;
  const std::string build = open(kBuild, access, etcd, error);
  wipe(access.key);
  wipe(access.password);
  if (build != kBuild) {
    error = path + " is of another build of syncd (" + build + ", and this is " + kBuild +
            "): install syncd and syncd-cluster of the same version";
    return nullptr;
  }
  return std::unique_ptr<Etcd>(etcd);
}

}  // namespace syncd::cluster
