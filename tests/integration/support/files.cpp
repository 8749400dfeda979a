// See files.h.
#include "support/files.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace syncd::test {

TempDir::TempDir(const std::string& parent)
    : path_(std::filesystem::absolute(parent) / "syncd-it-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) {
    throw std::runtime_error("cannot make a directory below " + parent);
  }
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

bool others_may_enter(const std::string& directory) {
  namespace fs = std::filesystem;
  return (fs::status(directory).permissions() & fs::perms::others_exec) != fs::perms::none;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write_file(const std::string& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  if (!out) throw std::runtime_error("cannot write " + path);
}

void truncate_file(const std::string& path, std::size_t bytes) {
  if (std::filesystem::file_size(path) <= bytes) {
    throw std::runtime_error(path + " is not longer than " + std::to_string(bytes) + " bytes");
  }
  std::filesystem::resize_file(path, bytes);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace syncd::test
