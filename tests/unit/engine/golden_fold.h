// One line for several that differ in few words: a list in braces, `{a,b,c}`, stands for its
// elements, one for each line, in order. Nothing is lost: spread() gives the lines back. One
// thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace syncd::test {

using Lines = std::vector<std::string>;

// The lines that a line with lists stands for; none if its lists are not equally long.
Lines spread(const std::string& line);

// The opposite; nothing where the lines differ in more than words or have braces of their own.
std::optional<std::string> fold(const Lines& lines);

// What several events brought, one text each, line by line; nothing where that is not alike.
std::optional<Lines> fold_texts(const std::vector<Lines>& texts);

// The same answer to several, one after another, as one line.
Lines fold_replies(const Lines& text);

}  // namespace syncd::test
