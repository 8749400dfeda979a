// See questions.h.
#include "daemon/tools/bench/questions.h"

#include <fmt/format.h>

#include <algorithm>

namespace syncd::bench {

bool parse_questions(std::string_view text, std::vector<Question>& questions, std::string& error) {
  questions.clear();
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view word = text.substr(at, comma - at);
    const auto* found = std::find(kQuestionNames.begin(), kQuestionNames.end(), word);
    if (found == kQuestionNames.end()) {
      error = fmt::format("'{}' is no question; allowed: {}", word, fmt::join(kQuestionNames, " "));
      return false;
    }
    questions.push_back(static_cast<Question>(found - kQuestionNames.begin()));
    at = comma + 1;
  }
  return true;
}

}  // namespace syncd::bench
