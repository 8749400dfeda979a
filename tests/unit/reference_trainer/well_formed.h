// A judge of markup: whether tags are balanced, attributes quoted and text escaped, as XML demands.
// Independent of what writes it. For tests, on the test's thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace syncd::trainer::testing {

// Why `markup` is not well formed, or an empty text.
inline std::string markup_problem(std::string_view markup) {
  const auto is_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  };
  const auto reference_problem = [&](std::string_view text) -> std::string {
    for (std::size_t at = 0; (at = text.find('&', at)) != text.npos; ++at) {
      const std::string_view rest = text.substr(at);
      const bool known = rest.starts_with("&amp;") || rest.starts_with("&lt;") ||
                         rest.starts_with("&gt;") || rest.starts_with("&quot;") ||
                         rest.starts_with("&#39;");
      if (!known) return "a bare & in: " + std::string(text);
    }
    return "";
  };
  std::vector<std::string> open;
  std::size_t at = 0;
  if (markup.starts_with("<!DOCTYPE html>")) at = markup.find('>') + 1;
  while (at < markup.size()) {
    const std::size_t tag = std::min(markup.find('<', at), markup.size());
    const std::string_view text = markup.substr(at, tag - at);
    const bool is_style = !open.empty() && open.back() == "style";
    if (text.find('>') != text.npos && !is_style) return "a bare > in: " + std::string(text);
    if (const std::string problem = reference_problem(text); !problem.empty()) return problem;
    if (tag == markup.size()) break;
    at = tag + 1;
    const bool closes = at < markup.size() && markup[at] == '/';
    if (closes) ++at;
    const std::size_t name_begin = at;
    while (at < markup.size() && is_name(markup[at])) ++at;
    const std::string name(markup.substr(name_begin, at - name_begin));
    if (name.empty()) return "a < without a name at " + std::to_string(tag);
    if (closes) {
      if (open.empty() || open.back() != name) return "</" + name + "> closes something else";
      open.pop_back();
      if (at >= markup.size() || markup[at] != '>') return "</" + name + " without its end";
      ++at;
      continue;
    }
    // Attributes.
    while (at < markup.size() && markup[at] != '>' && markup[at] != '/') {
      if (markup[at] != ' ' && markup[at] != '\n') return "no space before an attribute of " + name;
      while (at < markup.size() && (markup[at] == ' ' || markup[at] == '\n')) ++at;
      const std::size_t attribute = at;
      while (at < markup.size() && is_name(markup[at])) ++at;
      if (at == attribute || markup.substr(at, 2) != "=\"") return "an attribute of " + name;
      const std::size_t value = at + 2;
      const std::size_t end = markup.find('"', value);
      if (end == markup.npos) return "an attribute of " + name + " never ends";
      const std::string_view content = markup.substr(value, end - value);
      if (content.find('<') != content.npos) return "a < in an attribute of " + name;
      if (const std::string problem = reference_problem(content); !problem.empty()) return problem;
      at = end + 1;
    }
    if (markup.substr(at, 2) == "/>") {
      at += 2;
    } else if (at < markup.size() && markup[at] == '>') {
      ++at;
      open.push_back(name);
    } else {
      return "<" + name + " without its end";
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> is never closed";
}

}  // namespace syncd::trainer::testing
