// The head of a request to the admin pages, as it arrives: bytes.
#include "daemon/edge/admin/http.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"

namespace {

using namespace syncd;

struct Parsed {
  admin::HttpParse result;
  admin::HttpRequest request;
  int status = 0;
  std::string why;
};

Parsed parse(std::string_view bytes) {
  Parsed parsed{};
  parsed.result = admin::parse_http(bytes, parsed.request, parsed.status, parsed.why);
  return parsed;
}

bool same(const Parsed& a, const Parsed& b) {
  return a.result == b.result && a.status == b.status && a.why == b.why &&
         a.request.method == b.request.method && a.request.path == b.request.path &&
         a.request.bearer == b.request.bearer && a.request.has_body == b.request.has_body;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::text_of({data, size});
  const Parsed whole = parse(bytes);
  const std::size_t end = bytes.find("\r\n\r\n");
  if (whole.result == admin::HttpParse::kMore) {
    fuzz::require(end == std::string_view::npos, "a head that has ended is waited for");
  } else if (whole.result == admin::HttpParse::kBad) {
    fuzz::require(whole.status >= 400 && !whole.why.empty(), "refused without a word");
  } else {
    fuzz::require(whole.request.path.starts_with('/') && !whole.request.method.empty(),
                  "taken without a method and a path", whole.request.path);
    for (const std::string& text : {whole.request.method, whole.request.path}) {
      for (const char c : text) fuzz::require(c > ' ' || c < 0, "a control byte is taken", text);
    }
    // What follows the head changes nothing, and no part of it was enough.
    fuzz::require(same(parse(std::string(bytes) + "GET"), whole), "the body changes the head");
    fuzz::require(parse(bytes.substr(0, end + 3)).result == admin::HttpParse::kMore,
                  "a head is taken before its end");
    // What a client would send that meant the same is read as the same.
    std::string again = whole.request.method + " " + whole.request.path + " HTTP/1.1\r\n";
    if (!whole.request.bearer.empty()) {
      again += "Authorization: Bearer " + whole.request.bearer + "\r\n";
    }
    if (whole.request.has_body) again += "Content-Length: 1\r\n";
    fuzz::require(same(parse(again + "\r\n"), whole), "another request is read", again);
  }
  return 0;
}
