// str(), repr() and json.dumps().

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/text/jinja/ast.h"
#include "common/text/jinja/errors.h"
#include "common/text/jinja/runtime.h"
#include "common/text/jinja/unicode_tables.h"

namespace penstock::jinja {

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto result =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, result.ptr - buffer);
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(),
                  exponent);
  const bool negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = negative ? "-" : "";
  const int num_digits = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (num_digits > 1) out += "." + digits.substr(1);
    return out + absl::StrFormat("e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(-exponent - 1, '0') + digits;
  if (num_digits <= exponent + 1)
    return out + digits + std::string(exponent + 1 - num_digits, '0') + ".0";
  return out + digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
}

namespace {

// Marks of single bytes, asked for in ascending order.
class MarkCursor {
 public:
  explicit MarkCursor(const Text& text) : mark_(text.marks.begin()), end_(text.marks.end()) {}
  bool IsUser(size_t pos) {
    while (mark_ != end_ && mark_->second <= pos) ++mark_;
    return mark_ != end_ && mark_->first <= pos;
  }

 private:
  Marks::const_iterator mark_, end_;
};

// Copies text, with escape(char) in place of the characters for which it is not empty.
template <typename Escape>
void AppendEscaped(const Text& text, TextBuilder* out, Escape escape) {
  MarkCursor marks(text);
  size_t copied = 0;
  for (size_t pos = 0; pos < text.bytes.size();) {
    const Char c = CharAt(text.bytes, pos);
    const std::string escaped = escape(c.code);
    if (!escaped.empty()) {
      out->AppendSlice(text, copied, pos);
      out->Append(escaped, marks.IsUser(pos));
      copied = pos + c.size;
    }
    pos += c.size;
  }
  out->AppendSlice(text, copied, text.bytes.size());
}

void AppendStringRepr(const Text& text, TextBuilder* out) {
  const bool double_quoted =
      text.bytes.find('\'') != std::string::npos && text.bytes.find('"') == std::string::npos;
  const char quote = double_quoted ? '"' : '\'';
  const std::string_view quotes(&quote, 1);
  if (text.safe) out->Append("Markup(");
  out->Append(quotes);
  AppendEscaped(text, out, [&](char32_t c) -> std::string {
    if (c == static_cast<char32_t>(quote) || c == '\\') return {'\\', static_cast<char>(c)};
    if (c >= ' ' && c < 0x7F) return "";
    if (c == '\n') return "\\n";
    if (c == '\r') return "\\r";
    if (c == '\t') return "\\t";
    if (FlagsOf(c) & kPrintable) return "";
    const auto code = static_cast<uint32_t>(c);
    if (c < 0x100) return absl::StrFormat("\\x%02x", code);
    if (c < 0x10000) return absl::StrFormat("\\u%04x", code);
    return absl::StrFormat("\\U%08x", code);
  });
  out->Append(quotes);
  if (text.safe) out->Append(")");
}

class ReprWriter {
 public:
  ReprWriter(Runtime* runtime, TextBuilder* out) : runtime_(*runtime), out_(*out) {}

  absl::Status Write(const Value& value) {
    switch (value.kind()) {
      case Kind::kString:
        AppendStringRepr(value.text(), &out_);
        return absl::OkStatus();
      case Kind::kList:
        return Items(value.items(), "[", "]");
      case Kind::kTuple:
        return Items(value.items(), "(", value.items().size() == 1 ? ",)" : ")");
      case Kind::kDict:
        return Dict(value.as<DictObject>());
      case Kind::kDictView: {
        ASSIGN_OR_RETURN(const std::vector<Value> items, ToVector(runtime_, value));
        out_.Append(TypeName(value) + "(");
        RETURN_IF_ERROR(Items(items, "[", "]"));
        out_.Append(")");
        return absl::OkStatus();
      }
      case Kind::kNamespace:
        out_.Append("<Namespace ");
        // A namespace may hold itself.
        if (++namespace_depth_ > kMaxNamespaceDepth) return LimitError("a namespace holds itself");
        RETURN_IF_ERROR(Dict(value.as<NamespaceObject>().attributes));
        --namespace_depth_;
        out_.Append(">");
        return absl::OkStatus();
      default:
        return Scalar(value);
    }
  }

