// A setting's value before it is parsed, and where it was found. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace syncd::config {

struct RawValue {
  enum class Kind { kText, kInteger, kBoolean, kList, kOther };

  Kind kind = Kind::kText;
  bool typed = false;  // from the file: a number is a number. Else text that may spell one
  std::string text;    // the string, or the value as it is written
  std::int64_t integer = 0;
  bool boolean = false;
  std::vector<std::string> list;

  unsigned line = 0;  // in the file
  std::string where;  // "syncd.toml:3", "environment SYNCD_LISTEN_TCP", "--tcp"

  // As it is shown in messages.
  std::string shown() const {
    if (kind != Kind::kText) return text;
    return "\"" + text + "\"";
  }
};

struct Entry {
  std::string key;  // within its table: "tcp"; at the top: "listen.tcp"
  RawValue value;
};

}  // namespace syncd::config
