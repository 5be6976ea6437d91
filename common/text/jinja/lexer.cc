#include "common/text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "common/base/status.h"
#include "common/text/jinja/text.h"
#include "common/text/jinja/unicode_tables.h"

namespace penstock::jinja {

absl::Status SyntaxErrorAt(int line, int column, const std::string& message) {
  return InvalidArgument("chat template, line %d, column %d: %s", line, column, message);
}

std::string Token::Describe() const {
  switch (type) {
    case TokenType::kData:
      return "template data / text";
    case TokenType::kVariableBegin:
      return "begin of print statement";
    case TokenType::kVariableEnd:
      return "end of print statement";
    case TokenType::kBlockBegin:
      return "begin of statement block";
    case TokenType::kBlockEnd:
      return "end of statement block";
    case TokenType::kString:
      return "string";
    case TokenType::kInteger:
    case TokenType::kBigInteger:
      return "integer";
    case TokenType::kFloat:
      return "float";
    case TokenType::kEof:
      return "end of template";
    default:
      return text;
  }
}

namespace {

// Line breaks become \n, and one at the very end goes.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (pos_ < source_.size()) RETURN_IF_ERROR(LexRoot());
    Emit(TokenType::kEof, "", source_.size());
    return std::move(tokens_);
  }

 private:
  // --- Positions ---

  absl::Status Error(size_t pos, const std::string& message) {
    const auto [line, column] = Locate(pos);
    return SyntaxErrorAt(line, column, message);
  }
  std::pair<int, int> Locate(size_t pos) {
    if (pos < located_) {  // only errors look back
      located_ = 0;
      line_ = column_ = 1;
    }
    for (; located_ < pos; ++located_) {
      if (source_[located_] == '\n') {
        ++line_;
        column_ = 1;
      } else if ((static_cast<unsigned char>(source_[located_]) & 0xC0) != 0x80) {
        ++column_;
      }
    }
    return {line_, column_};
  }
  void Emit(TokenType type, std::string text, size_t at) {
    const auto [line, column] = Locate(at);
    tokens_.push_back({type, std::move(text), line, column});
  }

  bool At(std::string_view what) const { return At(pos_, what); }
  bool At(size_t pos, std::string_view what) const {
    return source_.compare(pos, what.size(), what) == 0;
  }
  size_t SkipSpace(size_t pos) const {
    while (pos < source_.size()) {
      const Char c = CharAt(source_, pos);
      if (!IsSpace(c.code)) break;
      pos += c.size;
    }
    return pos;
  }

  // --- Outside of tags ---

  // Emits the text before a tag at `tag`, with what its sign and lstrip_blocks take off the end.
  void EmitData(size_t begin, size_t tag, char sign, bool is_variable) {
    size_t end = tag;
    if (sign == '-') {
      while (end > begin) {
        const Char c = CharBefore(source_, end);
        if (!IsSpace(c.code)) break;
        end -= c.size;
      }
    } else if (sign != '+' && !is_variable) {
      size_t line = end;
      while (line > begin && source_[line - 1] != '\n') --line;
      const bool at_line_start = line > begin || line_starting_;
      if (at_line_start && line < end && SkipSpace(line) >= end) end = line;
    }
    if (end > begin) Emit(TokenType::kData, source_.substr(begin, end - begin), begin);
  }

  void Advance(size_t to) {
    line_starting_ = to > pos_ ? source_[to - 1] == '\n' : false;
    pos_ = to;
  }

  // The position behind `name` and a closing %} when pos stands on them. Raw's begin keeps a
  // following newline, its end loses it.
  size_t MatchRawTag(size_t pos, std::string_view name, bool is_end) const {
    pos = SkipSpace(pos);
    if (!At(pos, name)) return std::string::npos;
    pos = SkipSpace(pos + name.size());
    if (At(pos, "-%}")) return SkipSpace(pos + 3);
    if (is_end && At(pos, "+%}")) return pos + 3;
    if (!At(pos, "%}")) return std::string::npos;
    pos += 2;
    return is_end && pos < source_.size() && source_[pos] == '\n' ? pos + 1 : pos;
  }

