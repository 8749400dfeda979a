// Log lines as text; see the header.
#include "daemon/edge/server/log_text.h"

#include <string_view>

#include "daemon/core/engine/limits.h"
#include "proto/base/plain_text.h"

namespace syncd::server {
namespace {

bool needs_quotes(std::string_view value) {
  return value.empty() || value.find_first_of(" \"=\\") != std::string_view::npos ||
         !is_plain(value);
}

void append_quoted(std::string_view value, std::string& out) {
  out += '"';
  while (!value.empty()) {
    const TextCharacter character = first_text_character(value);
    if (!is_plain(character)) {
      append_escaped(character, out);
    } else {
      if (value[0] == '"' || value[0] == '\\') out += '\\';
      out += value.substr(0, character.bytes);
    }
    value.remove_prefix(character.bytes);
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

std::string shown(const std::string& text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // of UTF-8
  return text.substr(0, end) + "... (" + std::to_string(text.size()) + " bytes)";
}

std::string job_shown(const std::string& name) {
  return shown(name, limits::kJobNameBytesMax);
}

bool is_audit(const LogLine& line) {
  return line.event == "audit";
}

}  // namespace syncd::server
