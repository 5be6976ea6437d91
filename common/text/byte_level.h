#pragma once

// GPT-2's alphabet: one printable character for every byte, so that BPE never sees a raw one.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

class ByteAlphabet {
 public:
  static const ByteAlphabet& Get();

  // The character of a byte, as UTF-8.
  const std::string& CharOf(uint8_t byte) const { return chars_[byte]; }
  // Appends every byte's character.
  void AppendEncoded(std::string_view bytes, std::string* out) const;
  // The bytes that these characters stand for; nullopt when one of them stands for none.
  std::optional<std::string> Decode(std::string_view text) const;

 private:
  ByteAlphabet();
  std::array<std::string, 256> chars_;
  std::array<int16_t, 0x180> bytes_;  // by code point; -1: none
};

// The byte of a piece like "<0x0A>", as the reference reads it.
std::optional<uint8_t> ByteOfPiece(std::string_view piece);
// "<0x0A>"
std::string PieceOfByte(uint8_t byte);

}  // namespace penstock
