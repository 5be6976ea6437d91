#include "router/http/content_coding.h"

#include <zlib.h>
#include <zstd.h>

#include "gtest/gtest.h"

namespace penstock {
namespace {

std::string Gzip(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

std::string Zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

TEST(ContentCodingTest, DecodesWithTheLimitOnTheDecodedSize) {
  const std::string text(200'000, 'x');
  for (const auto& [name, body] : {std::pair{"gzip", Gzip(text)}, std::pair{"ZSTD", Zstd(text)}}) {
    const auto decoded = DecodeContent(name, body, text.size());
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, text);
    EXPECT_TRUE(absl::IsResourceExhausted(DecodeContent(name, body, text.size() - 1).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(
        DecodeContent(name, body.substr(0, body.size() / 2), 1 << 20).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeContent(name, "nonsense", 1 << 20).status()));
  }
  EXPECT_EQ(*DecodeContent("gzip", Gzip("ab") + Gzip("cd"), 10), "abcd");
  EXPECT_EQ(*DecodeContent("", "as it is", 1), "as it is");
  EXPECT_TRUE(absl::IsUnimplemented(DecodeContent("br", "x", 10).status()));
}

}  // namespace
}  // namespace penstock
