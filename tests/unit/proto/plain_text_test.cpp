// What a terminal obeys or cannot show is escaped, and everything else stays as it is.
#include "proto/base/plain_text.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace syncd {
namespace {

using namespace std::string_literals;

TEST(PlainText, StaysAsItIs) {
  for (const std::string_view text :
       {"", "worker-3", "nœud \\x1b", "機械", "\U0001F680", "e\xCC\x81"}) {
    EXPECT_TRUE(is_plain(text)) << text;
    EXPECT_EQ(plain(text), text);
    EXPECT_EQ(check_plain("the name", text), "") << text;
  }
}

TEST(PlainText, WhatATerminalObeysOrDoesNotShowIsEscaped) {
  const std::pair<std::string, std::string> kEscaped[] = {
      {"\x1b[2J", "\\x1b[2J"},
      {"a\nb\rc\td", "a\\nb\\x0dc\\x09d"},
      {"a\0b"s, "a\\x00b"},
      {"\x7f", "\\x7f"},
      {"\xC2\x9B"
       "2J",
       "\\u009b2J"},                                // CSI in one character
      {"\xE2\x80\xA8", "\\u2028"},                  // line separator
      {"\xE2\x80\xAEgnp", "\\u202egnp"},            // right to left from here on
      {"a\xE2\x80\x8B", "a\\u200b"},                // zero width space
      {"\xEF\xBB\xBFx", "\\ufeffx"},                // byte order mark
      {"\xF3\xA0\x80\x81", "\\U000e0001"},          // a tag
      {"\xC2\xA0", "\\u00a0"},                      // a blank that is none
      {"\xE3\x85\xA4", "\\u3164"},                  // a letter that is not seen
      {"\xEF\xB8\x8F", "\\ufe0f"},                  // a variation of what precedes it
      {"\xFF\xC3", "\\xff\\xc3"},                   // no UTF-8, and cut short
      {"\xC0\x8A", "\\xc0\\x8a"},                   // a line break in two bytes
      {"\xE0\x82\x9B", "\\xe0\\x82\\x9b"},          // CSI in three
      {"\xED\xA0\x80", "\\xed\\xa0\\x80"},          // half a surrogate pair
      {"\xF4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}  // beyond Unicode
  };
  for (const auto& [text, escaped] : kEscaped) {
    EXPECT_FALSE(is_plain(text)) << escaped;
    EXPECT_EQ(plain(text), escaped);
    EXPECT_TRUE(is_plain(plain(text))) << escaped;
  }
}

TEST(PlainText, OfAnyBytes) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second), '.'};
      EXPECT_TRUE(is_plain(plain(text))) << first << " " << second;
      EXPECT_EQ(plain(text) == text, is_plain(text)) << first << " " << second;
    }
  }
}

TEST(PlainText, JsonSaysTheSame) {
  EXPECT_EQ(plain_json("{\n  \"a\": \"\xC2\x9B\x7f é\xE2\x80\xAE\"\n}"),
            "{\n  \"a\": \"\\u009b\\u007f é\\u202e\"\n}");
  EXPECT_EQ(plain_json("\"\xF3\xA0\x80\x81\""), "\"\\udb40\\udc01\"");
  EXPECT_EQ(plain_json("\"\xff\""), "\"\\ufffd\"");
}

TEST(PlainText, WhatIsWrongIsNamedWithWhatIsAllowed) {
  EXPECT_EQ(
      check_plain("the worker's name", "a\x1b]0;x"),
      "the worker's name 'a\\x1b]0;x' has a character that cannot be shown (\\x1b): allowed is "
      "UTF-8 without control and invisible characters");
  for (const char* text : {" w1", "w1 ", " "}) {
    EXPECT_EQ(check_plain("the worker's name", text),
              "the worker's name '" + std::string(text) +
                  "' begins or ends with a blank: allowed are none there");
  }
  EXPECT_EQ(check_plain("the reason", ""), "");
  const std::string wrong = check_plain("the reason", std::string(400, 'y') + "\n");
  EXPECT_LT(wrong.size(), 220U);
  EXPECT_NE(wrong.find("yyy...' has a character that cannot be shown (\\n)"), std::string::npos)
      << wrong;
}

}  // namespace
}  // namespace syncd
