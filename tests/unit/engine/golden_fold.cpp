// See golden_fold.h.
#include "golden_fold.h"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace syncd::test {
namespace {

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

Lines split(const std::string& text, char separator) {
  Lines parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  if (text.ends_with(separator)) parts.emplace_back();
  return parts;
}

std::size_t common_prefix(const Lines& texts) {
  std::size_t length = texts[0].size();
  for (const std::string& text : texts) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(length, text.size()));
    length = static_cast<std::size_t>(std::mismatch(text.begin(), end, texts[0].begin()).first -
                                      text.begin());
  }
  return length;
}

// "i{1,12}" and "node-{a,b}": a list has whole numbers or whole words, and what is common is
// outside.
std::optional<std::string> fold_words(Lines words) {
  if (std::all_of(words.begin(), words.end(), [&](const auto& word) { return word == words[0]; })) {
    return words[0];
  }
  const std::size_t common = common_prefix(words);
  std::size_t numbers = common, prefix = common;
  while (numbers > 0 && is_digit(words[0][numbers - 1])) --numbers;
  while (prefix > 0 && is_word(words[0][prefix - 1])) --prefix;
  if (std::all_of(words.begin(), words.end(), [&](const std::string& word) {
        return word.size() > numbers && is_digit(word[numbers]);
      })) {
    prefix = numbers;
  }
  const std::string head = words[0].substr(0, prefix);
  for (std::string& word : words) {
    word.erase(0, prefix);
    std::reverse(word.begin(), word.end());
  }
  std::size_t suffix = common_prefix(words);
  while (suffix > 0 && is_word(words[0][suffix - 1])) --suffix;
  std::string tail = words[0].substr(0, suffix);
  std::reverse(tail.begin(), tail.end());
  std::string list;
  for (std::string& word : words) {
    word.erase(0, suffix);
    std::reverse(word.begin(), word.end());
    if (word.empty() || word.find(',') != std::string::npos) return std::nullopt;
    list += (list.empty() ? "" : ",") + word;
  }
  return head + "{" + list + "}" + tail;
}

}  // namespace

Lines spread(const std::string& line) {
  Lines lines;
  std::size_t begin = line.find('{');
  if (begin == std::string::npos) return {line};
  for (std::size_t at = 0; begin != std::string::npos; begin = line.find('{', at)) {
    const std::size_t end = line.find('}', begin);
    if (end == std::string::npos) return {};
    const Lines words = split(line.substr(begin + 1, end - begin - 1), ',');
    if (at == 0) lines.resize(words.size());
    if (words.size() != lines.size()) return {};
    for (std::size_t i = 0; i < words.size(); ++i) {
      lines[i] += line.substr(at, begin - at) + words[i];
    }
    at = end + 1;
    if (line.find('{', at) != std::string::npos) continue;
    for (std::string& one : lines) one += line.substr(at);
  }
  return lines;
}

std::optional<std::string> fold(const Lines& lines) {
  std::vector<Lines> words;
  for (const std::string& line : lines) {
    if (line.find_first_of("{}") != std::string::npos) return std::nullopt;
    words.push_back(split(line, ' '));
    if (words.back().size() != words[0].size()) return std::nullopt;
  }
  std::string folded;
  for (std::size_t column = 0; column < words[0].size(); ++column) {
    Lines of_column;
    for (const Lines& of_line : words) of_column.push_back(of_line[column]);
    const std::optional<std::string> one = fold_words(std::move(of_column));
    if (!one) return std::nullopt;
    folded += (column > 0 ? " " : "") + *one;
  }
  return folded;
}

std::optional<Lines> fold_texts(const std::vector<Lines>& texts) {
  const std::size_t rows = texts[0].size();
  if (std::any_of(texts.begin(), texts.end(),
                  [&](const auto& text) { return text.size() != rows; })) {
    return std::nullopt;
  }
  Lines folded;
  for (std::size_t row = 0; row < rows; ++row) {
    Lines of_row;
    for (const Lines& text : texts) of_row.push_back(text[row]);
    const std::optional<std::string> line = fold(of_row);
    if (!line) return std::nullopt;
    folded.push_back(*line);
  }
  return folded;
}

Lines fold_replies(const Lines& text) {
  // The parts of "  -> a begin(0): granted 0" before and behind the worker.
  const auto parts = [](const std::string& line) {
    const std::size_t arrow = line.find_first_not_of(' ');
    if (arrow == std::string::npos || line.compare(arrow + 1, 2, "> ") != 0) {
      return std::pair<std::string, std::string>();
    }
    return std::pair(line.substr(0, arrow + 3),
                     line.substr(std::min(line.find(' ', arrow + 3), line.size())));
  };
  Lines folded;
  for (auto from = text.begin(); from != text.end();) {
    const auto first = parts(*from);
    const auto to =
        first.first.empty() ? from + 1 : std::find_if(from + 1, text.end(), [&](const auto& line) {
          return parts(line) != first;
        });
    if (const auto line = fold(Lines(from, to))) {
      folded.push_back(*line);
    } else {
      folded.insert(folded.end(), from, to);
    }
    from = to;
  }
  return folded;
}

}  // namespace syncd::test
