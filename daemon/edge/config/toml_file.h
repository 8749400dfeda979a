// Reading a TOML file into entries, without knowing what they mean. Any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "daemon/edge/config/raw_value.h"

namespace syncd::config {

struct TomlFile {
  struct Table {
    std::string where;  // of its header
    std::vector<Entry> entries;
  };
  std::vector<Entry> entries;                                 // "section.key"
  std::vector<std::pair<std::string, std::string>> sections;  // and where: also empty ones
  std::vector<Table> jobs;                                    // [[job]]
};

// False, with the cause in `error`, if the file cannot be read or is not TOML.
bool read_toml_file(const std::string& path, TomlFile& file, std::string& error);

// The same for a text in memory; messages use `name` as the file's name.
bool read_toml_text(const std::string& text, const std::string& name, TomlFile& file,
                    std::string& error);

}  // namespace syncd::config
