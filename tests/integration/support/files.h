// Temporary directories and whole files of the integration tests. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace syncd::test {

// A directory of one test's own, removed with everything in it at the end. Its path is short, since
// a Unix socket's path has room for 107 bytes only.
class TempDir {
 public:
  explicit TempDir(const std::string& parent = "/tmp");
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

bool exists(const std::string& path);
// Whether users other than its owner and group may enter this directory.
bool others_may_enter(const std::string& directory);
// The whole file; empty where there is none.
std::string read_file(const std::string& path);
// Throws if it cannot be written.
void write_file(const std::string& path, std::string_view text);
// Keeps the first `bytes` of it; throws if it is not longer than that.
void truncate_file(const std::string& path, std::size_t bytes);
std::vector<std::string> lines_of(const std::string& text);

}  // namespace syncd::test
