#include "common/text/utf8.h"

#include <algorithm>
#include <cstring>

namespace penstock {

void AppendChar(std::string* out, char32_t c) {
  char b[4];
  size_t n;
  if (c < 0x80) {
    b[0] = static_cast<char>(c);
    n = 1;
  } else if (c < 0x800) {
    b[0] = static_cast<char>(0xC0 | c >> 6);
    b[1] = static_cast<char>(0x80 | (c & 63));
    n = 2;
  } else if (c < 0x10000) {
    b[0] = static_cast<char>(0xE0 | c >> 12);
    b[1] = static_cast<char>(0x80 | (c >> 6 & 63));
    b[2] = static_cast<char>(0x80 | (c & 63));
    n = 3;
  } else {
    b[0] = static_cast<char>(0xF0 | c >> 18);
    b[1] = static_cast<char>(0x80 | (c >> 12 & 63));
    b[2] = static_cast<char>(0x80 | (c >> 6 & 63));
    b[3] = static_cast<char>(0x80 | (c & 63));
    n = 4;
  }
  out->append(b, n);
}

bool IsAscii(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080u) != 0) return false;
  }
  for (; i < text.size(); ++i) {
    if ((text[i] & 0x80) != 0) return false;
  }
  return true;
}

size_t ValidCharAt(std::string_view bytes, size_t pos, size_t* broken) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[pos + i]); };
  const uint8_t lead = at(0);
  *broken = 1;
  if (lead < 0x80) return 1;
  size_t n;
  uint8_t low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    n = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    n = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    n = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  for (size_t i = 1; i < n; ++i) {
    if (pos + i >= bytes.size() || at(i) < low || at(i) > high) {
      *broken = i;
      return 0;
    }
    low = 0x80;
    high = 0xBF;
  }
  return n;
}

bool IsValidUtf8(std::string_view bytes) {
  size_t pos = 0, broken;
  while (pos < bytes.size()) {
    if (pos + 8 <= bytes.size()) {
      uint64_t word;
      std::memcpy(&word, bytes.data() + pos, 8);
      if ((word & 0x8080808080808080u) == 0) {
        pos += 8;
        continue;
      }
    }
    const size_t n = ValidCharAt(bytes, pos, &broken);
    if (n == 0) return false;
    pos += n;
  }
  return true;
}

void AppendLossyUtf8(std::string* out, std::string_view bytes) {
  if (IsValidUtf8(bytes)) {
    out->append(bytes);
    return;
  }
  size_t pos = 0, broken;
  while (pos < bytes.size()) {
    const size_t n = ValidCharAt(bytes, pos, &broken);
    out->append(n > 0 ? bytes.substr(pos, n) : kReplacementCharacter);
    pos += n > 0 ? n : broken;
  }
}

void AppendLossyBytes(std::string* out, std::string_view bytes) {
  size_t broken;
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t n = ValidCharAt(bytes, pos, &broken);
    out->append(n > 0 ? bytes.substr(pos, n) : kReplacementCharacter);
    pos += std::max<size_t>(n, 1);
  }
}

std::string LossyUtf8(std::string_view bytes) {
  std::string out;
  AppendLossyUtf8(&out, bytes);
  return out;
}

bool LossyEndsInReplacement(std::string_view bytes) {
  if (bytes.empty()) return false;
  if (bytes.ends_with(kReplacementCharacter)) return true;
  // A valid character at the end is read as one whatever stands before it: its first byte is no
  // continuation.
  size_t broken;
  for (size_t n = 1; n <= std::min<size_t>(4, bytes.size()); ++n) {
    if (ValidCharAt(bytes, bytes.size() - n, &broken) == n) return false;
  }
  return true;
}

}  // namespace penstock