 private:
  static constexpr int kMaxNamespaceDepth = 50;

  absl::Status Check() {
    RETURN_IF_ERROR(runtime_.CheckSize(static_cast<double>(out_.size())));
    RETURN_IF_ERROR(runtime_.CheckStack());
    return runtime_.Tick();
  }

  absl::Status Items(const std::vector<Value>& items, std::string_view open,
                     std::string_view close) {
    out_.Append(open);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Append(", ");
      RETURN_IF_ERROR(Check());
      RETURN_IF_ERROR(Write(items[i]));
    }
    out_.Append(close);
    return absl::OkStatus();
  }

  absl::Status Dict(const DictObject& dict) {
    out_.Append("{");
    bool first = true;
    for (const auto& entry : dict.entries()) {
      if (!std::exchange(first, false)) out_.Append(", ");
      RETURN_IF_ERROR(Check());
      RETURN_IF_ERROR(Write(entry.key));
      out_.Append(": ");
      RETURN_IF_ERROR(Write(entry.value));
    }
    out_.Append("}");
    return absl::OkStatus();
  }

  absl::Status Scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::kUndefined:
        out_.Append("Undefined");
        return absl::OkStatus();
      case Kind::kNone:
        out_.Append("None");
        return absl::OkStatus();
      case Kind::kBool:
        out_.Append(value.as_bool() ? "True" : "False");
        return absl::OkStatus();
      case Kind::kInt:
        out_.Append(std::to_string(value.as_int()));
        return absl::OkStatus();
      case Kind::kBigInt:
        out_.Append(value.text().bytes);
        return absl::OkStatus();
      case Kind::kFloat:
        out_.Append(FloatRepr(value.as_float()));
        return absl::OkStatus();
      case Kind::kRange: {
        const auto& range = value.as<RangeObject>();
        out_.Append(absl::StrFormat("range(%d, %d", range.start, range.stop));
        out_.Append(range.step == 1 ? ")" : absl::StrFormat(", %d)", range.step));
        return absl::OkStatus();
      }
      case Kind::kLoop: {
        auto& loop = value.as<LoopObject>();
        ASSIGN_OR_RETURN(const int64_t length, loop.Length(runtime_));
        out_.Append(absl::StrFormat("<LoopContext %d/%d>", loop.index0 + 1, length));
        return absl::OkStatus();
      }
      case Kind::kMacro: {
        const std::string& name = value.as<MacroObject>().definition->name;
        out_.Append("<Macro " + (name.empty() ? "anonymous" : "'" + name + "'") + ">");
        return absl::OkStatus();
      }
      default:
        out_.Append("<" + TypeName(value) + " object>");
        return absl::OkStatus();
    }
  }

  Runtime& runtime_;
  TextBuilder& out_;
  int namespace_depth_ = 0;
};

}  // namespace

Text StringRepr(const Text& text) {
  TextBuilder builder;
  AppendStringRepr(text, &builder);
  return builder.Finish();
}

absl::StatusOr<Text> Repr(Runtime& runtime, const Value& value) {
  TextBuilder builder;
  RETURN_IF_ERROR(ReprWriter(&runtime, &builder).Write(value));
  return builder.Finish();
}

absl::StatusOr<Text> ToText(Runtime& runtime, const Value& value) {
  if (value.is_string()) {
    Text text = value.text();
    text.safe = false;
    return text;
  }
  if (value.is_undefined() || value.is_missing()) return Text();
  return Repr(runtime, value);
}

// --- JSON ---

namespace {

class JsonDumper {
 public:
  JsonDumper(Runtime* runtime, const JsonStyle* style, TextBuilder* out)
      : runtime_(*runtime), style_(*style), out_(*out) {}

