// Numbers out of text. Pure functions; any thread.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>

namespace syncd {

// False, unless all of `text` is a number that fits: no blanks, and no sign but a minus. `value`
// may have changed then.
template <class T>
bool parse_number(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  return code == std::errc{} && stop == end;
}

}  // namespace syncd
