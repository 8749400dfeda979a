// As much of HTTP/1.1 as a scraper, a probe and a person with curl need: the head of one request
// taken apart, and one answer written. Pure functions over bytes; any thread.
//
// Own code, because what a library offers has no limit on a whole request's time or on
// connections, and cannot take new certificates: see admin_server.h for who keeps these.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace syncd::admin {

inline constexpr std::size_t kHttpHeadBytesMax = 8 * 1024;

struct HttpRequest {
  std::string method;
  std::string path;    // without the query
  std::string bearer;  // of "Authorization: Bearer ..."; empty: none
  bool has_body = false;
};

enum class HttpParse {
  kMore,  // the head has not ended yet
  kBad,   // `status` and `why` say what to answer; nothing more of it is read
  kDone,
};

// Takes the head at the start of `bytes` apart. kBad for one that is longer than kHttpHeadBytesMax,
// that has a byte or a line HTTP does not allow, or that is of another version.
HttpParse parse_http(std::string_view bytes, HttpRequest& request, int& status, std::string& why);

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// The whole answer; `head_only`: without its body, as HEAD wants it. It says that the connection
// ends with it.
std::string write_http(const HttpAnswer& answer, bool head_only);

}  // namespace syncd::admin
