#include "common/text/jinja/text.h"

#include <algorithm>

#include "common/text/jinja/unicode_tables.h"

namespace penstock::jinja {

Text Text::FromUser(std::string bytes) {
  Text text(std::move(bytes));
  if (!text.bytes.empty()) text.marks.emplace_back(0, text.bytes.size());
  return text;
}

void TextBuilder::Mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!out_.marks.empty() && out_.marks.back().second == begin) {
    out_.marks.back().second = end;
  } else {
    out_.marks.emplace_back(begin, end);
  }
}

void TextBuilder::Append(std::string_view bytes, bool user) {
  const size_t begin = out_.bytes.size();
  out_.bytes += bytes;
  if (user) Mark(begin, out_.bytes.size());
}

void TextBuilder::AppendSlice(const Text& text, size_t begin, size_t end) {
  const size_t at = out_.bytes.size();
  out_.bytes.append(text.bytes, begin, end - begin);
  auto it = std::lower_bound(text.marks.begin(), text.marks.end(), begin,
                             [](const auto& mark, size_t pos) { return mark.second <= pos; });
  for (; it != text.marks.end() && it->first < end; ++it) {
    Mark(at + std::max(it->first, begin) - begin, at + std::min(it->second, end) - begin);
  }
}

Text Slice(const Text& text, size_t begin, size_t end) {
  TextBuilder builder;
  builder.AppendSlice(text, begin, end);
  return builder.Finish();
}

Text Concat(const Text& a, const Text& b) {
  TextBuilder builder;
  builder.Append(a);
  builder.Append(b);
  return builder.Finish();
}

Text WithMarksOf(std::string bytes, const Text& from) {
  return from.marks.empty() ? Text(std::move(bytes)) : Text::FromUser(std::move(bytes));
}

// --- Characters ---

Char CharAt(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[pos + i]); };
  const unsigned char lead = byte(0);
  const size_t size = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  if (size == 1 || pos + size > text.size()) return {lead, 1};
  char32_t code = lead & (0xFF >> (size + 1));
  for (size_t i = 1; i < size; ++i) code = code << 6 | (byte(i) & 0x3F);
  return {code, size};
}

