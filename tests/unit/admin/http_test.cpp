// Heads of HTTP requests, good and bad, in one piece and in bytes.
#include "daemon/edge/admin/http.h"

#include <gmock/gmock.h>

namespace syncd::admin {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Parsed {
  HttpParse what = HttpParse::kMore;
  HttpRequest request;
  int status = 0;
  std::string why;
};
Parsed parse(std::string_view bytes) {
  Parsed parsed;
  parsed.what = parse_http(bytes, parsed.request, parsed.status, parsed.why);
  return parsed;
}

TEST(HttpTest, TakesARequestApart) {
  const Parsed parsed = parse(
      "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAUTHORIZATION:  bearer  s3cret \r\n"
      "Content-Length: 0\r\n\r\nrest");
  ASSERT_EQ(parsed.what, HttpParse::kDone);
  EXPECT_EQ(parsed.request.method, "GET");
  EXPECT_EQ(parsed.request.path, "/metrics");
  EXPECT_EQ(parsed.request.bearer, "s3cret");
  EXPECT_FALSE(parsed.request.has_body);
}

TEST(HttpTest, WantsMoreUntilTheHeadHasEnded) {
  const std::string whole = "HEAD / HTTP/1.0\r\nA: b\r\n\r\n";
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_EQ(parse(whole.substr(0, bytes)).what, HttpParse::kMore) << bytes;
  }
  EXPECT_EQ(parse(whole).what, HttpParse::kDone);
}

TEST(HttpTest, NamesABody) {
  EXPECT_TRUE(parse("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n").request.has_body);
  EXPECT_TRUE(parse("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").request.has_body);
}

TEST(HttpTest, RefusesWhatIsNoRequest) {
  const std::pair<const char*, int> cases[] = {
      {"\r\n\r\n", 400},
      {"GET\r\n\r\n", 400},
      {"GET /\r\n\r\n", 400},
      {"GET metrics HTTP/1.1\r\n\r\n", 400},
      {"GET /a b HTTP/1.1\r\n\r\n", 400},
      {"G{T / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\n\r\n", 505},
      {"GET / SIP/2.0\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n folded: x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n: x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\na: \x01\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\na: b\nc: d\r\n\r\n", 400},
  };
  for (const auto& [bytes, status] : cases) {
    const Parsed parsed = parse(bytes);
    EXPECT_EQ(parsed.what, HttpParse::kBad) << bytes;
    EXPECT_EQ(parsed.status, status) << bytes;
    EXPECT_FALSE(parsed.why.empty()) << bytes;
  }
}

TEST(HttpTest, AHeadHasALimit) {
  const std::string most(kHttpHeadBytesMax, 'x');
  EXPECT_EQ(parse(most).what, HttpParse::kMore);
  EXPECT_EQ(parse(most + "x").what, HttpParse::kBad);
  EXPECT_EQ(parse(most + "x").status, 431);
  EXPECT_EQ(parse("GET / HTTP/1.1\r\na: " + most + "\r\n\r\n").status, 431);
}

TEST(HttpTest, AnswersSayTheirLengthAndThatTheyAreTheLast) {
  const std::string answer = write_http({200, "text/plain", "hello"}, false);
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 5\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\nhello"));
  EXPECT_THAT(write_http({200, "text/plain", "hello"}, true), Not(HasSubstr("hello")));
  EXPECT_THAT(write_http({405, "text/plain", ""}, false), HasSubstr("Allow: GET, HEAD"));
  EXPECT_THAT(write_http({401, "text/plain", ""}, false), HasSubstr("WWW-Authenticate: Bearer"));
}

}  // namespace
}  // namespace syncd::admin