  absl::Status Write(const Value& value, int level) {
    RETURN_IF_ERROR(runtime_.CheckSize(static_cast<double>(out_.size())));
    RETURN_IF_ERROR(runtime_.Tick());
    switch (value.kind()) {
      case Kind::kString:
        String(value.text());
        return absl::OkStatus();
      case Kind::kNone:
        out_.Append("null");
        return absl::OkStatus();
      case Kind::kBool:
        out_.Append(value.as_bool() ? "true" : "false");
        return absl::OkStatus();
      case Kind::kInt:
        out_.Append(std::to_string(value.as_int()));
        return absl::OkStatus();
      case Kind::kBigInt:
        out_.Append(value.text().bytes);
        return absl::OkStatus();
      case Kind::kFloat:
        out_.Append(Float(value.as_float()));
        return absl::OkStatus();
      case Kind::kList:
      case Kind::kTuple:
        return List(value.items(), level);
      case Kind::kDict:
        return Dict(value.as<DictObject>(), level);
      default:
        return TypeError("Object of type %s is not JSON serializable", TypeName(value));
    }
  }

 private:
  static std::string Float(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatRepr(value);
  }

  void String(const Text& text) {
    out_.Append("\"");
    AppendEscaped(text, &out_, [&](char32_t c) -> std::string {
      switch (c) {
        case '"':
          return "\\\"";
        case '\\':
          return "\\\\";
        case '\n':
          return "\\n";
        case '\r':
          return "\\r";
        case '\t':
          return "\\t";
        case '\b':
          return "\\b";
        case '\f':
          return "\\f";
        default:
          break;
      }
      const auto code = static_cast<uint32_t>(c);
      if (code >= 0x20 && (code < 0x7F || !style_.ensure_ascii)) return "";
      if (code == 0x7F) return "";
      if (code < 0x10000) return absl::StrFormat("\\u%04x", code);
      return absl::StrFormat("\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10),
                             0xDC00 + ((code - 0x10000) & 0x3FF));
    });
    out_.Append("\"");
  }

  void NewLine(int level) {
    if (!style_.indent) return;
    out_.Append("\n");
    for (int i = 0; i < level; ++i) out_.Append(*style_.indent);
  }

  absl::Status List(const std::vector<Value>& items, int level) {
    if (items.empty()) {
      out_.Append("[]");
      return absl::OkStatus();
    }
    out_.Append("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      NewLine(level + 1);
      RETURN_IF_ERROR(Write(items[i], level + 1));
    }
    NewLine(level);
    out_.Append("]");
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<const DictObject::Entry*>> Sorted(const DictObject& dict) {
    std::vector<const DictObject::Entry*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (!style_.sort_keys) return entries;
    absl::Status failure;
    std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
      if (!failure.ok()) return false;
      const auto order = Order(runtime_, a->key, b->key, "<");
      if (!order.ok()) {
        failure = order.status();
        return false;
      }
      return *order == -1;
    });
    RETURN_IF_ERROR(failure);
    return entries;
  }

  absl::Status Key(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        String(key.text());
        return absl::OkStatus();
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kBigInt:
      case Kind::kFloat:
        out_.Append("\"");
        RETURN_IF_ERROR(Write(key, 0));
        out_.Append("\"");
        return absl::OkStatus();
      default:
        return TypeError("keys must be str, int, float, bool or None, not %s", TypeName(key));
    }
  }

  absl::Status Dict(const DictObject& dict, int level) {
    if (dict.entries().empty()) {
      out_.Append("{}");
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const auto entries, Sorted(dict));
    out_.Append("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      NewLine(level + 1);
      RETURN_IF_ERROR(Key(entries[i]->key));
      out_.Append(style_.key_separator);
      RETURN_IF_ERROR(Write(entries[i]->value, level + 1));
    }
    NewLine(level);
    out_.Append("}");
    return absl::OkStatus();
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  TextBuilder& out_;
};

}  // namespace

absl::StatusOr<Text> ToJson(Runtime& runtime, const Value& value, const JsonStyle& style) {
  TextBuilder builder;
  RETURN_IF_ERROR(JsonDumper(&runtime, &style, &builder).Write(value, 0));
  return builder.Finish();
}

}  // namespace penstock::jinja