  char SignAt(size_t pos) const {
    const char c = pos < source_.size() ? source_[pos] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  absl::Status LexRoot() {
    const size_t begin = pos_;
    size_t tag = begin;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        Emit(TokenType::kData, source_.substr(begin), begin);
        Advance(source_.size());
        return absl::OkStatus();
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    const char sign = SignAt(tag + 2);
    const size_t inside = tag + 2 + (sign != '\0' ? 1 : 0);
    const char kind = source_[tag + 1];
    if (kind == '%') {
      const size_t raw = MatchRawTag(inside, "raw", false);
      if (raw != std::string::npos) {
        EmitData(begin, tag, sign, false);
        Advance(raw);
        return LexRaw(tag);
      }
    }
    EmitData(begin, tag, sign, kind == '{');
    if (kind == '#') {
      Advance(inside);
      return LexComment(tag);
    }
    Emit(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, "", tag);
    Advance(inside);
    return LexTag(kind == '{');
  }

  absl::Status LexRaw(size_t tag) {
    const size_t begin = pos_;
    for (size_t at = source_.find("{%", begin); at != std::string::npos;
         at = source_.find("{%", at + 1)) {
      const char sign = SignAt(at + 2);
      const size_t end = MatchRawTag(at + 2 + (sign != '\0' ? 1 : 0), "endraw", true);
      if (end == std::string::npos) continue;
      EmitData(begin, at, sign, false);
      Advance(end);
      return absl::OkStatus();
    }
    if (begin == source_.size()) return absl::OkStatus();  // jinja2 misses that one
    return Error(tag, "Missing end of raw directive");
  }

  absl::Status LexComment(size_t tag) {
    size_t end = source_.find("#}", pos_);
    if (end == std::string::npos && pos_ == source_.size()) return absl::OkStatus();  // as jinja2
    if (end == std::string::npos) return Error(tag, "Missing end of comment tag");
    const char sign = end > pos_ ? source_[end - 1] : '\0';
    size_t next = end + 2;
    if (sign == '-') {
      next = SkipSpace(next);
    } else if (sign != '+' && next < source_.size() && source_[next] == '\n') {
      ++next;
    }
    Advance(next);
    return absl::OkStatus();
  }

  // --- Inside of tags ---

  // True when the tag ended here.
  bool LexTagEnd(bool is_variable) {
    const size_t at = pos_;
    if (is_variable) {
      if (At("-}}")) {
        Advance(SkipSpace(pos_ + 3));
      } else if (At("}}")) {
        Advance(pos_ + 2);
      } else {
        return false;
      }
      Emit(TokenType::kVariableEnd, "", at);
      return true;
    }
    if (At("+%}")) {
      Advance(pos_ + 3);
    } else if (At("-%}")) {
      Advance(SkipSpace(pos_ + 3));
    } else if (At("%}")) {
      const size_t next = pos_ + 2;
      Advance(next < source_.size() && source_[next] == '\n' ? next + 1 : next);
    } else {
      return false;
    }
    Emit(TokenType::kBlockEnd, "", at);
    return true;
  }

  absl::Status LexTag(bool is_variable) {
    std::vector<char> open;  // brackets: an end of tag inside them is no end
    while (pos_ < source_.size()) {
      if (open.empty() && LexTagEnd(is_variable)) return absl::OkStatus();
      const Char c = CharAt(source_, pos_);
      if (IsSpace(c.code)) {
        pos_ = SkipSpace(pos_);
      } else if (c.code >= '0' && c.code <= '9') {
        LexNumber();
      } else if (c.code == '_' || (FlagsOf(c.code) & (kWord | kIdContinue))) {
        RETURN_IF_ERROR(LexName());
      } else if (c.code == '\'' || c.code == '"') {
        RETURN_IF_ERROR(LexString());
      } else {
        RETURN_IF_ERROR(LexOperator(&open));
      }
    }
    return absl::OkStatus();  // the parser reports the missing end
  }

  size_t SkipDigits(size_t pos, bool (*is_digit)(char)) const {
    // digits, each but the first may follow one underscore
    while (pos < source_.size()) {
      if (is_digit(source_[pos])) {
        ++pos;
      } else if (source_[pos] == '_' && pos + 1 < source_.size() && is_digit(source_[pos + 1])) {
        pos += 2;
      } else {
        break;
      }
    }
    return pos;
  }

  static bool IsDecimal(char c) { return c >= '0' && c <= '9'; }

  // End of a float literal at pos_, or npos.
  size_t MatchFloat() const {
    if (pos_ > 0 && source_[pos_ - 1] == '.') return std::string::npos;
    const size_t whole = SkipDigits(pos_, IsDecimal);
    size_t end = whole;
    if (end + 1 < source_.size() && source_[end] == '.' && IsDecimal(source_[end + 1])) {
      end = SkipDigits(end + 1, IsDecimal);
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
        ++exponent;
      }
      if (exponent < source_.size() && IsDecimal(source_[exponent])) {
        return SkipDigits(exponent, IsDecimal);
      }
    }
    return end > whole ? end : std::string::npos;
  }

