// A file that says that a daemon serves, and where: one endpoint a line. It is there while that is
// so. Any thread.
#pragma once

#include <string>
#include <vector>

namespace syncd::server {

class ReadyFile {
 public:
  // Empty: no file. One of a run that was killed would say that this one is ready: it is removed.
  explicit ReadyFile(std::string path) : path_(std::move(path)) { remove(); }

  // Whoever waits for the file sees it whole or not at all. False, with a sentence in `error`.
  bool write(const std::vector<std::string>& endpoints, std::string& error) const;
  void remove() const;

 private:
  const std::string path_;
};

}  // namespace syncd::server
