#pragma once

// Vocabularies of the 256 bytes and "ab", for tests that need a whole file of some kind.

#include <string>
#include <string_view>

#include "absl/strings/str_format.h"

namespace penstock {

inline std::string Base64Of(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      out += i + k <= bytes.size() ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

// Ranks: a byte's is its value, "ab" is 256.
inline std::string TinyTiktoken() {
  std::string file;
  for (int b = 0; b < 256; ++b) {
    file += absl::StrFormat("%s %d\n", Base64Of(std::string(1, static_cast<char>(b))), b);
  }
  return file + Base64Of("ab") + " 256\n";
}

// Ten specials before the ranks ([INST] 3, [/INST] 4): 'a' is 107, "ab" 266.
inline std::string TinyTekken() {
  std::string file =
      R"({"config":{"pattern":"[a-z]+|.","default_vocab_size":267,"default_num_special_tokens":10},)"
      R"("vocab":[)";
  for (int b = 0; b < 256; ++b) {
    file += absl::StrFormat(R"({"rank":%d,"token_bytes":"%s"},)", b,
                            Base64Of(std::string(1, static_cast<char>(b))));
  }
  return file + R"({"rank":256,"token_bytes":")" + Base64Of("ab") + R"("}]})";
}

}  // namespace penstock
