// Filters of text and of single values; those of sequences are in sequence_filters.cc.

#include "common/text/jinja/filters.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/text/jinja/errors.h"
#include "common/text/jinja/runtime.h"
#include "common/text/jinja/unicode_tables.h"

namespace penstock::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// soft_str(): text as it is, safe stays safe; others as str() gives them.
absl::StatusOr<Text> SoftText(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.text();
  return ToText(runtime, value);
}

absl::StatusOr<int64_t> IntOr(const Value& value, int64_t fallback) {
  if (value.is_missing()) return fallback;
  if (value.is_integral()) return value.as_int();
  return TypeError("'%s' object cannot be interpreted as an integer", TypeName(value));
}

// --- Text ---

template <Text (*transform)(const Text&), bool keeps_safe>
Result TransformFilter(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("filter", args, {}).status());
  ASSIGN_OR_RETURN(const Text text, SoftText(runtime, input));
  Text result = transform(text);
  result.safe = keeps_safe && text.safe;
  return runtime.NewString(std::move(result));
}

// Words begin after white space, hyphens and opening brackets.
Text TitleWords(const Text& text) {
  TextBuilder builder;
  size_t begin = 0;
  const auto flush = [&](size_t end) {
    if (end == begin) return;
    const size_t first = begin + CharAt(text.bytes, begin).size;
    builder.Append(Upper(Slice(text, begin, first)));
    builder.Append(Lower(Slice(text, first, end)));
    begin = end;
  };
  bool in_separator = false;
  for (size_t pos = 0; pos < text.bytes.size();) {
    const Char c = CharAt(text.bytes, pos);
    const bool separates = c.code == '-' || c.code == '(' || c.code == '{' || c.code == '[' ||
                           c.code == '<' || IsSpace(c.code);
    if (separates != in_separator) flush(pos);
    in_separator = separates;
    pos += c.size;
  }
  flush(text.bytes.size());
  return builder.Finish();
}

Result TrimFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("do_trim", args, {"chars"}));
  ASSIGN_OR_RETURN(const Text text, SoftText(runtime, input));
  Text result;
  if (bound[0].is_missing() || bound[0].is_none()) {
    result = Strip(text, true, true);
  } else if (bound[0].is_string()) {
    result = StripChars(text, bound[0].text().bytes, true, true);
  } else {
    return TypeError("strip arg must be None or str");
  }
  result.safe = text.safe;
  return runtime.NewString(std::move(result));
}

Result ReplaceFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("do_replace", args, {"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const Text text, ToText(runtime, input));
  ASSIGN_OR_RETURN(const Text from, ToText(runtime, bound[0]));
  ASSIGN_OR_RETURN(const Text to, ToText(runtime, bound[1]));
  int64_t count = -1;
  if (!bound[2].is_none()) {
    ASSIGN_OR_RETURN(count, IntOr(bound[2], -1));
  }
  const double pieces =
      static_cast<double>(text.bytes.size()) / static_cast<double>(from.bytes.size() + 1);
  RETURN_IF_ERROR(runtime.CheckSize(pieces * static_cast<double>(to.bytes.size())));
  return runtime.NewString(Replace(text, from, to, count));
}

Result StringFilter(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("soft_str", args, {}).status());
  ASSIGN_OR_RETURN(Text text, SoftText(runtime, input));
  return runtime.NewString(std::move(text));
}

Result SafeFilter(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("do_mark_safe", args, {}).status());
  ASSIGN_OR_RETURN(Text text, ToText(runtime, input));
  text.safe = true;
  return runtime.NewString(std::move(text));
}

Result EscapeFilter(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("escape", args, {}).status());
  if (input.is_string() && input.text().safe) return input;
  ASSIGN_OR_RETURN(const Text text, ToText(runtime, input));
  return runtime.NewString(EscapeHtml(text));
}

Result ForceEscapeFilter(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("do_forceescape", args, {}).status());
  ASSIGN_OR_RETURN(const Text text, ToText(runtime, input));
  return runtime.NewString(EscapeHtml(text));
}

Result CenterFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("do_center", args, {"width"}));
  ASSIGN_OR_RETURN(Text text, SoftText(runtime, input));
  Args inner;
  inner.positional.push_back(bound[0].is_missing() ? Value::Int(80) : bound[0]);
  return FindMethod(Kind::kString, "center")->call(runtime, Value::String(std::move(text)), inner);
}