  void LexNumber() {
    const size_t begin = pos_;
    size_t end = MatchFloat();
    TokenType type = TokenType::kFloat;
    int base = 10;
    if (end == std::string::npos) {
      type = TokenType::kInteger;
      end = IntegerEnd(&base);
    }
    std::string digits;
    for (size_t i = begin + (base == 10 ? 0 : 2); i < end; ++i) {
      if (source_[i] != '_') digits += source_[i];
    }
    if (type == TokenType::kInteger) {
      errno = 0;
      const long long value = std::strtoll(digits.c_str(), nullptr, base);
      if (errno == ERANGE) {
        type = TokenType::kBigInteger;
      } else {
        digits = std::to_string(value);
      }
    }
    Emit(type, std::move(digits), begin);
    pos_ = end;
  }

  size_t IntegerEnd(int* base) const {
    if (source_[pos_] != '0') return SkipDigits(pos_, IsDecimal);
    const char mark = pos_ + 1 < source_.size() ? source_[pos_ + 1] | 0x20 : '\0';
    const auto try_base = [&](int value, bool (*is_digit)(char)) -> size_t {
      const size_t end = SkipDigits(pos_ + 2, is_digit);
      if (end == pos_ + 2) return 0;
      *base = value;
      return end;
    };
    size_t end = 0;
    if (mark == 'b') end = try_base(2, [](char c) { return c == '0' || c == '1'; });
    if (mark == 'o') end = try_base(8, [](char c) { return c >= '0' && c <= '7'; });
    if (mark == 'x') {
      end = try_base(
          16, [](char c) { return IsDecimal(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); });
    }
    if (end != 0) return end;
    return SkipDigits(pos_, [](char c) { return c == '0'; });
  }

  absl::Status LexName() {
    const size_t begin = pos_;
    while (pos_ < source_.size()) {
      const Char c = CharAt(source_, pos_);
      if (c.code != '_' && !(FlagsOf(c.code) & (kWord | kIdContinue))) break;
      pos_ += c.size;
    }
    std::string name = source_.substr(begin, pos_ - begin);
    if (!IsIdentifier(name)) return Error(begin, "Invalid character in identifier");
    Emit(TokenType::kName, std::move(name), begin);
    return absl::OkStatus();
  }

  absl::Status LexString() {
    const size_t begin = pos_;
    const char quote = source_[pos_];
    size_t end = begin + 1;
    while (end < source_.size() && source_[end] != quote) {
      end += source_[end] == '\\' ? 2 : 1;
    }
    if (end >= source_.size()) {
      return Error(begin, std::string("a string is not closed: missing ") + quote);
    }
    std::string text;
    RETURN_IF_ERROR(Unescape(begin + 1, end, &text));
    Emit(TokenType::kString, std::move(text), begin);
    pos_ = end + 1;
    return absl::OkStatus();
  }

  absl::Status Unescape(size_t pos, size_t end, std::string* out) {
    while (pos < end) {
      if (source_[pos] != '\\') {
        *out += source_[pos++];
        continue;
      }
      RETURN_IF_ERROR(UnescapeOne(&pos, end, out));
    }
    return absl::OkStatus();
  }

