// Text data files: see data_file.h. No thread of its own.
#include "reference_trainer/data/data_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "proto/base/file.h"

namespace syncd::trainer {
namespace {

constexpr std::size_t kQuotedBytesMax = 40;

std::string locate(const std::filesystem::path& file, std::size_t line) {
  return line == 0 ? file.string() : fmt::format("{}:{}", file.string(), line);
}

}  // namespace

DataError::DataError(const std::filesystem::path& file, std::size_t line,
                     const std::string& message)
    : std::runtime_error(locate(file, line) + ": " + message) {}

std::string read_data_file(const std::filesystem::path& file, std::string_view expected) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw DataError(file, 0, fmt::format("cannot be opened: {}", std::strerror(errno)));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    throw DataError(file, 0, fmt::format("is not a regular file; expected {}", expected));
  }
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  const ssize_t filled = read_all(fd.get(), text);
  if (filled < 0) {
    throw DataError(file, 0, fmt::format("cannot be read: {}", std::strerror(errno)));
  }
  text.resize(static_cast<std::size_t>(filled));
  if (text.empty()) throw DataError(file, 0, fmt::format("is empty; expected {}", expected));
  return text;
}

void write_data_file(const std::filesystem::path& file, std::string_view content) {
  std::filesystem::path temporary = file;
  temporary += fmt::format(".{}.tmp", ::getpid());
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) throw DataError(file, 0, fmt::format("cannot be created: {}", std::strerror(errno)));
  const bool written = write_all(fd.get(), content) == content.size() &&
                       ::close(fd.release()) == 0 && ::rename(temporary.c_str(), file.c_str()) == 0;
  if (!written) {
    const int reason = errno;
    ::unlink(temporary.c_str());
    throw DataError(file, 0, fmt::format("cannot be written: {}", std::strerror(reason)));
  }
}

LineCursor::LineCursor(const std::filesystem::path& file, std::string_view text)
    : file_(file), rest_(text) {}

std::optional<std::string_view> LineCursor::next() {
  if (rest_.empty()) return std::nullopt;
  ++line_;
  const std::size_t end = rest_.find('\n');
  if (end == std::string_view::npos) {
    fail(
        fmt::format("the file ends inside this line ({}): it was cut off; every line must end in a "
                    "newline",
                    show_field(rest_)));
  }
  std::string_view line = rest_.substr(0, end);
  rest_.remove_prefix(end + 1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

void LineCursor::fail(const std::string& message) const {
  throw DataError(file_, line_, message);
}

std::string show_field(std::string_view field) {
  std::string text = "'";
  for (const char c : field.substr(0, kQuotedBytesMax)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == '\t') {
      text += "\\t";
    } else if (byte < 0x20 || byte >= 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  text += field.size() > kQuotedBytesMax ? "'..." : "'";
  return text;
}

std::optional<std::uint64_t> parse_unsigned(std::string_view field) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc{} || end != field.data() + field.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view field) {
  if (!field.empty() && field.front() == '+') {
    field.remove_prefix(1);
    if (!field.empty() && field.front() == '-') return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc{} || end != field.data() + field.size()) return std::nullopt;
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

void split_fields(std::string_view line, char separator, std::vector<std::string_view>& fields) {
  fields.clear();
  std::size_t start = 0;
  for (;;) {
    const std::size_t end = line.find(separator, start);
    if (end == std::string_view::npos) break;
    fields.push_back(line.substr(start, end - start));
    start = end + 1;
  }
  fields.push_back(line.substr(start));
}

}  // namespace syncd::trainer