Result IndentFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("do_indent", args, {"width", "first", "blank"}));
  if (input.is_undefined()) return UndefinedErrorOf(input);
  if (!input.is_string()) {
    return TypeError("unsupported operand type(s) for +=: '%s' and 'str'", TypeName(input));
  }
  Text indent;
  if (bound[0].is_string()) {
    indent = bound[0].text();
  } else {
    ASSIGN_OR_RETURN(const int64_t width, IntOr(bound[0], 4));
    RETURN_IF_ERROR(runtime.CheckSize(static_cast<double>(width)));
    indent = Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '));
  }
  const bool blank = IsTrue(bound[2]);
  const Text text = Concat(input.text(), Text("\n"));
  const std::vector<Text> lines = SplitLines(text, false);
  RETURN_IF_ERROR(runtime.CheckSize(static_cast<double>(lines.size()) *
                                    static_cast<double>(indent.bytes.size())));
  TextBuilder builder;
  if (IsTrue(bound[1])) builder.Append(indent);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) builder.Append("\n");
    if (i > 0 && (blank || !lines[i].empty())) builder.Append(indent);
    builder.Append(lines[i]);
  }
  Text result = builder.Finish();
  result.safe = input.text().safe;
  return runtime.NewString(std::move(result));
}

Result TruncateFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind("do_truncate", args, {"length", "killwords", "end", "leeway"}));
  ASSIGN_OR_RETURN(const int64_t length, IntOr(bound[0], 255));
  const Text end = bound[2].is_string() ? bound[2].text() : Text("...");
  int64_t leeway = 5;
  if (!bound[3].is_none()) {
    ASSIGN_OR_RETURN(leeway, IntOr(bound[3], 5));
  }
  const auto end_size = static_cast<int64_t>(CountChars(end.bytes));
  if (length < end_size) return ValueError("expected length >= %d, got %d", end_size, length);
  if (leeway < 0) return ValueError("expected leeway >= 0, got %d", leeway);
  ASSIGN_OR_RETURN(const int64_t size, Length(runtime, input));
  if (size <= length + leeway) return input;
  if (!input.is_string()) return TypeError("truncate needs a string, not %s", TypeName(input));
  const Text cut = Slice(input.text(), 0,
                         ByteOffset(input.text().bytes, static_cast<size_t>(length - end_size)));
  if (IsTrue(bound[1])) return runtime.NewString(Concat(cut, end));
  const Text words = Split(cut, " ", 1, true)[0];
  return runtime.NewString(Concat(words, end));
}

Result WordCountFilter(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("do_wordcount", args, {}).status());
  ASSIGN_OR_RETURN(const Text text, SoftText(runtime, input));
  int64_t words = 0;
  bool inside = false;
  for (size_t pos = 0; pos < text.bytes.size();) {
    const Char c = CharAt(text.bytes, pos);
    const bool word = FlagsOf(c.code) & kWord;
    if (word && !inside) ++words;
    inside = word;
    pos += c.size;
  }
  return Value::Int(words);
}

Result FormatFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const Text text, SoftText(runtime, input));
  if (args.named.empty()) return FormatPercent(runtime, text, MakeTuple(args.positional));
  if (!args.positional.empty()) {
    return TemplateRuntimeError("can't handle positional and keyword arguments at the same time");
  }
  auto named = std::make_shared<DictObject>();
  for (auto& [name, value] : args.named) named->SetString(Text(name), std::move(value));
  return FormatPercent(runtime, text, Value::Of(Kind::kDict, std::move(named)));
}

// --- URLs and markup ---

absl::StatusOr<Text> QuoteUrl(Runtime& runtime, const Value& value, bool for_query) {
  ASSIGN_OR_RETURN(const Text text, ToText(runtime, value));
  std::string out;
  for (const char c : text.bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x80 && std::isalnum(byte)) || std::strchr("_.-~", c) != nullptr ||
        (c == '/' && !for_query)) {
      out += c;
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      out += absl::StrFormat("%%%02X", static_cast<int>(byte));
    }
  }
  return WithMarksOf(std::move(out), text);
}

