#include "router/http/request_parser.h"

#include "gtest/gtest.h"

namespace penstock {
namespace {

using Event = RequestParser::Event;

// Feeds pieces of the given size until the request ends.
Event ParseAll(RequestParser& parser, std::string_view text, size_t piece) {
  Event event = Event::kNeedMore;
  while (event == Event::kNeedMore || event == Event::kHead) {
    std::string_view input = text.substr(0, piece);
    const size_t before = input.size();
    event = parser.Feed(&input);
    const size_t taken = before - input.size();
    text.remove_prefix(taken);
    if (event == Event::kNeedMore && text.empty()) return event;
  }
  return event;
}

constexpr std::string_view kHead = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n";

std::string WithHead(std::string_view rest) { return std::string(kHead) + std::string(rest); }

TEST(RequestParserTest, ReadsBodiesHoweverTheyAreCut) {
  const std::string plain = WithHead("Content-Length: 5\r\n\r\nhello");
  const std::string chunked =
      WithHead("Transfer-Encoding: Chunked\r\n\r\n3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nX-T: 1\r\n\r\n");
  for (const std::string& text : {plain, chunked}) {
    for (size_t piece = 1; piece <= text.size(); ++piece) {
      RequestParser parser((HttpLimits()));
      ASSERT_EQ(ParseAll(parser, text, piece), Event::kDone) << parser.error_message();
      EXPECT_EQ(parser.request().method, "POST");
      EXPECT_EQ(parser.request().path, "/v1/completions");
      EXPECT_EQ(parser.request().body, "hello");
      EXPECT_EQ(parser.request().header("host"), "x");
      EXPECT_TRUE(parser.request().header("x-t").empty()) << "trailers are no headers";
      EXPECT_TRUE(parser.keep_alive());
    }
  }
}

TEST(RequestParserTest, LeavesThePipelinedRequest) {
  RequestParser parser((HttpLimits()));
  const std::string text = "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n";
  std::string_view input = text;
  EXPECT_EQ(parser.Feed(&input), Event::kHead);
  EXPECT_EQ(parser.Feed(&input), Event::kDone);
  EXPECT_EQ(parser.request().path, "/a");
  parser.Reset();
  EXPECT_EQ(parser.Feed(&input), Event::kHead);
  EXPECT_EQ(parser.request().path, "/b");
}

struct BadCase {
  std::string text;
  int status;
};

class BadRequestTest : public testing::TestWithParam<BadCase> {};

// Field case 51.
TEST_P(BadRequestTest, IsRefusedInOnePieceAndByteByByte) {
  for (const size_t piece : {size_t{1}, GetParam().text.size()}) {
    RequestParser parser({.max_head_bytes = 4096, .max_headers = 20, .max_body_bytes = 1000});
    ASSERT_EQ(ParseAll(parser, GetParam().text, piece), Event::kError) << GetParam().text;
    EXPECT_EQ(parser.error_status(), GetParam().status) << parser.error_message();
  }
}

INSTANTIATE_TEST_SUITE_P(
    FieldCase51, BadRequestTest,
    testing::Values(
        BadCase{WithHead("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"), 400},
        BadCase{WithHead("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"), 400},
        BadCase{WithHead("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400},
        BadCase{WithHead("Transfer-Encoding: gzip\r\n\r\n"), 400},
        BadCase{WithHead("Transfer-Encoding: chunked, gzip\r\n\r\n"), 400},
        BadCase{WithHead("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), 400},
        BadCase{WithHead("Transfer-Encoding:\r\n\r\n"), 400},
        BadCase{WithHead("Content-Length: 5\r\nContent-Length: 5\r\n\r\n"), 400},
        BadCase{WithHead("Content-Length: +5\r\n\r\n"), 400},
        BadCase{WithHead("Content-Length: 5, 5\r\n\r\n"), 400},
        BadCase{WithHead("Content-Length: -1\r\n\r\n"), 400},
        BadCase{WithHead("Content-Length: 0x5\r\n\r\n"), 400},
        BadCase{WithHead("Content-Length:\r\n\r\n"), 400},
        BadCase{WithHead("Content-Length: 18446744073709551621\r\n\r\n"), 400},
        BadCase{WithHead("Content-Length : 5\r\n\r\n"), 400},
        BadCase{WithHead("Host: y\r\n\r\n"), 400}, BadCase{WithHead("A: b\r\n c: d\r\n\r\n"), 400},
        BadCase{WithHead(std::string("A: b\0c\r\n\r\n", 10)), 400},
        BadCase{WithHead("A: b\rc\r\n\r\n"), 400}, BadCase{WithHead("no colon\r\n\r\n"), 400},
        BadCase{"GET / HTTP/1.1\nHost: x\n\n", 400}, BadCase{"GET / HTTP/1.1\r\n\r\n", 400},
        BadCase{"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        BadCase{"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        BadCase{"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        BadCase{"GET relative HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        BadCase{"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", 400}, BadCase{"GARBAGE\r\n\r\n", 400},
        BadCase{"\x16\x03\x01", 400}, BadCase{"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 505},
        BadCase{"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        BadCase{WithHead("Expect: magic\r\n\r\n"), 417},
        BadCase{WithHead("A: " + std::string(5000, 'a') + "\r\n\r\n"), 431},
        BadCase{WithHead([] {
                  std::string many;
                  for (int i = 0; i < 30; ++i) many += "A: b\r\n";
                  return many + "\r\n";
                }()),
                431},
        BadCase{WithHead("Content-Length: 1001\r\n\r\n"), 413},
        BadCase{WithHead("Content-Length: 1000000000000\r\n\r\n"), 413},
        BadCase{WithHead("Transfer-Encoding: chunked\r\n\r\n3e9\r\n"), 413},
        BadCase{WithHead("Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"), 400},
        BadCase{WithHead("Transfer-Encoding: chunked\r\n\r\n+5\r\n"), 400},
        BadCase{WithHead("Transfer-Encoding: chunked\r\n\r\n 5\r\n"), 400},
        BadCase{WithHead("Transfer-Encoding: chunked\r\n\r\n5\nhello"), 400},
        BadCase{WithHead("Transfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n"), 400},
        BadCase{WithHead("Transfer-Encoding: chunked\r\n\r\n" + std::string(2000, '1')), 400}));

TEST(RequestParserTest, KeepAliveByVersionAndHeader) {
  const auto keeps = [](const std::string& head) {
    RequestParser parser((HttpLimits()));
    EXPECT_EQ(ParseAll(parser, head, head.size()), Event::kDone);
    return parser.keep_alive();
  };
  EXPECT_TRUE(keeps("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.1\r\nHost: x\r\nConnection: foo, Close\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(keeps("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
}

// Field case 47.
TEST(NormalizePathTest, FoldsSlashesAndDots) {
  const auto path = [](std::string_view raw) {
    std::string out;
    return NormalizePath(raw, &out) ? out : "error";
  };
  EXPECT_EQ(path("/v1//models"), "/v1/models");
  EXPECT_EQ(path("//v1/chat/completions/"), "/v1/chat/completions");
  EXPECT_EQ(path("/v1/../v1/./models"), "/v1/models");
  EXPECT_EQ(path("/../../etc"), "/etc");
  EXPECT_EQ(path("/v1/%2e%2e/health"), "/health");
  EXPECT_EQ(path("/v1/models/org%2Fname"), "/v1/models/org/name");
  EXPECT_EQ(path("/"), "/");
  EXPECT_EQ(path("/a%2"), "error");
  EXPECT_EQ(path("/a%0a"), "error");
}

TEST(RequestParserTest, TargetForms) {
  const auto parsed = [](const std::string& target) {
    RequestParser parser((HttpLimits()));
    const std::string head = "GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n";
    EXPECT_EQ(ParseAll(parser, head, head.size()), Event::kDone) << target;
    return parser.request().path + "?" + parser.request().query;
  };
  EXPECT_EQ(parsed("/v1/models?x=1&y=2"), "/v1/models?x=1&y=2");
  EXPECT_EQ(parsed("http://host:80/v1/models"), "/v1/models?");
  EXPECT_EQ(parsed("http://host"), "/?");
}

}  // namespace
}  // namespace penstock
