#include "router/http/content_coding.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "common/base/status.h"

namespace penstock {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
// A zstd frame may ask for a window of this many bytes at most (log2).
constexpr int kMaxWindowLog = 23;

absl::Status TooLarge(uint64_t max_bytes) {
  return ResourceExhausted("the decoded request body is larger than the limit of %d bytes",
                           max_bytes);
}

absl::StatusOr<std::string> DecodeGzip(std::string_view body, uint64_t max_bytes) {
  z_stream stream = {};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) return Internal("zlib could not be initialised");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data()));
  stream.avail_in = static_cast<uInt>(body.size());
  std::string out;
  std::vector<char> piece(kPieceBytes);
  int result = Z_OK;
  while (result != Z_STREAM_END) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    result = inflate(&stream, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END) {
      return InvalidArgument("the request body is not valid gzip data");
    }
    const size_t produced = piece.size() - stream.avail_out;
    if (out.size() + produced > max_bytes) return TooLarge(max_bytes);
    out.append(piece.data(), produced);
    // Another gzip member may follow the first.
    if (result == Z_STREAM_END && stream.avail_in > 0) {
      if (inflateReset(&stream) != Z_OK) return Internal("zlib could not be reset");
      result = Z_OK;
    }
  }
  return out;
}

absl::StatusOr<std::string> DecodeZstd(std::string_view body, uint64_t max_bytes) {
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(),
                                                                   ZSTD_freeDCtx);
  if (context == nullptr) return Internal("zstd could not be initialised");
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  ZSTD_inBuffer in = {body.data(), body.size(), 0};
  std::string out;
  std::vector<char> piece(kPieceBytes);
  size_t left = 1;  // 0 at the end of a frame
  bool full = false;
  while (in.pos < in.size || full) {
    ZSTD_outBuffer buffer = {piece.data(), piece.size(), 0};
    left = ZSTD_decompressStream(context.get(), &buffer, &in);
    if (ZSTD_isError(left)) return InvalidArgument("the request body is not valid zstd data");
    if (out.size() + buffer.pos > max_bytes) return TooLarge(max_bytes);
    out.append(piece.data(), buffer.pos);
    full = buffer.pos == buffer.size;
  }
  if (left != 0) return InvalidArgument("the request body is truncated zstd data");
  return out;
}

}  // namespace

absl::StatusOr<std::string> DecodeContent(std::string_view coding, std::string body,
                                          uint64_t max_bytes) {
  std::string name(coding);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (name.empty() || name == "identity") return body;
  if (name == "gzip" || name == "x-gzip") return DecodeGzip(body, max_bytes);
  if (name == "zstd") return DecodeZstd(body, max_bytes);
  return Unimplemented("Content-Encoding '%s' is not supported: send gzip, zstd or identity",
                       name.substr(0, 40));
}

}  // namespace penstock
