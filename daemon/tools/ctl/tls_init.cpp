// See tls_init.h.
#include "daemon/tools/ctl/tls_init.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "daemon/tools/ctl/certificates.h"
#include "daemon/tools/ctl/commands.h"
#include "proto/base/defaults.h"
#include "proto/base/file.h"
#include "proto/base/names.h"
#include "proto/base/plain_text.h"
#include "proto/transport/secret_file.h"

namespace syncd::ctl {
namespace {

constexpr std::int64_t kDayS = 86'400;
constexpr std::int64_t kAuthorityDays = 3650;
constexpr std::size_t kKeyBytesMax = 64 * 1024;

// Below, std::invalid_argument is a mistake on the command line, std::runtime_error a file that
// cannot be read or made.

std::string joined(const std::string& directory, const std::string& name) {
  return directory + "/" + name;
}

void write_new(const std::string& path, const std::string& text, mode_t mode) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd) {
    throw std::runtime_error(path + ": " + std::strerror(errno) +
                             (errno == EEXIST ? "; nothing is written over: remove it, or "
                                                "choose another directory or name"
                                              : ""));
  }
  const bool written = write_all(fd.get(), text) == text.size() && fsync(fd.get()) == 0;
  const int code = errno;
  if (close(fd.release()) == 0 && written) return;
  const int reason = written ? errno : code;
  unlink(path.c_str());
  throw std::runtime_error(path + ": " + std::strerror(reason));
}

struct NewFile {
  std::string name;
  std::string text;
  mode_t mode;
};

// All of them or, if one fails, none: what was made would stand in the way of the next try.
void write_files(const std::string& directory, const std::vector<NewFile>& files) {
  std::vector<std::string> made;
  try {
    for (const NewFile& file : files) {
      write_new(joined(directory, file.name), file.text, file.mode);
      made.push_back(joined(directory, file.name));
    }
    if (!sync_to_disk(directory)) {
      throw std::runtime_error(directory + ": " + std::strerror(errno));
    }
  } catch (...) {
    for (const std::string& path : made) unlink(path.c_str());
    throw;
  }
}

void add_pair(std::vector<NewFile>& files, const std::string& name, const CertificateAndKey& pair) {
  files.push_back({name + ".key", pair.key, 0600});
  files.push_back({name + ".crt", pair.certificate, 0644});
}

void check_name(const std::string& name) {
  // It would stand in the certificate as an address, which no rule of the daemon's can name.
  in_addr address{};
  const bool numeric = inet_pton(AF_INET, name.c_str(), &address) == 1;
  const bool taken = name == "ca" || name == "server" || name == "syncd" || name.starts_with('.');
  if (!is_name(name) || taken || numeric) {
    throw std::invalid_argument("'" + name +
                                "' cannot name a client; allowed: 1 to 64 of A-Z a-z 0-9 . _ -, "
                                "not ca, server or syncd, not an address, no dot at the start");
  }
}

CertificateAndKey client_certificate(const CertificateAndKey& authority,
                                     const TlsOptions& options) {
  CertificateOptions wanted;
  wanted.common_name = options.name;
  wanted.names = {options.name};
  wanted.for_client = true;
  wanted.valid_until_s = options.days * kDayS;
  return make_certificate(authority, wanted);
}

std::string configuration(const std::string& directory) {
  return fmt::format(
      R"(# A daemon for other machines, too: it speaks TLS 1.3 and accepts only clients that ca.crt signed.
[listen]
tcp = "0.0.0.0:{0}"
auto_create = true   # a worker's join makes its job, as on one machine

[tls]
certificate = "{1}/server.crt"
key = "{1}/server.key"
client_ca = "{1}/ca.crt"
)",
      kDefaultPort, directory);
}

