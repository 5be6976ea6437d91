#include "common/text/base64.h"

#include <array>
#include <cstdint>

namespace penstock {
namespace {

constexpr std::array<int8_t, 256> MakeTable() {
  std::array<int8_t, 256> table{};
  for (int8_t& value : table) value = -1;
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    table[static_cast<uint8_t>(kAlphabet[i])] = static_cast<int8_t>(i);
  }
  return table;
}

constexpr std::array<int8_t, 256> kTable = MakeTable();

}  // namespace

std::optional<std::string> DecodeBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t digits = text.size();
  for (int padding = 0; padding < 2 && digits > 0 && text[digits - 1] == '='; ++padding) --digits;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  for (size_t i = 0; i < digits; ++i) {
    const int8_t value = kTable[static_cast<uint8_t>(text[i])];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (i % 4 == 0) continue;
    out.push_back(static_cast<char>(bits >> (6 - 2 * (i % 4))));
  }
  return out;
}

}  // namespace penstock
