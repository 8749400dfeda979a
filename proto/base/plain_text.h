// Text that strangers wrote, made fit to be shown: worker and host names, reasons, what a peer
// says. A terminal or a log viewer obeys some characters instead of showing them: ESC begins
// commands that move the cursor or set a title, line breaks forge lines, and others turn the
// direction of what follows or are not seen at all. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace syncd {

struct TextCharacter {
  std::size_t bytes = 1;  // of the text
  char32_t code = 0;
  bool valid = false;  // UTF-8; if not, `bytes` is 1 and `code` that byte
};

// Precondition: `text` is not empty.
TextCharacter first_text_character(std::string_view text);

// UTF-8 and none of: C0, DEL, C1, line and paragraph separators, marks of direction, blanks other
// than U+0020, and what is not seen (Unicode's Default_Ignorable_Code_Point: soft hyphen, zero
// width space and joiners, fillers, variation selectors, byte order mark, tags).
bool is_plain(const TextCharacter& character);
bool is_plain(std::string_view text);

// The same with each character that is not plain as \n, \x1b, \u202e or \U000e0001, and each byte
// that is no UTF-8 as \xff. Plain text stays as it is, backslashes too.
std::string plain(std::string_view text);

// JSON text that says the same and is plain but for its line breaks: \u escapes stand for the rest.
std::string plain_json(std::string_view json);

// Appends what plain() shows instead of this character.
void append_escaped(const TextCharacter& character, std::string& out);

// Empty if `text` is plain and begins and ends with no blank; else what is wrong with it, as in
// "the worker's name 'a\x1bb' has a character that cannot be shown (\x1b): allowed is UTF-8 without
// control and invisible characters". Long texts are cut.
std::string check_plain(std::string_view what, std::string_view text);

}  // namespace syncd