void init(const TlsOptions& options, std::ostream& out) {
  check_name(options.name);
  const std::string directory = std::filesystem::absolute(options.directory).lexically_normal();
  if (directory.find_first_of("\"\\") != std::string::npos || !is_plain(directory)) {
    throw std::invalid_argument("'" + directory + "' cannot be written into a configuration file");
  }
  std::vector<std::string> hosts = options.hosts;
  if (hosts.empty()) hosts.push_back(this_host());
  for (const std::string& host : hosts) {
    if ((is_host_name(host) && !host.empty()) || is_ipv6_address(host)) continue;
    throw std::invalid_argument("--host '" + plain(host) +
                                "' is no host; allowed: a DNS name or a numeric address, without "
                                "a port");
  }
  const std::string first = hosts.front();
  // Tools on the same machine name it so.
  for (const char* local : {"localhost", "127.0.0.1", "::1"}) {
    if (std::find(hosts.begin(), hosts.end(), local) == hosts.end()) hosts.emplace_back(local);
  }
  const CertificateAndKey authority =
      make_authority("syncd authority of " + first, kAuthorityDays * kDayS);
  CertificateOptions server;
  server.common_name = "syncd";
  server.names = hosts;
  server.for_server = true;
  server.valid_until_s = options.days * kDayS;
  const CertificateAndKey of_server = make_certificate(authority, server);
  const CertificateAndKey of_client = client_certificate(authority, options);

  std::error_code ignored;  // what matters of it shows below
  std::filesystem::create_directories(std::filesystem::path(directory).parent_path(), ignored);
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    throw std::runtime_error(directory + ": " + std::strerror(errno));
  }
  struct stat found {};
  if (stat(directory.c_str(), &found) == 0 &&
      ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0 || found.st_uid != geteuid())) {
    throw std::runtime_error(directory +
                             ": others may write in it, and could replace the authority; "
                             "allowed: a directory of your own, of mode 0700 or "
                             "0755");
  }
  std::vector<NewFile> files;
  add_pair(files, "ca", authority);
  add_pair(files, "server", of_server);
  add_pair(files, options.name, of_client);
  files.push_back({"syncd.toml", configuration(directory), 0644});
  write_files(directory, files);

  out << fmt::format(
      R"(made in {dir}: ca, server and {name} (.crt and .key each), and syncd.toml
start the daemon:
  syncd --config {dir}/syncd.toml
on a worker's machine, with ca.crt, {name}.crt and {name}.key:
  export SYNCD_ADDR=tls:{host}:{port} SYNCD_CA_FILE=ca.crt SYNCD_CERTIFICATE_FILE={name}.crt SYNCD_KEY_FILE={name}.key
for a daemon that runs as a user of its own, such as the service: chown -R syncd: {dir}
keep ca.key offline: it can sign any certificate
)",
      fmt::arg("dir", directory), fmt::arg("name", options.name), fmt::arg("host", first),
      fmt::arg("port", kDefaultPort));
}

CertificateAndKey read_authority(const std::string& directory) {
  CertificateAndKey authority;
  std::string error;
  if (!read_secret_file(joined(directory, "ca.key"), kKeyBytesMax, authority.key, error)) {
    throw std::runtime_error(error);
  }
  if (!read_file(joined(directory, "ca.crt"), authority.certificate)) {
    throw std::runtime_error(joined(directory, "ca.crt") + " cannot be read");
  }
  return authority;
}

void issue(const TlsOptions& options, std::ostream& out) {
  check_name(options.name);
  std::vector<NewFile> files;
  add_pair(files, options.name, client_certificate(read_authority(options.directory), options));
  write_files(options.directory, files);
  out << fmt::format("made in {0}: {1}.crt and {1}.key, of identity cert:{1}\n", options.directory,
                     options.name);
}

// Whoever may read the old one may read it.
void replace(const std::string& path, const std::string& text) {
  struct stat old {};
  const std::string part = path + ".new";
  if (stat(path.c_str(), &old) != 0) throw std::runtime_error(path + ": " + std::strerror(errno));
  write_new(part, text, old.st_mode & 0777U);
  const bool is_its_owners = old.st_uid == geteuid() && old.st_gid == getegid();
  if ((!is_its_owners && chown(part.c_str(), old.st_uid, old.st_gid) != 0) ||
      chmod(part.c_str(), old.st_mode & 0777U) != 0 || rename(part.c_str(), path.c_str()) != 0 ||
      !sync_to_disk(parent_of(path))) {
    const int reason = errno;
    unlink(part.c_str());
    throw std::runtime_error(path + ": " + std::strerror(reason));
  }
}

void renew(const TlsOptions& options, std::ostream& out) {
  const bool is_server = options.name == "server";
  if (!is_server) check_name(options.name);
  const std::string path = joined(options.directory, options.name + ".crt");
  const CertificateAndKey authority = read_authority(options.directory);
  std::string old;
  if (!read_file(path, old)) throw std::runtime_error(path + " cannot be read");
  try {
    replace(path, renew_certificate(authority, old, options.days * kDayS));
  } catch (const std::runtime_error& wrong) {
    throw std::runtime_error(path + ": " + wrong.what());
  }
  out << fmt::format("made anew: {}, valid for {} days; {}.key is the same\n", path, options.days,
                     options.name);
  if (is_server) out << "the daemon takes it when it is reloaded: systemctl reload syncd\n";
}

int run(void (*what)(const TlsOptions&, std::ostream&), const TlsOptions& options,
        std::ostream& out, std::ostream& err) {
  try {
    what(options, out);
    return kExitOk;
  } catch (const std::invalid_argument& wrong) {
    err << "syncctl: " << wrong.what() << "\n";
    return kExitUsage;
  } catch (const std::runtime_error& wrong) {
    err << "syncctl: " << wrong.what() << "\n";
    return kExitStore;
  }
}

}  // namespace

int run_tls_init(const TlsOptions& options, std::ostream& out, std::ostream& err) {
  return run(init, options, out, err);
}

int run_tls_issue(const TlsOptions& options, std::ostream& out, std::ostream& err) {
  return run(issue, options, out, err);
}

int run_tls_renew(const TlsOptions& options, std::ostream& out, std::ostream& err) {
  return run(renew, options, out, err);
}

}  // namespace syncd::ctl