Char CharBefore(std::string_view text, size_t pos) {
  size_t begin = pos - 1;
  while (begin > 0 && pos - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  const Char c = CharAt(text, begin);
  return begin + c.size == pos ? c : Char{static_cast<unsigned char>(text[pos - 1]), 1};
}

void AppendUtf8(std::string* out, char32_t code) {
  const auto put = [&](char32_t byte) { *out += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

uint16_t FlagsOf(char32_t code) {
  const UnicodeRange* end = kUnicodeRanges + kNumUnicodeRanges;
  const UnicodeRange* it = std::upper_bound(
      kUnicodeRanges, end, code,
      [](char32_t value, const UnicodeRange& range) { return value < range.begin; });
  return (it - 1)->flags;
}

size_t CountChars(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t pos = 0;
  while (index > 0 && pos < text.size()) {
    pos += CharAt(text, pos).size;
    --index;
  }
  return pos;
}

bool IsSpace(char32_t code) {
  if (code < 0x80)
    return code == ' ' || (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x1F);
  return FlagsOf(code) & kSpace;
}

bool IsLineBreak(char32_t code) {
  return (code >= 10 && code <= 13) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

// --- Strip and case ---

namespace {

template <typename Predicate>
Text StripIf(const Text& text, bool left, bool right, Predicate drop) {
  size_t begin = 0;
  size_t end = text.bytes.size();
  while (left && begin < end) {
    const Char c = CharAt(text.bytes, begin);
    if (!drop(c.code)) break;
    begin += c.size;
  }
  while (right && end > begin) {
    const Char c = CharBefore(text.bytes, end);
    if (!drop(c.code)) break;
    end -= c.size;
  }
  return Slice(text, begin, end);
}

void AppendMapped(std::string* out, char32_t code, const CaseMap& map) {
  const CaseMapping* end = map.entries + map.num_entries;
  const CaseMapping* it =
      std::lower_bound(map.entries, end, code,
                       [](const CaseMapping& entry, char32_t value) { return entry.code < value; });
  if (it == end || it->code != code) return AppendUtf8(out, code);
  out->append(reinterpret_cast<const char*>(map.pool) + it->offset, it->size);
}

// Greek sigma at the end of a word: a cased letter before it, none after, case-ignorable skipped.
bool IsFinalSigma(std::string_view text, size_t pos, size_t size) {
  size_t before = pos;
  uint16_t flags = 0;
  while (before > 0) {
    const Char c = CharBefore(text, before);
    flags = FlagsOf(c.code);
    if (!(flags & kCaseIgnorable)) break;
    before -= c.size;
    flags = 0;
  }
  if (!(flags & kCased)) return false;
  for (size_t after = pos + size; after < text.size();) {
    const Char c = CharAt(text, after);
    flags = FlagsOf(c.code);
    if (!(flags & kCaseIgnorable)) return !(flags & kCased);
    after += c.size;
  }
  return true;
}

void AppendLower(std::string* out, std::string_view text, size_t pos, const Char& c) {
  if (c.code == 0x3A3) return AppendUtf8(out, IsFinalSigma(text, pos, c.size) ? 0x3C2 : 0x3C3);
  AppendMapped(out, c.code, kLowerMap);
}

// map(pos, char, out) appends what replaces the character at byte pos.
template <typename Map>
Text MapChars(const Text& text, Map map) {
  TextBuilder builder;
  std::string mapped;
  auto mark = text.marks.begin();
  for (size_t pos = 0; pos < text.bytes.size();) {
    const Char c = CharAt(text.bytes, pos);
    while (mark != text.marks.end() && mark->second <= pos) ++mark;
    const bool user = mark != text.marks.end() && mark->first <= pos;
    mapped.clear();
    map(pos, c, &mapped);
    builder.Append(mapped, user);
    pos += c.size;
  }
  return builder.Finish();
}

Text MapWith(const Text& text, const CaseMap& map) {
  return MapChars(text,
                  [&](size_t, const Char& c, std::string* out) { AppendMapped(out, c.code, map); });
}

}  // namespace

Text Strip(const Text& text, bool left, bool right) { return StripIf(text, left, right, IsSpace); }

Text StripChars(const Text& text, std::string_view chars, bool left, bool right) {
  std::vector<char32_t> set;
  for (size_t pos = 0; pos < chars.size();) {
    const Char c = CharAt(chars, pos);
    set.push_back(c.code);
    pos += c.size;
  }
  return StripIf(text, left, right, [&](char32_t code) {
    return std::find(set.begin(), set.end(), code) != set.end();
  });
}

Text Upper(const Text& text) { return MapWith(text, kUpperMap); }
Text CaseFold(const Text& text) { return MapWith(text, kFoldMap); }

Text Lower(const Text& text) {
  return MapChars(text, [&](size_t pos, const Char& c, std::string* out) {
    AppendLower(out, text.bytes, pos, c);
  });
}

Text Title(const Text& text) {
  bool previous_cased = false;
  return MapChars(text, [&](size_t pos, const Char& c, std::string* out) {
    if (previous_cased) {
      AppendLower(out, text.bytes, pos, c);
    } else {
      AppendMapped(out, c.code, kTitleMap);
    }
    previous_cased = FlagsOf(c.code) & kCased;
  });
}

Text Capitalize(const Text& text) {
  return MapChars(text, [&](size_t pos, const Char& c, std::string* out) {
    if (pos == 0) return AppendMapped(out, c.code, kTitleMap);
    AppendLower(out, text.bytes, pos, c);
  });
}

Text SwapCase(const Text& text) {
  return MapChars(text, [&](size_t pos, const Char& c, std::string* out) {
    const uint16_t flags = FlagsOf(c.code);
    if (flags & kUpper) return AppendLower(out, text.bytes, pos, c);
    AppendMapped(out, c.code, flags & kLower ? kUpperMap : CaseMap{nullptr, 0, nullptr});
  });
}

// --- Pieces ---

Text Replace(const Text& text, const Text& from, const Text& to, int64_t count) {
  TextBuilder builder;
  const std::string& bytes = text.bytes;
  if (count < 0) count = INT64_MAX;
  size_t pos = 0;
  if (from.empty()) {  // between all characters, and at both ends
    while (count > 0) {
      builder.Append(to);
      --count;
      if (pos >= bytes.size()) return builder.Finish();
      const size_t size = CharAt(bytes, pos).size;
      builder.AppendSlice(text, pos, pos + size);
      pos += size;
    }
  } else {
    for (; count > 0; --count) {
      const size_t found = bytes.find(from.bytes, pos);
      if (found == std::string::npos) break;
      builder.AppendSlice(text, pos, found);
      builder.Append(to);
      pos = found + from.bytes.size();
    }
  }
  builder.AppendSlice(text, pos, bytes.size());
  return builder.Finish();
}

std::vector<Text> SplitWhitespace(const Text& text, int64_t max, bool from_right) {
  const std::string& bytes = text.bytes;
  if (max < 0) max = INT64_MAX;
  std::vector<Text> parts;
  if (from_right) {
    size_t end = bytes.size();
    const auto skip = [&] {
      while (end > 0 && IsSpace(CharBefore(bytes, end).code)) end -= CharBefore(bytes, end).size;
    };
    for (skip(); end > 0; skip()) {
      if (max-- <= 0) {
        parts.push_back(Slice(text, 0, end));
        break;
      }
      size_t begin = end;
      while (begin > 0 && !IsSpace(CharBefore(bytes, begin).code)) {
        begin -= CharBefore(bytes, begin).size;
      }
      parts.push_back(Slice(text, begin, end));
      end = begin;
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t begin = 0;
  const auto skip = [&] {
    while (begin < bytes.size() && IsSpace(CharAt(bytes, begin).code)) {
      begin += CharAt(bytes, begin).size;
    }
  };
  for (skip(); begin < bytes.size(); skip()) {
    if (max-- <= 0) {
      parts.push_back(Slice(text, begin, bytes.size()));
      break;
    }
    size_t end = begin;
    while (end < bytes.size() && !IsSpace(CharAt(bytes, end).code)) end += CharAt(bytes, end).size;
    parts.push_back(Slice(text, begin, end));
    begin = end;
  }
  return parts;
}

std::vector<Text> Split(const Text& text, std::string_view separator, int64_t max,
                        bool from_right) {
  const std::string& bytes = text.bytes;
  if (max < 0) max = INT64_MAX;
  std::vector<Text> parts;
  if (from_right) {
    size_t end = bytes.size();
    for (; max > 0; --max) {
      if (end < separator.size()) break;
      const size_t found = bytes.rfind(separator, end - separator.size());
      if (found == std::string::npos) break;
      parts.push_back(Slice(text, found + separator.size(), end));
      end = found;
    }
    parts.push_back(Slice(text, 0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t begin = 0;
  for (; max > 0; --max) {
    const size_t found = bytes.find(separator, begin);
    if (found == std::string::npos) break;
    parts.push_back(Slice(text, begin, found));
    begin = found + separator.size();
  }
  parts.push_back(Slice(text, begin, bytes.size()));
  return parts;
}

std::vector<Text> SplitLines(const Text& text, bool keep_ends) {
  const std::string& bytes = text.bytes;
  std::vector<Text> lines;
  for (size_t begin = 0; begin < bytes.size();) {
    size_t end = begin;
    size_t next = begin;
    while (next < bytes.size()) {
      const Char c = CharAt(bytes, next);
      end = next;
      next += c.size;
      if (!IsLineBreak(c.code)) {
        end = next;
        continue;
      }
      if (c.code == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      break;
    }
    lines.push_back(Slice(text, begin, keep_ends ? next : end));
    begin = next;
  }
  return lines;
}

Text Join(const Text& separator, const std::vector<Text>& parts) {
  TextBuilder builder;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) builder.Append(separator);
    builder.Append(parts[i]);
  }
  return builder.Finish();
}

Text Repeat(const Text& text, int64_t times) {
  TextBuilder builder;
  for (int64_t i = 0; i < times; ++i) builder.Append(text);
  return builder.Finish();
}

Text ExpandTabs(const Text& text, int64_t size) {
  int64_t column = 0;
  return MapChars(text, [&](size_t, const Char& c, std::string* out) {
    if (c.code == '\t') {
      if (size > 0) {
        const int64_t fill = size - column % size;
        out->append(static_cast<size_t>(fill), ' ');
        column += fill;
      }
      return;
    }
    column = c.code == '\n' || c.code == '\r' ? 0 : column + 1;
    AppendUtf8(out, c.code);
  });
}

Text EscapeHtml(const Text& text) {
  Text escaped = MapChars(text, [](size_t, const Char& c, std::string* out) {
    switch (c.code) {
      case '&':
        *out += "&amp;";
        break;
      case '<':
        *out += "&lt;";
        break;
      case '>':
        *out += "&gt;";
        break;
      case '\'':
        *out += "&#39;";
        break;
      case '"':
        *out += "&#34;";
        break;
      default:
        AppendUtf8(out, c.code);
    }
  });
  escaped.safe = true;
  return escaped;
}

// --- Questions ---

bool AllHave(std::string_view text, uint16_t flags) {
  for (size_t pos = 0; pos < text.size();) {
    const Char c = CharAt(text, pos);
    if (!(FlagsOf(c.code) & flags)) return false;
    pos += c.size;
  }
  return !text.empty();
}

namespace {
bool HasCaseOnly(std::string_view text, uint16_t wanted, uint16_t unwanted) {
  bool seen = false;
  for (size_t pos = 0; pos < text.size();) {
    const Char c = CharAt(text, pos);
    const uint16_t flags = FlagsOf(c.code);
    if (flags & unwanted) return false;
    seen = seen || (flags & wanted);
    pos += c.size;
  }
  return seen;
}
}  // namespace

bool IsUpperText(std::string_view text) { return HasCaseOnly(text, kUpper, kLower | kTitle); }
bool IsLowerText(std::string_view text) { return HasCaseOnly(text, kLower, kUpper | kTitle); }

bool IsTitleText(std::string_view text) {
  bool cased = false;
  bool previous_cased = false;
  for (size_t pos = 0; pos < text.size();) {
    const Char c = CharAt(text, pos);
    const uint16_t flags = FlagsOf(c.code);
    if (flags & (kUpper | kTitle)) {
      if (previous_cased) return false;
      previous_cased = cased = true;
    } else if (flags & kLower) {
      if (!previous_cased) return false;
      cased = true;
    } else {
      previous_cased = false;
    }
    pos += c.size;
  }
  return cased;
}

bool IsIdentifier(std::string_view text) {
  if (text.empty()) return false;
  const Char first = CharAt(text, 0);
  if (!(FlagsOf(first.code) & kIdStart)) return false;
  return AllHave(text, kIdContinue);
}

}  // namespace penstock::jinja