Result UrlEncodeFilter(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("do_urlencode", args, {}).status());
  const bool iterable = Cursor::Open(input).ok();
  if (input.is_string() || !iterable) {
    ASSIGN_OR_RETURN(Text quoted, QuoteUrl(runtime, input, false));
    return runtime.NewString(std::move(quoted));
  }
  std::vector<Value> pairs;
  if (input.is(Kind::kDict)) {
    for (const auto& entry : input.as<DictObject>().entries()) {
      pairs.push_back(MakeTuple({entry.key, entry.value}));
    }
  } else {
    ASSIGN_OR_RETURN(pairs, ToVector(runtime, input));
  }
  TextBuilder builder;
  for (const Value& pair : pairs) {
    ASSIGN_OR_RETURN(const std::vector<Value> parts, ToVector(runtime, pair));
    if (parts.size() != 2) return ValueError("cannot unpack %d values into 2", parts.size());
    if (builder.size() > 0) builder.Append("&");
    ASSIGN_OR_RETURN(const Text key, QuoteUrl(runtime, parts[0], true));
    ASSIGN_OR_RETURN(const Text value, QuoteUrl(runtime, parts[1], true));
    builder.Append(key);
    builder.Append("=");
    builder.Append(value);
  }
  return runtime.NewString(builder.Finish());
}

Result XmlAttrFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("do_xmlattr", args, {"autospace"}));
  if (!input.is(Kind::kDict)) {
    return LookupError("'%s' object has no attribute 'items'", TypeName(input));
  }
  TextBuilder builder;
  for (const auto& entry : input.as<DictObject>().entries()) {
    if (entry.value.is_none() || entry.value.is_undefined()) continue;
    if (!entry.key.is_string()) return TypeError("expected string or bytes-like object");
    const Text& key = entry.key.text();
    if (key.bytes.find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      return ValueError("Invalid character in attribute name: '%s'", key.bytes);
    }
    ASSIGN_OR_RETURN(const Text value, SoftText(runtime, entry.value));
    if (builder.size() > 0 || bound[0].is_missing() || IsTrue(bound[0])) builder.Append(" ");
    builder.Append(key.safe ? key : EscapeHtml(key));
    builder.Append("=\"");
    builder.Append(value.safe ? value : EscapeHtml(value));
    builder.Append("\"");
  }
  return runtime.NewString(builder.Finish());
}

// --- Numbers ---

Result AbsFilter(Runtime&, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("abs", args, {}).status());
  if (input.is_integral()) {
    return input.as_int() < 0 ? Negate(input, true) : Value::Int(input.as_int());
  }
  if (input.is(Kind::kFloat)) return Value::Float(std::fabs(input.as_float()));
  if (input.is(Kind::kBigInt)) {
    return input.text().bytes[0] == '-' ? Negate(input, true) : input;
  }
  return TypeError("bad operand type for abs(): '%s'", TypeName(input));
}

absl::StatusOr<Value> IntOfFloat(double value) {
  if (std::isnan(value)) return ValueError("cannot convert float NaN to integer");
  if (std::isinf(value)) return OverflowError("cannot convert float infinity to integer");
  const double whole = std::trunc(value);
  if (whole >= -9223372036854775808.0 && whole < 9223372036854775808.0) {
    return Value::Int(static_cast<int64_t>(whole));
  }
  return Value::BigInt(absl::StrFormat("%.0f", whole));
}

// float(value).
absl::StatusOr<double> FloatOf(const Value& value) {
  if (value.is_undefined()) return UndefinedErrorOf(value);
  if (value.is(Kind::kBigInt)) {
    const double number = std::strtod(value.text().bytes.c_str(), nullptr);
    if (std::isinf(number)) return OverflowError("int too large to convert to float");
    return number;
  }
  if (value.is_number()) return value.ToDouble();
  if (value.is_string()) {
    if (const auto number = ParseFloat(value.text().bytes)) return *number;
    return ValueError("could not convert string to float: %s", StringRepr(value.text()).bytes);
  }
  return TypeError("float() argument must be a string or a real number, not '%s'", TypeName(value));
}

