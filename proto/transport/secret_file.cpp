// See secret_file.h.
#include "proto/transport/secret_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "proto/base/file.h"

namespace syncd {
namespace {

std::string octal(unsigned mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", mode & 07777U);
  return text;
}

}  // namespace

bool read_secret_file(const std::string& path, std::size_t bytes_max, std::string& text,
                      std::string& error) {
  // Not blocking, so that a FIFO is refused rather than waited for.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat found {};
  if (!fd || fstat(fd.get(), &found) != 0) {
    error = path + ": " + std::generic_category().message(errno);
    return false;
  }
  if (!S_ISREG(found.st_mode)) {
    error = path + ": it is not a regular file";
    return false;
  }
  if ((found.st_mode & S_IRWXO) != 0) {
    error = path + ": every user of this machine has a right to it (mode " + octal(found.st_mode) +
            "), but it holds a secret; allowed: 0600 or 0640, as in chmod 0600 " + path;
    return false;
  }
  std::string whole(bytes_max + 1, '\0');
  const ssize_t size = read_all(fd.get(), whole);
  if (size < 0 || static_cast<std::size_t>(size) > bytes_max) {
    error = path + ": " +
            (size < 0 ? std::generic_category().message(errno)
                      : "it has more than " + std::to_string(bytes_max) + " bytes");
    wipe(whole);
    return false;
  }
  whole.resize(static_cast<std::size_t>(size));
  text = std::move(whole);
  return true;
}

bool read_token_file(const std::string& path, std::string& token, std::string& error) {
  std::string text;
  std::string why;
  if (!read_secret_file(path, kTokenBytesMax, text, why)) {
    error = "token file " + why;
    return false;
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty()) {
    error = "token file " + path + ": it is empty";
    return false;
  }
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  if (is_blank(text.front()) || is_blank(text.back())) {
    error =
        "token file " + path + ": a blank stands before or after the token; allowed are none there";
    wipe(text);
    return false;
  }
  token = std::move(text);
  return true;
}

void wipe(std::string& secret) {
  explicit_bzero(secret.data(), secret.size());
  secret.clear();
}

}  // namespace syncd
