// The HTTP parser, in one piece and byte by byte: both must come to the same end.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "router/http/request_parser.h"

namespace {

using penstock::RequestParser;

// The requests and the last event, as text.
std::string ParseAll(std::string_view text, size_t piece) {
  RequestParser parser({.max_head_bytes = 4096, .max_headers = 32, .max_body_bytes = 1 << 16});
  std::string story;
  while (!text.empty()) {
    std::string_view input = text.substr(0, piece);
    const size_t before = input.size();
    RequestParser::Event event = RequestParser::Event::kHead;
    while (event == RequestParser::Event::kHead) event = parser.Feed(&input);
    text.remove_prefix(before - input.size());
    if (event == RequestParser::Event::kError) {
      return story + "error " + std::to_string(parser.error_status());
    }
    if (event == RequestParser::Event::kDone) {
      const penstock::HttpRequest& request = parser.request();
      story += request.method + " " + request.path + " " + request.body + "\n";
      parser.Reset();
    }
  }
  return story;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CHECK(ParseAll(text, 1) == ParseAll(text, text.size() + 1));
  return 0;
}
