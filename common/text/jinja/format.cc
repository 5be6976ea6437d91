// printf-style and brace formatting of strings, as Python's % and str.format do them.

#include <algorithm>
#include <cmath>

#include "common/text/jinja/errors.h"
#include "common/text/jinja/runtime.h"

namespace penstock::jinja {
namespace {

constexpr int64_t kMaxWidth = 1'000'000;

struct Spec {
  std::string fill = " ";  // one character
  char align = '\0';       // < > ^ =
  char sign = '-';
  bool alternate = false;
  int64_t width = 0;
  char grouping = '\0';
  int64_t precision = -1;
  char type = '\0';
};

Text Pad(const Text& text, const Spec& spec, char default_align) {
  const auto size = static_cast<int64_t>(CountChars(text.bytes));
  if (size >= spec.width) return text;
  const int64_t missing = spec.width - size;
  const char align = spec.align != '\0' ? spec.align : default_align;
  const int64_t left = align == '>' || align == '=' ? missing : align == '^' ? missing / 2 : 0;
  TextBuilder builder;
  for (int64_t i = 0; i < left; ++i) builder.Append(spec.fill);
  builder.Append(text);
  for (int64_t i = left; i < missing; ++i) builder.Append(spec.fill);
  return builder.Finish();
}

std::string Group(const std::string& digits, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out;
}

// Sign, prefix and digits with padding between sign and digits where spec asks for it.
Text FinishNumber(bool negative, const std::string& prefix, std::string digits, const Spec& spec) {
  std::string sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  if (spec.grouping != '\0') {
    size_t end = 0;
    while (end < digits.size() && std::isalnum(static_cast<unsigned char>(digits[end]))) ++end;
    const bool hex = spec.type == 'x' || spec.type == 'X' || spec.type == 'b' || spec.type == 'o';
    if (!hex) end = std::min(end, digits.find_first_of("eE"));
    std::string whole = digits.substr(0, end);
    const size_t every = hex ? 4 : 3;
    const auto used = static_cast<int64_t>(sign.size() + prefix.size() + digits.size() - end);
    std::string grouped = Group(whole, spec.grouping, every);
    while (spec.align == '=' && spec.fill == "0" &&
           used + static_cast<int64_t>(grouped.size()) < spec.width) {
      whole = "0" + whole;  // zeros are grouped like digits
      grouped = Group(whole, spec.grouping, every);
    }
    digits = grouped + digits.substr(end);
  }
  if (spec.align == '=') {
    const auto used = static_cast<int64_t>(sign.size() + prefix.size() + digits.size());
    std::string padding;
    for (int64_t i = used; i < spec.width; ++i) padding += spec.fill;
    return Text(sign + prefix + padding + digits);
  }
  return Pad(Text(sign + prefix + digits), spec, '>');
}

std::string CPrintf(char type, int64_t precision, bool alternate, double value) {
  const std::string format =
      std::string("%") + (alternate ? "#" : "") + ".*" + std::string(1, type);
  std::string out(static_cast<size_t>(400 + std::max<int64_t>(precision, 0)), '\0');
  const int size =
      std::snprintf(out.data(), out.size(), format.c_str(), static_cast<int>(precision), value);
  out.resize(static_cast<size_t>(size));
  return out;
}

// Digits of a float that is not negative.
std::string FloatDigits(double value, const Spec& spec) {
  const char type = spec.type;
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (std::isnan(value)) return upper ? "NAN" : "nan";
  if (std::isinf(value)) return upper ? "INF" : "inf";
  if (type == '\0') {
    if (spec.precision < 0) return FloatRepr(value);
    std::string out = CPrintf('g', std::max<int64_t>(spec.precision, 1), false, value);
    const size_t e = out.find('e');
    // str() keeps one digit behind the point where g would drop it.
    if (e == std::string::npos && out.find('.') == std::string::npos) {
      const int64_t digits = static_cast<int64_t>(out.size());
      if (digits >= std::max<int64_t>(spec.precision, 1)) {
        return CPrintf('e', std::max<int64_t>(spec.precision, 1) - 1, false, value);
      }
      out += ".0";
    }
    return out;
  }
  if (type == '%') {
    return CPrintf('f', spec.precision < 0 ? 6 : spec.precision, spec.alternate, value * 100) + "%";
  }
  int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  const char c_type = type == 'n' ? 'g' : type;
  if ((c_type == 'g' || c_type == 'G') && precision == 0) precision = 1;
  return CPrintf(c_type, precision, spec.alternate, value);
}

std::string Digits(uint64_t value, unsigned base, bool upper) {
  std::string out;
  do {
    const unsigned digit = static_cast<unsigned>(value % base);
    out += static_cast<char>(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10);
    value /= base;
  } while (value > 0);
  std::reverse(out.begin(), out.end());
  return out;
}

uint64_t Magnitude(int64_t value) {
  return value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
}

// --- Braces ---

absl::StatusOr<Spec> ParseSpec(const std::string& text) {
  Spec spec;
  size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    const size_t first = CharAt(text, 0).size;
    if (first < text.size() && is_align(text[first])) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      at = first + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      at = 1;
    }
  }
  const auto next = [&] { return at < text.size() ? text[at] : '\0'; };
  if (next() == '+' || next() == '-' || next() == ' ') spec.sign = text[at++];
  if (next() == '#') {
    spec.alternate = true;
    ++at;
  }
  if (next() == '0') {
    ++at;
    if (spec.align == '\0') {
      spec.align = '=';
      if (spec.fill == " ") spec.fill = "0";
    }
  }
  const auto number = [&](int64_t* out) {
    for (*out = 0; next() >= '0' && next() <= '9' && *out <= kMaxWidth; ++at) {
      *out = *out * 10 + (text[at] - '0');
    }
  };
  number(&spec.width);
  if (next() == ',' || next() == '_') spec.grouping = text[at++];
  if (next() == '.') {
    ++at;
    if (next() < '0' || next() > '9') return ValueError("Format specifier missing precision");
    number(&spec.precision);
  }
  if (spec.width > kMaxWidth || spec.precision > kMaxWidth) {
    return LimitError("a format with a width beyond %d", kMaxWidth);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) return ValueError("Invalid format specifier");
  return spec;
}

