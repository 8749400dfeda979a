// Certificates of one test's own, and files that hold them with the rights that they need. One
// thread.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/tools/ctl/certificates.h"

namespace syncd::test {

inline constexpr std::int64_t kDayS = 86'400;

// A file that nobody else can read, made anew.
inline void write_private_file(const std::string& path, std::string_view text,
                               unsigned mode = 0600) {
  ::unlink(path.c_str());
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool written = fd >= 0 &&
                       ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::fchmod(fd, mode) == 0;
  if (fd >= 0) ::close(fd);
  if (!written) throw std::runtime_error("cannot write " + path);
}

// An authority and what it has signed, as files `DIRECTORY/NAME.crt` and `.key`.
class TlsFiles {
 public:
  explicit TlsFiles(std::string directory, const std::string& name = "ca")
      : directory_(std::move(directory)),
        name_(name),
        authority_(ctl::make_authority("test authority " + name, kDayS)) {
    write_private_file(certificate(name), authority_.certificate);
  }

  std::string ca() const { return certificate(name_); }
  std::string certificate(const std::string& name) const {
    return directory_ + "/" + name + ".crt";
  }
  std::string key(const std::string& name) const { return directory_ + "/" + name + ".key"; }

  void make(const std::string& name, ctl::CertificateOptions options) const {
    options.common_name = name;
    if (options.valid_until_s == 0) options.valid_until_s = kDayS;
    const ctl::CertificateAndKey made = ctl::make_certificate(authority_, options);
    write_private_file(certificate(name), made.certificate);
    write_private_file(key(name), made.key);
  }
  void make_server(const std::string& name = "server",
                   const std::vector<std::string>& names = {"127.0.0.1", "localhost"}) const {
    make(name, {.names = names, .for_server = true});
  }
  void make_client(const std::string& name, const std::vector<std::string>& names) const {
    make(name, {.names = names, .for_client = true});
  }

 private:
  std::string directory_;
  std::string name_;
  ctl::CertificateAndKey authority_;
};

}  // namespace syncd::test