Result IntFilter(Runtime&, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(auto bound, Bind("do_int", args, {"default", "base"}));
  const Value fallback = bound[0].is_missing() ? Value::Int(0) : bound[0];
  Result first = Value();
  if (input.is_undefined()) return UndefinedErrorOf(input);
  if (input.is_string()) {
    if (!bound[1].is_missing() && !bound[1].is_integral()) {
      first = TypeError("base must be an int");
    } else {
      first = ParseInt(input.text().bytes, bound[1].is_missing() ? 10 : bound[1].as_int());
    }
  } else if (input.is_integral()) {
    return Value::Int(input.as_int());
  } else if (input.is(Kind::kBigInt)) {
    return input;
  } else if (input.is(Kind::kFloat)) {
    first = IntOfFloat(input.as_float());
  } else {
    first = TypeError("int() argument must be a string, not '%s'", TypeName(input));
  }
  if (first.ok()) return first;
  const auto caught = [](const absl::Status& status) {
    return status.code() == kTypeError || status.code() == kValueError;
  };
  if (!caught(first.status())) return first;
  const auto number = FloatOf(input);
  Result second = number.ok() ? IntOfFloat(*number) : Result(number.status());
  if (second.ok()) return second;
  if (caught(second.status()) || second.status().code() == kOverflowError) return fallback;
  return second;
}

Result FloatFilter(Runtime&, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("do_float", args, {"default"}));
  const auto number = FloatOf(input);
  if (number.ok()) return Value::Float(*number);
  if (number.status().code() != kTypeError && number.status().code() != kValueError) {
    return number.status();
  }
  return bound[0].is_missing() ? Value::Float(0.0) : bound[0];
}

// Python's round(): halves go to the even neighbour of the exact value.
Result RoundCommon(const Value& input, int64_t precision) {
  if (input.is_integral()) {
    if (precision >= 0) return Value::Int(input.as_int());
    if (precision < -18) return Value::Int(0);
    int64_t unit = 1;
    for (int64_t i = 0; i < -precision; ++i) unit *= 10;
    const int64_t value = input.as_int();
    int64_t quotient = value / unit;
    int64_t rest = value % unit;
    if (rest < 0) {
      rest += unit;
      --quotient;
    }
    const bool up = rest > unit - rest || (rest == unit - rest && (quotient & 1) != 0);
    if (up) ++quotient;
    int64_t result = 0;
    if (__builtin_mul_overflow(quotient, unit, &result)) {
      return NotSupported("an integer result beyond 64 bits");
    }
    return Value::Int(result);
  }
  const double value = input.as_float();
  if (!std::isfinite(value) || precision > 323) return Value::Float(value);
  if (precision < -308) return Value::Float(std::copysign(0.0, value));
  if (precision >= 0) {
    return Value::Float(
        std::strtod(absl::StrFormat("%.*f", static_cast<int>(precision), value).c_str(), nullptr));
  }
  // Exact decimal digits, cut at the wanted place.
  const std::string digits = absl::StrFormat("%.0f", std::fabs(std::trunc(value)));
  const auto drop = static_cast<size_t>(-precision);
  if (digits.size() < drop) return Value::Float(std::copysign(0.0, value));
  const std::string padded = "0" + digits;
  std::string kept = padded.substr(0, padded.size() - drop);
  const std::string rest = padded.substr(padded.size() - drop);
  const std::string half = "5" + std::string(drop - 1, '0');
  const bool has_fraction = value != std::trunc(value);
  const bool odd = (kept.back() - '0') % 2 != 0;
  if (rest > half || (rest == half && (has_fraction || odd))) {
    size_t i = kept.size();
    while (i > 0 && kept[i - 1] == '9') kept[--i] = '0';
    if (i > 0) ++kept[i - 1];
  }
  const double result = std::strtod((kept + std::string(drop, '0')).c_str(), nullptr);
  if (std::isinf(result)) return OverflowError("rounded value too large to represent");
  return Value::Float(std::copysign(result, value));
}

