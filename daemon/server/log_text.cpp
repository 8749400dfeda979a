// Log lines as text; see the header.
#include "daemon/server/log_text.h"

#include <cstdio>
#include <string_view>

namespace syncd::server {
namespace {

bool needs_quotes(std::string_view value) {
  if (value.empty()) return true;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte == 0x7f || c == '"' || c == '=' || c == '\\') return true;
  }
  return false;
}

void append_quoted(std::string_view value, std::string& out) {
  out += '"';
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      char escaped[5];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
      out += escaped;
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace

std::string log_text(const LogLine& line) {
  std::string out = line.event;
  for (const auto& [key, value] : line.fields) {
    out += ' ';
    out += key;
    out += '=';
    if (needs_quotes(value)) {
      append_quoted(value, out);
    } else {
      out += value;
    }
  }
  return out;
}

bool is_audit(const LogLine& line) {
  return line.event == "audit";
}

}  // namespace syncd::server
