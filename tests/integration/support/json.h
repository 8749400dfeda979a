// Single values of JSON, for tests that need not include its library.
#pragma once

#include <string>

namespace syncd::test {

// The value at a JSON pointer such as "/jobs/0/name", as text without quotes; throws if there is
// none.
std::string json_value(const std::string& text, const std::string& pointer);

}  // namespace syncd::test
