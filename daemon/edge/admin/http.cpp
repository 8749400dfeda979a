// One request's head, one answer; see the header. Any thread.
#include "daemon/edge/admin/http.h"

#include <fmt/format.h>

#include <algorithm>

#include "proto/base/text.h"

namespace syncd::admin {
namespace {

constexpr std::string_view kBlanks = " \t";

bool is_token(std::string_view text) {
  return !text.empty() && text.find_first_not_of(
                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "!#$%&'*+-.^_`|~") == std::string_view::npos;
}
// A path or a header's value.
bool has_control_byte(std::string_view text) {
  return std::ranges::any_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

// Takes a line off the front of `rest`, without its end.
std::string_view take_line(std::string_view& rest) {
  const std::size_t end = rest.find("\r\n");
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(rest.size(), line.size() + 2));
  return line;
}

bool parse_request_line(std::string_view line, HttpRequest& request, int& status,
                        std::string& why) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || last == first || !is_token(line.substr(0, first))) {
    why = "the first line is not METHOD PATH HTTP/1.1";
    return false;
  }
  const std::string_view version = line.substr(last + 1);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    status = version.starts_with("HTTP/") ? 505 : 400;
    why = "this is not HTTP/1.1";
    return false;
  }
  if (target.empty() || target[0] != '/' || target.find(' ') != std::string_view::npos ||
      has_control_byte(target)) {
    why = "the path does not begin with /";
    return false;
  }
  request.method = line.substr(0, first);
  request.path = target.substr(0, target.find('?'));
  return true;
}

bool parse_header(std::string_view line, HttpRequest& request, std::string& why) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) {
    why = "a header is not NAME: VALUE";
    return false;
  }
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = trimmed(line.substr(colon + 1), kBlanks);
  if (std::ranges::any_of(split(value, '\t'), has_control_byte)) {  // but for tabs
    why = "a header has a control byte";
    return false;
  }
  if (equal_ignoring_case(name, "authorization")) {
    constexpr std::string_view kScheme = "bearer ";
    if (equal_ignoring_case(value.substr(0, kScheme.size()), kScheme)) {
      request.bearer = trimmed(value.substr(kScheme.size()), kBlanks);
    }
  } else if (equal_ignoring_case(name, "transfer-encoding") ||
             (equal_ignoring_case(name, "content-length") && value != "0")) {
    request.has_body = true;
  }
  return true;
}

const char* reason(int status) {
  constexpr std::pair<int, const char*> kReasons[] = {
      {200, "OK"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {413, "Content Too Large"},
      {431, "Request Header Fields Too Large"},
      {503, "Service Unavailable"},
      {505, "HTTP Version Not Supported"},
  };
  const auto* found = std::ranges::find(kReasons, status, &std::pair<int, const char*>::first);
  return found != std::end(kReasons) ? found->second : "Error";
}

}  // namespace

HttpParse parse_http(std::string_view bytes, HttpRequest& request, int& status, std::string& why) {
  request = {};
  const std::size_t end = bytes.find("\r\n\r\n");
  if (std::min(end, bytes.size()) > kHttpHeadBytesMax) {
    status = 431;
    why = fmt::format("the head of a request may have at most {} bytes", kHttpHeadBytesMax);
    return HttpParse::kBad;
  }
  status = 400;
  if (end == std::string_view::npos) return HttpParse::kMore;
  std::string_view rest = bytes.substr(0, end + 2);
  if (!parse_request_line(take_line(rest), request, status, why)) return HttpParse::kBad;
  while (!rest.empty()) {
    if (!parse_header(take_line(rest), request, why)) return HttpParse::kBad;
  }
  status = 200;
  return HttpParse::kDone;
}

std::string write_http(const HttpAnswer& answer, bool head_only) {
  const char* more = answer.status == 401   ? "\r\nWWW-Authenticate: Bearer realm=\"syncd\""
                     : answer.status == 405 ? "\r\nAllow: GET, HEAD"
                                            : "";
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nConnection: close{}\r\n\r\n{}",
      answer.status, reason(answer.status), answer.content_type, answer.body.size(), more,
      head_only ? "" : answer.body);
}

}  // namespace syncd::admin