  absl::Status UnescapeOne(size_t* pos, size_t end, std::string* out) {
    const size_t at = *pos;
    const Char c = CharAt(source_, at + 1);
    *pos = at + 1 + c.size;
    static constexpr std::string_view kFrom = "\\'\"abfnrtv";
    static constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    if (c.code == '\n') return absl::OkStatus();
    if (c.code < 0x80) {
      const size_t simple = kFrom.find(static_cast<char>(c.code));
      if (simple != std::string_view::npos) {
        *out += kTo[simple];
        return absl::OkStatus();
      }
    }
    if (c.code >= '0' && c.code <= '7') {
      char32_t code = 0;
      size_t i = at + 1;
      for (; i < end && i < at + 4 && source_[i] >= '0' && source_[i] <= '7'; ++i) {
        code = code * 8 + static_cast<char32_t>(source_[i] - '0');
      }
      *pos = i;
      AppendUtf8(out, code);
      return absl::OkStatus();
    }
    const size_t digits = c.code == 'x' ? 2 : c.code == 'u' ? 4 : c.code == 'U' ? 8 : 0;
    if (digits > 0) return UnescapeHex(at, digits, pos, end, out);
    if (c.code == 'N') return Error(at, "escapes by character name (\\N) are not supported");
    *out += '\\';  // unknown: both characters stay
    if (c.code < 0x80) {
      *out += static_cast<char>(c.code);
    } else {  // Python meets it as an escape already
      *out += c.code < 0x100     ? absl::StrFormat("x%02x", static_cast<uint32_t>(c.code))
              : c.code < 0x10000 ? absl::StrFormat("u%04x", static_cast<uint32_t>(c.code))
                                 : absl::StrFormat("U%08x", static_cast<uint32_t>(c.code));
    }
    return absl::OkStatus();
  }

  absl::Status UnescapeHex(size_t at, size_t digits, size_t* pos, size_t end, std::string* out) {
    char32_t code = 0;
    size_t i = at + 2;
    for (; i < at + 2 + digits; ++i) {
      const char c = i < end ? source_[i] : '\0';
      const char lower = c | 0x20;
      if (IsDecimal(c)) {
        code = code * 16 + static_cast<char32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        code = code * 16 + static_cast<char32_t>(lower - 'a' + 10);
      } else {
        return Error(at, "truncated \\" + std::string(1, source_[at + 1]) + " escape in a string");
      }
    }
    if (code > 0x10FFFF) return Error(at, "illegal Unicode character in a string");
    if (code >= 0xD800 && code < 0xE000) {
      return Error(at, "a string contains half of a surrogate pair, which is no character");
    }
    AppendUtf8(out, code);
    *pos = i;
    return absl::OkStatus();
  }

  absl::Status LexOperator(std::vector<char>* open) {
    static constexpr std::array<std::string_view, 6> kLong = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    const size_t begin = pos_;
    std::string op;
    for (const std::string_view candidate : kLong) {
      if (At(candidate)) op = candidate;
    }
    const char c = source_[pos_];
    if (op.empty() && kShort.find(c) != std::string_view::npos) op = c;
    if (op.empty()) {
      const Char bad = CharAt(source_, pos_);
      return Error(begin, "unexpected char '" + source_.substr(pos_, bad.size) + "'");
    }
    if (op == "{" || op == "(" || op == "[") {
      open->push_back(c == '{' ? '}' : c == '(' ? ')' : ']');
    } else if (op == "}" || op == ")" || op == "]") {
      if (open->empty()) return Error(begin, "unexpected '" + op + "'");
      if (open->back() != c) {
        return Error(begin, "unexpected '" + op + "', expected '" + open->back() + "'");
      }
      open->pop_back();
    }
    pos_ += op.size();
    Emit(TokenType::kOperator, std::move(op), begin);
    return absl::OkStatus();
  }

  const std::string source_;
  size_t pos_ = 0;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
  size_t located_ = 0;  // line_ and column_ are this byte's
  int line_ = 1;
  int column_ = 1;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(NormalizeNewlines(source)).Run();
}

}  // namespace penstock::jinja