Result RoundFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("do_round", args, {"precision", "method"}));
  std::string method = "common";
  if (!bound[1].is_missing()) method = bound[1].is_string() ? bound[1].text().bytes : "";
  if (method != "common" && method != "ceil" && method != "floor") {
    return TemplateRuntimeError("method must be common, ceil or floor");
  }
  if (!input.is_number()) {
    return TypeError("type %s doesn't define __round__ method", TypeName(input));
  }
  if (input.is(Kind::kBigInt)) return NotSupported("rounding an integer beyond 64 bits");
  if (method == "common") {
    if (bound[0].is_none()) {  // round(x, None): an int
      ASSIGN_OR_RETURN(const Value rounded, RoundCommon(input, 0));
      return rounded.is(Kind::kFloat) ? IntOfFloat(rounded.as_float()) : rounded;
    }
    ASSIGN_OR_RETURN(const int64_t precision, IntOr(bound[0], 0));
    return RoundCommon(input, precision);
  }
  const Value precision = bound[0].is_missing() ? Value::Int(0) : bound[0];
  ASSIGN_OR_RETURN(const Value unit,
                   Arithmetic(runtime, Operator::kPow, Value::Int(10), precision));
  ASSIGN_OR_RETURN(const Value scaled, Arithmetic(runtime, Operator::kMul, input, unit));
  Value whole = scaled;
  if (scaled.is(Kind::kFloat)) {
    const double d = scaled.as_float();
    ASSIGN_OR_RETURN(whole, IntOfFloat(method == "ceil" ? std::ceil(d) : std::floor(d)));
  }
  return Arithmetic(runtime, Operator::kDiv, whole, unit);
}

Result FileSizeFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("do_filesizeformat", args, {"binary"}));
  ASSIGN_OR_RETURN(const double bytes, FloatOf(input));
  const bool binary = IsTrue(bound[0]);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return Value::String("1 Byte");
  if (bytes < base) {
    ASSIGN_OR_RETURN(const Value whole, IntOfFloat(bytes));
    ASSIGN_OR_RETURN(const Text text, ToText(runtime, whole));
    return Value::String(text.bytes + " Bytes");
  }
  double unit = base;
  for (const char prefix : std::string_view(binary ? "KMGTPEZY" : "kMGTPEZY")) {
    unit *= base;
    if (bytes < unit || prefix == 'Y') {
      return Value::String(
          absl::StrFormat("%.1f %c%s", base * bytes / unit, prefix, binary ? "iB" : "B"));
    }
  }
  return Value::String("");
}

// --- Others ---

Result DefaultFilter(Runtime&, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(auto bound, Bind("do_default", args, {"default_value", "boolean"}));
  if (input.is_undefined() || (IsTrue(bound[1]) && !IsTrue(input))) {
    return bound[0].is_missing() ? Value::String("") : bound[0];
  }
  return input;
}

Result AttrFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("do_attr", args, {"name"}, 1));
  if (!bound[0].is_string()) return TypeError("attribute name must be string");
  if (!input.is(Kind::kDict)) return GetAttribute(runtime, input, bound[0].text().bytes);
  if (FindMethod(Kind::kDict, bound[0].text().bytes) != nullptr ||
      IsForbidden(input, bound[0].text().bytes)) {
    return GetAttribute(runtime, input, bound[0].text().bytes);
  }
  return MakeUndefined("'dict object' has no attribute " + StringRepr(bound[0].text()).bytes);
}

Result ToJsonFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = IsTrue(bound[0]);
  style.sort_keys = IsTrue(bound[3]);
  if (!bound[1].is_missing() && !bound[1].is_none()) {
    style.item_separator = Text(",");
    if (bound[1].is_string()) {
      style.indent = bound[1].text();
    } else {
      ASSIGN_OR_RETURN(const int64_t width, IntOr(bound[1], 0));
      if (width > 1000) return LimitError("tojson with an indent of %d", width);
      style.indent = Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '));
    }
  }
  if (!bound[2].is_missing() && !bound[2].is_none()) {
    ASSIGN_OR_RETURN(const std::vector<Value> separators, ToVector(runtime, bound[2]));
    if (separators.size() != 2) return ValueError("separators must be two strings");
    for (const Value& separator : separators) {
      if (!separator.is_string()) return TypeError("separators must be strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  ASSIGN_OR_RETURN(Text text, ToJson(runtime, input, style));
  return runtime.NewString(std::move(text));
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"abs", AbsFilter},
    {"attr", AttrFilter},
    {"capitalize", TransformFilter<Capitalize, true>},
    {"center", CenterFilter},
    {"d", DefaultFilter},
    {"default", DefaultFilter},
    {"e", EscapeFilter},
    {"escape", EscapeFilter},
    {"filesizeformat", FileSizeFilter},
    {"float", FloatFilter},
    {"forceescape", ForceEscapeFilter},
    {"format", FormatFilter},
    {"indent", IndentFilter},
    {"int", IntFilter},
    {"lower", TransformFilter<Lower, true>},
    {"replace", ReplaceFilter},
    {"round", RoundFilter},
    {"safe", SafeFilter},
    {"string", StringFilter},
    {"title", TransformFilter<TitleWords, false>},
    {"tojson", ToJsonFilter},
    {"trim", TrimFilter},
    {"truncate", TruncateFilter},
    {"upper", TransformFilter<Upper, true>},
    {"urlencode", UrlEncodeFilter},
    {"wordcount", WordCountFilter},
    {"xmlattr", XmlAttrFilter},
};

}  // namespace

