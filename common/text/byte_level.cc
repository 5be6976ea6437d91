#include "common/text/byte_level.h"

#include "absl/strings/str_format.h"
#include "common/text/utf8.h"

namespace penstock {

ByteAlphabet::ByteAlphabet() {
  bytes_.fill(-1);
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const char32_t c = printable ? static_cast<char32_t>(b) : next++;
    AppendChar(&chars_[b], c);
    bytes_[c] = static_cast<int16_t>(b);
  }
}

const ByteAlphabet& ByteAlphabet::Get() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

void ByteAlphabet::AppendEncoded(std::string_view bytes, std::string* out) const {
  for (const char b : bytes) *out += chars_[static_cast<uint8_t>(b)];
}

std::optional<std::string> ByteAlphabet::Decode(std::string_view text) const {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextChar(text, &pos);
    if (c >= bytes_.size() || bytes_[c] < 0) return std::nullopt;
    out += static_cast<char>(bytes_[c]);
  }
  return out;
}

std::optional<uint8_t> ByteOfPiece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  const int low = digit(piece[4]);
  const int high = piece[3] == '+' ? 0 : digit(piece[3]);  // Rust's from_str_radix takes a plus
  if (low < 0 || high < 0) return std::nullopt;
  return static_cast<uint8_t>(high << 4 | low);
}

std::string PieceOfByte(uint8_t byte) { return absl::StrFormat("<0x%02X>", byte); }

}  // namespace penstock
