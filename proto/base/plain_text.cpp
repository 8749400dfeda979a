// See plain_text.h.
#include "proto/base/plain_text.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "proto/base/check.h"

namespace syncd {
namespace {

constexpr std::size_t kRepeatedBytesMax = 64;

struct Range {
  char32_t first;
  char32_t last;
};
// C0, DEL and C1; Unicode's Default_Ignorable_Code_Point; separators but the blank; and what has
// the look of a blank (Braille without dots) or marks notes within text.
constexpr std::array kNotShown = {
    Range{0, 0x1F},          Range{0x7F, 0xA0},      Range{0x00AD, 0x00AD}, Range{0x034F, 0x034F},
    Range{0x061C, 0x061C},   Range{0x115F, 0x1160},  Range{0x1680, 0x1680}, Range{0x17B4, 0x17B5},
    Range{0x180B, 0x180F},   Range{0x2000, 0x200F},  Range{0x2028, 0x202F}, Range{0x205F, 0x206F},
    Range{0x2800, 0x2800},   Range{0x3000, 0x3000},  Range{0x3164, 0x3164}, Range{0xFE00, 0xFE0F},
    Range{0xFEFF, 0xFEFF},   Range{0xFFA0, 0xFFA0},  Range{0xFFF0, 0xFFFB}, Range{0x1BCA0, 0x1BCA3},
    Range{0x1D173, 0x1D17A}, Range{0xE0000, 0xE0FFF}};

}  // namespace

TextCharacter first_text_character(std::string_view text) {
  SYNCD_CHECK(!text.empty());
  const auto lead = static_cast<unsigned char>(text[0]);
  const TextCharacter invalid{1, lead, false};
  const std::size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4 || text.size() < length) return invalid;
  char32_t code = length == 1 ? lead : lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0) != 0x80) return invalid;
    code = (code << 6) | (byte & 0x3F);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  if (overlong || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return invalid;
  return {length, code, true};
}

bool is_plain(const TextCharacter& character) {
  return character.valid && std::none_of(kNotShown.begin(), kNotShown.end(), [&](const Range& r) {
           return character.code >= r.first && character.code <= r.last;
         });
}

bool is_plain(std::string_view text) {
  while (!text.empty()) {
    const TextCharacter character = first_text_character(text);
    if (!is_plain(character)) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

void append_escaped(const TextCharacter& character, std::string& out) {
  if (character.code == '\n') {
    out += "\\n";
    return;
  }
  const auto code = static_cast<unsigned>(character.code);
  std::array<char, 16> text{};
  const char* format = !character.valid || code < 0x80 ? "\\x%02x"
                       : code <= 0xFFFF                ? "\\u%04x"
                                                       : "\\U%08x";
  std::snprintf(text.data(), text.size(), format, code);
  out += text.data();
}

std::string plain(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const TextCharacter character = first_text_character(text);
    if (is_plain(character)) {
      out += text.substr(0, character.bytes);
    } else {
      append_escaped(character, out);
    }
    text.remove_prefix(character.bytes);
  }
  return out;
}

std::string plain_json(std::string_view json) {
  std::string out;
  const auto append_unit = [&](char32_t unit) {
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "\\u%04x", static_cast<unsigned>(unit) & 0xFFFFU);
    out += text.data();
  };
  while (!json.empty()) {
    const TextCharacter c = first_text_character(json);
    if (c.code == '\n' || is_plain(c)) {
      out += json.substr(0, c.bytes);
    } else if (!c.valid) {
      append_unit(0xFFFD);
    } else if (c.code <= 0xFFFF) {
      append_unit(c.code);
    } else {  // as UTF-16 has it
      append_unit(0xD800 + ((c.code - 0x10000) >> 10));
      append_unit(0xDC00 + ((c.code - 0x10000) & 0x3FF));
    }
    json.remove_prefix(c.bytes);
  }
  return out;
}

std::string check_plain(std::string_view what, std::string_view text) {
  for (std::string_view rest = text; !rest.empty();) {
    const TextCharacter character = first_text_character(rest);
    if (!is_plain(character)) {
      std::string escaped;
      append_escaped(character, escaped);
      const bool cut = text.size() > kRepeatedBytesMax;
      return std::string(what) + " '" + plain(text.substr(0, kRepeatedBytesMax)) +
             (cut ? "...'" : "'") + " has a character that cannot be shown (" + escaped +
             "): allowed is UTF-8 without control and invisible characters";
    }
    rest.remove_prefix(character.bytes);
  }
  if (!text.empty() && (text.front() == ' ' || text.back() == ' ')) {
    return std::string(what) + " '" + plain(text.substr(0, kRepeatedBytesMax)) +
           "' begins or ends with a blank: allowed are none there";
  }
  return {};
}

}  // namespace syncd