Filter FindFilter(std::string_view name) {
  for (const auto& [known, filter] : kFilters) {
    if (known == name) return filter;
  }
  return FindSequenceFilter(name);
}

bool IsUnsupportedFilter(std::string_view name) {
  return name == "pprint" || name == "random" || name == "striptags" || name == "urlize" ||
         name == "wordwrap";
}

// --- Numbers from text ---

namespace {

// Without white space around and single underscores between digits; nullopt when misplaced.
std::optional<std::string> CleanNumber(const std::string& text) {
  const std::string trimmed = Strip(Text(text), true, true).bytes;
  std::string out;
  for (size_t i = 0; i < trimmed.size(); ++i) {
    if (trimmed[i] != '_') {
      out += trimmed[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < trimmed.size() &&
                         std::isalnum(static_cast<unsigned char>(trimmed[i - 1])) &&
                         std::isalnum(static_cast<unsigned char>(trimmed[i + 1]));
    if (!between) return std::nullopt;
  }
  return out;
}

}  // namespace

absl::StatusOr<Value> ParseInt(const std::string& text, int64_t base) {
  const auto wrong = [&] {
    return ValueError("invalid literal for int() with base %d: %s", base,
                      StringRepr(Text(text)).bytes);
  };
  if (base != 0 && (base < 2 || base > 36)) {
    return ValueError("int() base must be >= 2 and <= 36, or 0");
  }
  const auto clean = CleanNumber(text);
  if (!clean) return wrong();
  std::string digits = *clean;
  bool negative = false;
  if (!digits.empty() && (digits[0] == '+' || digits[0] == '-')) {
    negative = digits[0] == '-';
    digits.erase(0, 1);
  }
  if (digits.size() >= 2 && digits[0] == '0') {
    const char mark = digits[1] | 0x20;
    const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      base = marked;
      digits.erase(0, 2);
    } else if (base == 0 && digits.find_first_not_of('0') != std::string::npos) {
      return wrong();
    }
  }
  if (base == 0) base = 10;
  if (digits.empty()) return wrong();
  int64_t value = 0;
  bool overflow = false;
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                               : 99;
    if (digit >= base) return wrong();
    overflow = overflow || __builtin_mul_overflow(value, base, &value) ||
               __builtin_sub_overflow(value, digit, &value);  // downwards: the range is wider
  }
  if (!negative && !overflow && value == INT64_MIN) overflow = true;
  if (!overflow) return Value::Int(negative ? value : -value);
  if (base != 10) return NotSupported("an integer beyond 64 bits");
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return Value::BigInt((negative ? "-" : "") + digits);
}

std::optional<double> ParseFloat(const std::string& text) {
  const auto clean = CleanNumber(text);
  if (!clean || clean->empty()) return std::nullopt;
  std::string lower;
  for (const char c : *clean)
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const size_t sign = lower[0] == '+' || lower[0] == '-' ? 1 : 0;
  const std::string_view body = std::string_view(lower).substr(sign);
  if (body != "inf" && body != "infinity" && body != "nan" &&
      (body.empty() || body.find_first_not_of("0123456789.e+-") != std::string_view::npos)) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double value = std::strtod(lower.c_str(), &end);
  if (end != lower.c_str() + lower.size()) return std::nullopt;
  return value;
}

}  // namespace penstock::jinja