absl::Status UnknownCode(char type, const Value& value) {
  return ValueError("Unknown format code '%c' for object of type '%s'", type, TypeName(value));
}

absl::StatusOr<Text> FormatInt(const Value& value, Spec spec) {
  if (value.is(Kind::kBigInt)) return NotSupported("formatting an integer beyond 64 bits");
  const int64_t number = value.as_int();
  std::string prefix;
  std::string digits;
  switch (spec.type) {
    case '\0':
    case 'd':
    case 'n':
      digits = std::to_string(Magnitude(number));
      break;
    case 'b':
    case 'o':
    case 'x':
    case 'X':
      digits = Digits(Magnitude(number),
                      spec.type == 'b'   ? 2
                      : spec.type == 'o' ? 8
                                         : 16,
                      spec.type == 'X');
      if (spec.alternate) prefix = std::string("0") + spec.type;
      break;
    case 'c': {
      if (number < 0 || number > 0x10FFFF) {
        return OverflowError("%%c arg not in range(0x110000)");
      }
      std::string text;
      AppendUtf8(&text, static_cast<char32_t>(number));
      return Pad(Text(text), spec, '<');
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case '%':
      return FinishNumber(number < 0, "", FloatDigits(std::fabs(static_cast<double>(number)), spec),
                          spec);
    default:
      return UnknownCode(spec.type, value);
  }
  if (spec.precision >= 0) return ValueError("Precision not allowed in integer format specifier");
  return FinishNumber(number < 0, prefix, digits, spec);
}

absl::StatusOr<Text> FormatWithSpec(Runtime& runtime, const Value& value, const std::string& text) {
  if (text.empty()) return ToText(runtime, value);
  ASSIGN_OR_RETURN(Spec spec, ParseSpec(text));
  if (value.is_string()) {
    if (spec.type != '\0' && spec.type != 's') return UnknownCode(spec.type, value);
    if (spec.sign != '-' || text.find_first_of("+- ") == 0) {
      if (spec.sign != '-') return ValueError("Sign not allowed in string format specifier");
    }
    if (spec.align == '=') {
      if (spec.fill != "0" || text.find('=') != std::string::npos) {
        return ValueError("'=' alignment not allowed in string format specifier");
      }
      spec.align = '<';
    }
    if (spec.alternate || spec.grouping != '\0') {
      return ValueError("Invalid format specifier for a string");
    }
    Text shown = value.text();
    if (spec.precision >= 0) {
      shown = Slice(shown, 0, ByteOffset(shown.bytes, static_cast<size_t>(spec.precision)));
    }
    return Pad(shown, spec, '<');
  }
  if (value.is_integral() || value.is(Kind::kBigInt)) return FormatInt(value, spec);
  if (value.is(Kind::kFloat)) {
    static constexpr std::string_view kTypes = "eEfFgGn%";
    if (spec.type != '\0' && kTypes.find(spec.type) == std::string_view::npos) {
      return UnknownCode(spec.type, value);
    }
    const double number = value.as_float();
    return FinishNumber(std::signbit(number) && !std::isnan(number), "",
                        FloatDigits(std::fabs(number), spec), spec);
  }
  return TypeError("unsupported format string passed to %s.__format__", TypeName(value));
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime* runtime, Args* args) : runtime_(*runtime), args_(*args) {}

  absl::StatusOr<Text> Run(const Text& format, int depth) {
    if (depth < 0) return ValueError("Max string recursion exceeded");
    const std::string& f = format.bytes;
    TextBuilder out;
    for (size_t at = 0; at < f.size();) {
      const size_t brace = f.find_first_of("{}", at);
      if (brace == std::string::npos) {
        out.AppendSlice(format, at, f.size());
        break;
      }
      out.AppendSlice(format, at, brace);
      if (brace + 1 < f.size() && f[brace + 1] == f[brace]) {
        out.AppendSlice(format, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      if (f[brace] == '}') return ValueError("Single '}' encountered in format string");
      ASSIGN_OR_RETURN(const size_t end, FieldEnd(f, brace));
      ASSIGN_OR_RETURN(const Text field, Field(f.substr(brace + 1, end - brace - 1), depth));
      out.Append(field);
      RETURN_IF_ERROR(runtime_.CheckSize(static_cast<double>(out.size())));
      at = end + 1;
    }
    return out.Finish();
  }

 private:
  static absl::StatusOr<size_t> FieldEnd(const std::string& f, size_t brace) {
    int open = 0;
    for (size_t i = brace; i < f.size(); ++i) {
      if (f[i] == '{') ++open;
      if (f[i] == '}' && --open == 0) return i;
    }
    return brace + 1 == f.size() ? ValueError("Single '{' encountered in format string")
                                 : ValueError("expected '}' before end of string");
  }

  absl::StatusOr<Text> Field(const std::string& field, int depth) {
    size_t name_end = 0;
    bool in_brackets = false;
    for (; name_end < field.size(); ++name_end) {
      const char c = field[name_end];
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (!in_brackets && (c == '!' || c == ':')) break;
    }
    ASSIGN_OR_RETURN(Value value, Lookup(field.substr(0, name_end)));
    size_t at = name_end;
    if (at < field.size() && field[at] == '!') {
      if (at + 1 >= field.size()) return ValueError("end of string while looking for conversion");
      const char conversion = field[at + 1];
      at += 2;
      if (at < field.size() && field[at] != ':') {
        return ValueError("expected ':' after conversion specifier");
      }
      ASSIGN_OR_RETURN(value, Convert(value, conversion));
    }
    std::string spec = at < field.size() ? field.substr(at + 1) : "";
    if (spec.find_first_of("{}") != std::string::npos) {
      ASSIGN_OR_RETURN(const Text inner, Run(Text(spec), depth - 1));
      spec = inner.bytes;
    }
    return FormatWithSpec(runtime_, value, spec);
  }

  absl::StatusOr<Value> Convert(const Value& value, char conversion) {
    if (conversion == 's') {
      ASSIGN_OR_RETURN(Text text, ToText(runtime_, value));
      return Value::String(std::move(text));
    }
    if (conversion == 'r') {
      ASSIGN_OR_RETURN(Text text, Repr(runtime_, value));
      return Value::String(std::move(text));
    }
    if (conversion == 'a') return NotSupported("the conversion !a");
    return ValueError("Unknown conversion specifier %c", conversion);
  }

  absl::StatusOr<Value> Lookup(const std::string& name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    ASSIGN_OR_RETURN(Value value, First(name.substr(0, first_end)));
    for (size_t at = first_end; at < name.size();) {
      if (name[at] == '.') {
        const size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        if (end == at + 1) return ValueError("Empty attribute in format string");
        ASSIGN_OR_RETURN(value, GetAttribute(runtime_, value, name.substr(at + 1, end - at - 1)));
        at = end;
      } else if (name[at] == '[') {
        const size_t end = name.find(']', at);
        if (end == std::string::npos) return ValueError("Missing ']' in format string");
        const std::string key = name.substr(at + 1, end - at - 1);
        if (key.empty()) return ValueError("Empty attribute in format string");
        const bool digits = key.find_first_not_of("0123456789") == std::string::npos;
        Value index = Value::String(key);
        if (digits) {
          ASSIGN_OR_RETURN(index, ParseInt(key, 10));
        }
        ASSIGN_OR_RETURN(value, GetItem(runtime_, value, index));
        at = end + 1;
      } else {
        return ValueError("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  absl::StatusOr<Value> First(const std::string& name) {
    const bool digits = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    if (!digits && !name.empty()) {
      for (const auto& [key, value] : args_.named) {
        if (key == name) return value;
      }
      return LookupError("'%s'", name);
    }
    size_t index = next_;
    if (name.empty()) {
      if (numbered_) {
        return ValueError("cannot switch from manual field specification to automatic numbering");
      }
      ++next_;
    } else {
      if (next_ > 0) {
        return ValueError("cannot switch from automatic field numbering to manual specification");
      }
      numbered_ = true;
      index = name.size() > 9 ? SIZE_MAX : static_cast<size_t>(std::stoul(name));
    }
    if (index < args_.positional.size()) return args_.positional[index];
    return LookupError("Replacement index %d out of range for positional args tuple", index);
  }

  Runtime& runtime_;
  Args& args_;
  size_t next_ = 0;
  bool numbered_ = false;
};

// --- Percent ---

class PercentFormatter {
 public:
  PercentFormatter(Runtime* runtime, const Text& format, const Value& arguments)
      : runtime_(*runtime), format_(format), f_(format.bytes), arguments_(arguments) {}

  absl::StatusOr<Text> Run() {
    while (at_ < f_.size()) {
      const size_t percent = f_.find('%', at_);
      if (percent == std::string::npos) {
        out_.AppendSlice(format_, at_, f_.size());
        break;
      }
      out_.AppendSlice(format_, at_, percent);
      at_ = percent + 1;
      RETURN_IF_ERROR(Conversion());
      RETURN_IF_ERROR(runtime_.CheckSize(static_cast<double>(out_.size())));
    }
    const bool unused =
        arguments_.is(Kind::kTuple) ? next_ < arguments_.items().size() : !used_ && !IsMapping();
    if (unused) return TypeError("not all arguments converted during string formatting");
    Text text = out_.Finish();
    text.safe = format_.safe;
    return text;
  }

 private:
  bool IsMapping() const {
    return arguments_.is(Kind::kDict) || arguments_.is(Kind::kList) ||
           arguments_.is(Kind::kRange) || arguments_.is_undefined();
  }

  absl::StatusOr<Value> NextArgument() {
    if (has_key_) return keyed_;
    if (arguments_.is(Kind::kTuple)) {
      if (next_ < arguments_.items().size()) return arguments_.items()[next_++];
    } else if (!used_) {
      used_ = true;
      return arguments_;
    }
    return TypeError("not enough arguments for format string");
  }

  char Peek() const { return at_ < f_.size() ? f_[at_] : '\0'; }

  absl::Status Key() {
    if (!IsMapping()) return TypeError("format requires a mapping");
    int open = 1;
    const size_t begin = ++at_;
    for (; at_ < f_.size() && open > 0; ++at_) {
      if (f_[at_] == '(') ++open;
      if (f_[at_] == ')') --open;
    }
    if (open > 0) return ValueError("incomplete format key");
    const std::string key = f_.substr(begin, at_ - begin - 1);
    if (arguments_.is_undefined()) return UndefinedErrorOf(arguments_);
    if (!arguments_.is(Kind::kDict)) {
      return TypeError("%s indices must be integers or slices, not str", TypeName(arguments_));
    }
    const Value* found = arguments_.as<DictObject>().FindString(key);
    if (found == nullptr) return LookupError("'%s'", key);
    keyed_ = *found;
    has_key_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Number() {
    if (Peek() == '*') {
      ++at_;
      ASSIGN_OR_RETURN(const Value value, NextArgument());
      if (!value.is_integral()) return TypeError("* wants int");
      if (std::llabs(value.as_int()) > kMaxWidth)
        return LimitError("a format with a width beyond %d", kMaxWidth);
      return value.as_int();
    }
    int64_t number = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) {
      number = number * 10 + (f_[at_] - '0');
      if (number > kMaxWidth) return LimitError("a format with a width beyond %d", kMaxWidth);
    }
    return number;
  }

  absl::Status Conversion() {
    has_key_ = false;
    Spec spec;
    bool zero = false;
    if (Peek() == '(') RETURN_IF_ERROR(Key());
    for (;; ++at_) {
      const char c = Peek();
      if (c == '-') {
        spec.align = '<';
      } else if (c == '+') {
        spec.sign = '+';
      } else if (c == ' ') {
        if (spec.sign != '+') spec.sign = ' ';
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c == '0') {
        zero = true;
      } else {
        break;
      }
    }
    ASSIGN_OR_RETURN(spec.width, Number());
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (Peek() == '.') {
      ++at_;
      ASSIGN_OR_RETURN(spec.precision, Number());
      spec.precision = std::max<int64_t>(spec.precision, 0);
    }
    if (Peek() == 'h' || Peek() == 'l' || Peek() == 'L') ++at_;
    if (at_ >= f_.size()) return ValueError("incomplete format");
    const size_t begin = at_;
    const Char c = CharAt(f_, at_);
    at_ += c.size;
    spec.type = c.code < 0x80 ? static_cast<char>(c.code) : '\0';
    if (spec.type == '%') {
      out_.Append("%");
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const Value value, NextArgument());
    if (spec.type != '\0' && std::string_view("srac").find(spec.type) != std::string_view::npos) {
      return TextConversion(value, spec);
    }
    if (zero && spec.align != '<') {
      spec.align = '=';
      spec.fill = "0";
    }
    if (spec.type == '\0' ||
        std::string_view("diuoxXeEfFgG").find(spec.type) == std::string_view::npos) {
      return ValueError("unsupported format character '%s' at index %d", f_.substr(begin, c.size),
                        CountChars(f_.substr(0, begin)));
    }
    return NumberConversion(value, spec);
  }

  absl::Status TextConversion(const Value& value, Spec spec) {
    if (spec.type == 'a') return NotSupported("the conversion %%a");
    Text text;
    if (spec.type == 'c') {
      ASSIGN_OR_RETURN(text, CharConversion(value));
    } else if (spec.type == 'r') {
      ASSIGN_OR_RETURN(text, Repr(runtime_, value));
    } else {
      ASSIGN_OR_RETURN(text, ToText(runtime_, value));
    }
    if (format_.safe && !(value.is_string() && value.text().safe)) text = EscapeHtml(text);
    if (spec.precision >= 0 && spec.type != 'c') {
      text = Slice(text, 0, ByteOffset(text.bytes, static_cast<size_t>(spec.precision)));
    }
    out_.Append(Pad(text, spec, '>'));
    return absl::OkStatus();
  }

  static absl::StatusOr<Text> CharConversion(const Value& value) {
    if (value.is_string() && CountChars(value.text().bytes) == 1) return value.text();
    if (!value.is_integral()) return TypeError("%%c requires int or char");
    if (value.as_int() < 0 || value.as_int() > 0x10FFFF) {
      return OverflowError("%%c arg not in range(0x110000)");
    }
    std::string text;
    AppendUtf8(&text, static_cast<char32_t>(value.as_int()));
    return Text(text);
  }

  absl::Status NumberConversion(const Value& value, Spec spec) {
    const bool is_float = std::string_view("eEfFgG").find(spec.type) != std::string_view::npos;
    if (is_float) {
      if (value.is_undefined()) return UndefinedErrorOf(value);
      if (!value.is_number()) return TypeError("must be real number, not %s", TypeName(value));
      if (value.is(Kind::kBigInt)) return NotSupported("formatting an integer beyond 64 bits");
      const double number = value.ToDouble();
      out_.Append(FinishNumber(std::signbit(number) && !std::isnan(number), "",
                               FloatDigits(std::fabs(number), spec), spec));
      return absl::OkStatus();
    }
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    int64_t number = 0;
    if (value.is_integral()) {
      number = value.as_int();
    } else if (decimal && value.is(Kind::kFloat)) {
      const double d = value.as_float();
      if (std::isnan(d)) return ValueError("cannot convert float NaN to integer");
      if (std::isinf(d)) return OverflowError("cannot convert float infinity to integer");
      if (std::fabs(d) >= 9.2e18) return NotSupported("formatting an integer beyond 64 bits");
      number = static_cast<int64_t>(d);
    } else if (decimal && value.is_undefined()) {
      return UndefinedErrorOf(value);
    } else if (value.is(Kind::kBigInt)) {
      return NotSupported("formatting an integer beyond 64 bits");
    } else {
      return TypeError("%%%c format: %s is required, not %s", spec.type,
                       decimal ? "a real number" : "an integer", TypeName(value));
    }
    std::string digits;
    std::string prefix;
    if (decimal) {
      digits = std::to_string(Magnitude(number));
    } else {
      digits = Digits(Magnitude(number), spec.type == 'o' ? 8 : 16, spec.type == 'X');
      if (spec.alternate) prefix = std::string("0") + spec.type;
    }
    if (spec.precision > static_cast<int64_t>(digits.size())) {
      digits = std::string(static_cast<size_t>(spec.precision) - digits.size(), '0') + digits;
    }
    out_.Append(FinishNumber(number < 0, prefix, digits, spec));
    return absl::OkStatus();
  }

  Runtime& runtime_;
  const Text& format_;
  const std::string& f_;
  const Value& arguments_;
  TextBuilder out_;
  size_t at_ = 0;
  size_t next_ = 0;    // of a tuple
  bool used_ = false;  // the single argument
  Value keyed_;
  bool has_key_ = false;
};

}  // namespace

absl::StatusOr<Value> FormatPercent(Runtime& runtime, const Text& format, const Value& arguments) {
  ASSIGN_OR_RETURN(Text text, PercentFormatter(&runtime, format, arguments).Run());
  return runtime.NewString(std::move(text));
}

absl::StatusOr<Value> FormatBraces(Runtime& runtime, const Text& format, Args& args) {
  ASSIGN_OR_RETURN(Text text, BraceFormatter(&runtime, &args).Run(format, 2));
  text.safe = format.safe;
  return runtime.NewString(std::move(text));
}

}  // namespace penstock::jinja
