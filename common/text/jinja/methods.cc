// Methods of Python's types that templates may call.

#include <algorithm>
#include <cmath>

#include "common/text/jinja/errors.h"
#include "common/text/jinja/runtime.h"
#include "common/text/jinja/unicode_tables.h"

namespace penstock::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// --- Arguments ---

absl::Status NoNames(const char* method, const Args& args) {
  if (args.named.empty()) return absl::OkStatus();
  return TypeError("str.%s() takes no keyword arguments", method);
}

absl::Status Count(const char* method, const Args& args, size_t min, size_t max) {
  RETURN_IF_ERROR(NoNames(method, args));
  if (args.positional.size() >= min && args.positional.size() <= max) return absl::OkStatus();
  return TypeError("%s() takes %d to %d arguments (%d given)", method, min, max,
                   args.positional.size());
}

absl::StatusOr<const Text*> TextArgument(const char* method, const Value& value) {
  if (value.is_string()) return &value.text();
  return TypeError("%s() argument must be str, not %s", method, TypeName(value));
}

absl::StatusOr<int64_t> IntArgument(const Value& value, int64_t fallback) {
  if (value.is_missing()) return fallback;
  if (value.is_integral()) return value.as_int();
  return TypeError("'%s' object cannot be interpreted as an integer", TypeName(value));
}

Result NewText(Runtime& runtime, const Value& self, Text text) {
  text.safe = self.text().safe;
  return runtime.NewString(std::move(text));
}

Result NewTexts(Runtime& runtime, const Value& self, std::vector<Text> texts) {
  RETURN_IF_ERROR(runtime.Charge(self.text().bytes.size() + texts.size() * sizeof(Value)));
  for (Text& text : texts) text.safe = self.text().safe;
  return MakeStringList(std::move(texts));
}

// --- str: one text to another ---

template <Text (*transform)(const Text&)>
Result Transform(Runtime& runtime, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("method", args, 0, 0));
  return NewText(runtime, self, transform(self.text()));
}

template <bool left, bool right>
Result StripMethod(Runtime& runtime, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("strip", args, 0, 1));
  if (args.positional.empty() || args.positional[0].is_none()) {
    return NewText(runtime, self, Strip(self.text(), left, right));
  }
  if (!args.positional[0].is_string()) return TypeError("strip arg must be None or str");
  return NewText(runtime, self,
                 StripChars(self.text(), args.positional[0].text().bytes, left, right));
}

Result ReplaceMethod(Runtime& runtime, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("replace", args, 2, 3));
  ASSIGN_OR_RETURN(const Text* from, TextArgument("replace", args.positional[0]));
  ASSIGN_OR_RETURN(const Text* to, TextArgument("replace", args.positional[1]));
  ASSIGN_OR_RETURN(const int64_t count,
                   IntArgument(args.positional.size() > 2 ? args.positional[2] : Value(), -1));
  Text replacement = *to;
  if (self.text().safe && !to->safe) replacement = EscapeHtml(*to);
  const double pieces =
      static_cast<double>(self.text().bytes.size()) / static_cast<double>(from->bytes.size() + 1);
  RETURN_IF_ERROR(runtime.CheckSize(pieces * static_cast<double>(replacement.bytes.size())));
  return NewText(runtime, self, Replace(self.text(), *from, replacement, count));
}

template <bool prefix>
Result RemoveAffix(Runtime& runtime, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count(prefix ? "removeprefix" : "removesuffix", args, 1, 1));
  ASSIGN_OR_RETURN(const Text* affix, TextArgument("removeprefix", args.positional[0]));
  const Text& text = self.text();
  const size_t size = affix->bytes.size();
  size_t begin = 0;
  size_t end = text.bytes.size();
  if (size > 0 && size <= end) {
    if (prefix && text.bytes.compare(0, size, affix->bytes) == 0) begin = size;
    if (!prefix && text.bytes.compare(end - size, size, affix->bytes) == 0) end -= size;
  }
  return NewText(runtime, self, Slice(text, begin, end));
}

// 0: left-justified, 1: centred, 2: right-justified.
template <int mode>
Result Justify(Runtime& runtime, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("just", args, 1, 2));
  ASSIGN_OR_RETURN(const int64_t width, IntArgument(args.positional[0], 0));
  Text fill(" ");
  if (args.positional.size() > 1) {
    ASSIGN_OR_RETURN(const Text* given, TextArgument("just", args.positional[1]));
    fill = *given;
    if (CountChars(fill.bytes) != 1) {
      return TypeError("The fill character must be exactly one character long");
    }
  }
  ASSIGN_OR_RETURN(const int64_t size, Length(runtime, self));
  if (width <= size) return NewText(runtime, self, self.text());
  const int64_t missing = width - size;
  RETURN_IF_ERROR(runtime.CheckSize(static_cast<double>(width) * 4));
  // Python's centre: the odd one goes left when the width is odd.
  const int64_t left = mode == 0 ? 0 : mode == 2 ? missing : missing / 2 + (missing & width & 1);
  TextBuilder builder;
  builder.Append(Repeat(fill, left));
  builder.Append(self.text());
  builder.Append(Repeat(fill, missing - left));
  return NewText(runtime, self, builder.Finish());
}

Result ZFill(Runtime& runtime, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("zfill", args, 1, 1));
  ASSIGN_OR_RETURN(const int64_t width, IntArgument(args.positional[0], 0));
  ASSIGN_OR_RETURN(const int64_t size, Length(runtime, self));
  if (width <= size) return NewText(runtime, self, self.text());
  RETURN_IF_ERROR(runtime.CheckSize(static_cast<double>(width)));
  const Text& text = self.text();
  const size_t sign = !text.empty() && (text.bytes[0] == '+' || text.bytes[0] == '-') ? 1 : 0;
  TextBuilder builder;
  builder.AppendSlice(text, 0, sign);
  builder.Append(std::string(static_cast<size_t>(width - size), '0'));
  builder.AppendSlice(text, sign, text.bytes.size());
  return NewText(runtime, self, builder.Finish());
}

Result ExpandTabsMethod(Runtime& runtime, const Value& self, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("expandtabs", args, {"tabsize"}));
  ASSIGN_OR_RETURN(const int64_t size, IntArgument(bound[0], 8));
  const auto tabs = std::count(self.text().bytes.begin(), self.text().bytes.end(), '\t');
  RETURN_IF_ERROR(runtime.CheckSize(static_cast<double>(tabs) * static_cast<double>(size)));
  return NewText(runtime, self, ExpandTabs(self.text(), size));
}

// --- str: parts ---

template <bool from_right>
Result SplitMethod(Runtime& runtime, const Value& self, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("split", args, {"sep", "maxsplit"}));
  ASSIGN_OR_RETURN(const int64_t max, IntArgument(bound[1], -1));
  if (bound[0].is_missing() || bound[0].is_none()) {
    return NewTexts(runtime, self, SplitWhitespace(self.text(), max, from_right));
  }
  if (!bound[0].is_string()) {
    return TypeError("must be str or None, not %s", TypeName(bound[0]));
  }
  const std::string& separator = bound[0].text().bytes;
  if (separator.empty()) return ValueError("empty separator");
  return NewTexts(runtime, self, Split(self.text(), separator, max, from_right));
}

Result SplitLinesMethod(Runtime& runtime, const Value& self, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("splitlines", args, {"keepends"}));
  return NewTexts(runtime, self, SplitLines(self.text(), IsTrue(bound[0])));
}

template <bool from_right>
Result Partition(Runtime& runtime, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("partition", args, 1, 1));
  ASSIGN_OR_RETURN(const Text* separator, TextArgument("partition", args.positional[0]));
  if (separator->empty()) return ValueError("empty separator");
  const Text& text = self.text();
  const size_t found =
      from_right ? text.bytes.rfind(separator->bytes) : text.bytes.find(separator->bytes);
  std::vector<Text> parts(3);
  if (found == std::string::npos) {
    parts[from_right ? 2 : 0] = text;
  } else {
    parts[0] = Slice(text, 0, found);
    parts[1] = *separator;
    parts[2] = Slice(text, found + separator->bytes.size(), text.bytes.size());
  }
  ASSIGN_OR_RETURN(const Value list, NewTexts(runtime, self, std::move(parts)));
  return MakeTuple(list.items());
}

Result JoinMethod(Runtime& runtime, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("join", args, 1, 1));
  auto items = ToVector(runtime, args.positional[0]);
  if (!items.ok()) {
    if (items.status().code() == kTypeError) return TypeError("can only join an iterable");
    return items.status();
  }
  TextBuilder builder;
  for (size_t i = 0; i < items->size(); ++i) {
    if (i > 0) builder.Append(self.text());
    const Value& item = (*items)[i];
    if (!item.is_string()) {
      if (!self.text().safe) {
        return TypeError("sequence item %d: expected str instance, %s found", i, TypeName(item));
      }
      ASSIGN_OR_RETURN(const Text text, ToText(runtime, item));
      builder.Append(EscapeHtml(text));
    } else if (self.text().safe && !item.text().safe) {
      builder.Append(EscapeHtml(item.text()));
    } else {
      builder.Append(item.text());
    }
    RETURN_IF_ERROR(runtime.CheckSize(static_cast<double>(builder.size())));
  }
  return NewText(runtime, self, builder.Finish());
}

// --- str: searching ---

struct Window {
  size_t begin, end;  // bytes
  bool valid;         // start is not behind the end
};

// start and end as Python's find and startswith take them.
absl::StatusOr<Window> WindowOf(const Text& text, const Args& args) {
  const size_t num_args = args.positional.size();
  if (num_args < 2) return Window{0, text.bytes.size(), true};
  const auto size = static_cast<int64_t>(CountChars(text.bytes));
  const auto index = [&](size_t i, int64_t fallback) -> absl::StatusOr<int64_t> {
    if (i >= num_args || args.positional[i].is_none()) return fallback;
    if (!args.positional[i].is_integral()) {
      return TypeError("slice indices must be integers or None or have an __index__ method");
    }
    int64_t value = args.positional[i].as_int();
    if (value < 0) value = std::max<int64_t>(value < -size ? 0 : value + size, 0);
    return value;
  };
  ASSIGN_OR_RETURN(const int64_t start, index(1, 0));
  ASSIGN_OR_RETURN(int64_t end, index(2, size));
  end = std::min(end, size);
  if (start > end) return Window{0, 0, false};
  return Window{ByteOffset(text.bytes, static_cast<size_t>(start)),
                ByteOffset(text.bytes, static_cast<size_t>(end)), true};
}

template <bool from_right, bool must_exist>
Result Find(Runtime&, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("find", args, 1, 3));
  if (!args.positional[0].is_string()) {
    return TypeError("must be str, not %s", TypeName(args.positional[0]));
  }
  const Text& text = self.text();
  ASSIGN_OR_RETURN(const Window window, WindowOf(text, args));
  if (window.valid) {
    const std::string_view inside(text.bytes.data() + window.begin, window.end - window.begin);
    const std::string& wanted = args.positional[0].text().bytes;
    const size_t found = from_right ? inside.rfind(wanted) : inside.find(wanted);
    if (found != std::string_view::npos) {
      return Value::Int(static_cast<int64_t>(
          CountChars(std::string_view(text.bytes).substr(0, window.begin + found))));
    }
  }
  if (must_exist) return ValueError("substring not found");
  return Value::Int(-1);
}

Result CountMethod(Runtime&, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("count", args, 1, 3));
  if (!args.positional[0].is_string()) {
    return TypeError("must be str, not %s", TypeName(args.positional[0]));
  }
  const Text& text = self.text();
  ASSIGN_OR_RETURN(const Window window, WindowOf(text, args));
  if (!window.valid) return Value::Int(0);
  const std::string_view inside(text.bytes.data() + window.begin, window.end - window.begin);
  const std::string& wanted = args.positional[0].text().bytes;
  if (wanted.empty()) return Value::Int(static_cast<int64_t>(CountChars(inside)) + 1);
  int64_t count = 0;
  for (size_t at = inside.find(wanted); at != std::string_view::npos;
       at = inside.find(wanted, at + wanted.size())) {
    ++count;
  }
  return Value::Int(count);
}

template <bool prefix>
Result HasAffix(Runtime&, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count(prefix ? "startswith" : "endswith", args, 1, 3));
  const Text& text = self.text();
  ASSIGN_OR_RETURN(const Window window, WindowOf(text, args));
  const auto matches = [&](const std::string& affix) {
    if (!window.valid || affix.size() > window.end - window.begin) return false;
    const size_t at = prefix ? window.begin : window.end - affix.size();
    return text.bytes.compare(at, affix.size(), affix) == 0;
  };
  const Value& wanted = args.positional[0];
  if (wanted.is_string()) return Value::Bool(matches(wanted.text().bytes));
  if (wanted.is(Kind::kTuple)) {
    for (const Value& item : wanted.items()) {
      if (!item.is_string())
        return TypeError("tuple must only contain str, not %s", TypeName(item));
      if (matches(item.text().bytes)) return Value::Bool(true);
    }
    return Value::Bool(false);
  }
  return TypeError("%s first arg must be str or a tuple of str, not %s",
                   prefix ? "startswith" : "endswith", TypeName(wanted));
}

// --- str: questions ---

template <uint16_t flags>
Result Has(Runtime&, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("is", args, 0, 0));
  return Value::Bool(AllHave(self.text().bytes, flags));
}

template <bool (*question)(std::string_view)>
Result Ask(Runtime&, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("is", args, 0, 0));
  return Value::Bool(question(self.text().bytes));
}

Result IsPrintable(Runtime&, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("isprintable", args, 0, 0));
  return Value::Bool(self.text().empty() || AllHave(self.text().bytes, kPrintable));
}

// --- str: formatting ---

Result FormatMethod(Runtime& runtime, const Value& self, Args& args) {
  return FormatBraces(runtime, self.text(), args);
}

Result FormatMapMethod(Runtime& runtime, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("format_map", args, 1, 1));
  if (!args.positional[0].is(Kind::kDict)) return NotSupported("format_map() of this type");
  Args named;
  for (const auto& entry : args.positional[0].as<DictObject>().entries()) {
    if (entry.key.is_string()) named.named.emplace_back(entry.key.text().bytes, entry.value);
  }
  return FormatBraces(runtime, self.text(), named);
}

template <const char* const& name>
Result Missing(Runtime&, const Value&, Args&) {
  return NotSupported("the method %s()", name);
}
constexpr const char* kEncode = "encode";
constexpr const char* kTranslate = "translate";
constexpr const char* kMakeTrans = "maketrans";

constexpr Method kStringMethods[] = {
    {"capitalize", Transform<Capitalize>},
    {"casefold", Transform<CaseFold>},
    {"center", Justify<1>},
    {"count", CountMethod},
    {"encode", Missing<kEncode>},
    {"endswith", HasAffix<false>},
    {"expandtabs", ExpandTabsMethod},
    {"find", Find<false, false>},
    {"format", FormatMethod},
    {"format_map", FormatMapMethod},
    {"index", Find<false, true>},
    {"isalnum", Has<kAlnum>},
    {"isalpha", Has<kAlpha>},
    {"isascii", Ask<IsAscii>},
    {"isdecimal", Has<kDecimal>},
    {"isdigit", Has<kDigit>},
    {"isidentifier", Ask<IsIdentifier>},
    {"islower", Ask<IsLowerText>},
    {"isnumeric", Has<kNumeric>},
    {"isprintable", IsPrintable},
    {"isspace", Has<kSpace>},
    {"istitle", Ask<IsTitleText>},
    {"isupper", Ask<IsUpperText>},
    {"join", JoinMethod},
    {"ljust", Justify<0>},
    {"lower", Transform<Lower>},
    {"lstrip", StripMethod<true, false>},
    {"maketrans", Missing<kMakeTrans>},
    {"partition", Partition<false>},
    {"removeprefix", RemoveAffix<true>},
    {"removesuffix", RemoveAffix<false>},
    {"replace", ReplaceMethod},
    {"rfind", Find<true, false>},
    {"rindex", Find<true, true>},
    {"rjust", Justify<2>},
    {"rpartition", Partition<true>},
    {"rsplit", SplitMethod<true>},
    {"rstrip", StripMethod<false, true>},
    {"split", SplitMethod<false>},
    {"splitlines", SplitLinesMethod},
    {"startswith", HasAffix<true>},
    {"strip", StripMethod<true, true>},
    {"swapcase", Transform<SwapCase>},
    {"title", Transform<Title>},
    {"translate", Missing<kTranslate>},
    {"upper", Transform<Upper>},
    {"zfill", ZFill},
};

// --- list, tuple, range ---

Result CountItems(Runtime& runtime, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("count", args, 1, 1));
  ASSIGN_OR_RETURN(const std::vector<Value> items, ToVector(runtime, self));
  int64_t count = 0;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const bool same, Equal(runtime, item, args.positional[0]));
    count += same ? 1 : 0;
  }
  return Value::Int(count);
}

Result IndexOfItem(Runtime& runtime, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("index", args, 1, 3));
  ASSIGN_OR_RETURN(const std::vector<Value> items, ToVector(runtime, self));
  const auto size = static_cast<int64_t>(items.size());
  int64_t bounds[2] = {0, size};
  for (size_t i = 1; i < args.positional.size(); ++i) {
    ASSIGN_OR_RETURN(int64_t bound, IntArgument(args.positional[i], 0));
    if (bound < 0) bound = std::max<int64_t>(bound + size, 0);
    bounds[i - 1] = std::min(bound, size);
  }
  for (int64_t i = bounds[0]; i < bounds[1]; ++i) {
    ASSIGN_OR_RETURN(const bool same, Equal(runtime, items[i], args.positional[0]));
    if (same) return Value::Int(i);
  }
  ASSIGN_OR_RETURN(const Text shown, Repr(runtime, args.positional[0]));
  return ValueError("%s is not in %s", shown.bytes, TypeName(self));
}

Result Same(Runtime&, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("copy", args, 0, 0));
  return self;
}

constexpr Method kListMethods[] = {{"copy", Same}, {"count", CountItems}, {"index", IndexOfItem}};
constexpr Method kTupleMethods[] = {{"count", CountItems}, {"index", IndexOfItem}};

// --- dict ---

Result GetMethod(Runtime& runtime, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("get", args, 1, 2));
  ASSIGN_OR_RETURN(const Value* found, self.as<DictObject>().Find(runtime, args.positional[0]));
  if (found != nullptr) return *found;
  return args.positional.size() > 1 ? args.positional[1] : Value::None();
}

template <DictViewObject::Part part>
Result View(Runtime&, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("view", args, 0, 0));
  auto view = std::make_shared<DictViewObject>();
  view->dict = self.object();
  view->part = part;
  view->depth = self.depth() + 1;
  return Value::Of(Kind::kDictView, std::move(view));
}

Result FromKeys(Runtime& runtime, const Value&, Args& args) {
  RETURN_IF_ERROR(Count("fromkeys", args, 1, 2));
  ASSIGN_OR_RETURN(std::vector<Value> keys, ToVector(runtime, args.positional[0]));
  auto dict = std::make_shared<DictObject>();
  for (Value& key : keys) {
    RETURN_IF_ERROR(dict->Set(runtime, std::move(key),
                              args.positional.size() > 1 ? args.positional[1] : Value::None()));
  }
  return Value::Of(Kind::kDict, std::move(dict));
}

constexpr Method kDictMethods[] = {
    {"copy", Same},
    {"fromkeys", FromKeys},
    {"get", GetMethod},
    {"items", View<DictViewObject::Part::kItems>},
    {"keys", View<DictViewObject::Part::kKeys>},
    {"values", View<DictViewObject::Part::kValues>},
};
constexpr Method kDictTypeMethods[] = {{"fromkeys", FromKeys}};

// --- numbers ---

Result BitLength(Runtime&, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("bit_length", args, 0, 0));
  uint64_t magnitude = self.as_int() < 0 ? ~static_cast<uint64_t>(self.as_int()) + 1
                                         : static_cast<uint64_t>(self.as_int());
  int64_t bits = 0;
  for (; magnitude > 0; magnitude >>= 1) ++bits;
  return Value::Int(bits);
}

Result IsInteger(Runtime&, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("is_integer", args, 0, 0));
  return Value::Bool(std::isfinite(self.as_float()) &&
                     self.as_float() == std::floor(self.as_float()));
}

constexpr Method kIntMethods[] = {{"bit_length", BitLength}};
constexpr Method kFloatMethods[] = {{"is_integer", IsInteger}};

// --- loop, cycler ---

Result CycleMethod(Runtime&, const Value& self, Args& args) {
  RETURN_IF_ERROR(NoNames("cycle", args));
  if (args.positional.empty()) return TypeError("no items for cycling given");
  return args
      .positional[static_cast<size_t>(self.as<LoopObject>().index0) % args.positional.size()];
}

Result ChangedMethod(Runtime& runtime, const Value& self, Args& args) {
  RETURN_IF_ERROR(NoNames("changed", args));
  auto& loop = self.as<LoopObject>();
  Value current = MakeTuple(args.positional);
  if (!loop.last_changed.is_missing()) {
    ASSIGN_OR_RETURN(const bool same, Equal(runtime, loop.last_changed, current));
    if (same) return Value::Bool(false);
  }
  loop.last_changed = std::move(current);
  return Value::Bool(true);
}

constexpr Method kLoopMethods[] = {{"changed", ChangedMethod}, {"cycle", CycleMethod}};

Result NextMethod(Runtime&, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("next", args, 0, 0));
  auto& cycler = self.as<CyclerObject>();
  Value item = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return item;
}

Result ResetMethod(Runtime&, const Value& self, Args& args) {
  RETURN_IF_ERROR(Count("reset", args, 0, 0));
  self.as<CyclerObject>().position = 0;
  return Value::None();
}

constexpr Method kCyclerMethods[] = {{"next", NextMethod}, {"reset", ResetMethod}};

template <size_t n>
const Method* Search(const Method (&methods)[n], std::string_view name) {
  const Method* end = methods + n;
  const Method* it = std::lower_bound(
      methods, end, name,
      [](const Method& m, std::string_view wanted) { return std::string_view(m.name) < wanted; });
  return it != end && it->name == name ? it : nullptr;
}

}  // namespace

const Method* FindMethod(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::kString:
      return Search(kStringMethods, name);
    case Kind::kList:
      return Search(kListMethods, name);
    case Kind::kTuple:
    case Kind::kRange:
      return Search(kTupleMethods, name);
    case Kind::kDict:
      return Search(kDictMethods, name);
    case Kind::kDictType:
      return Search(kDictTypeMethods, name);
    case Kind::kBool:
    case Kind::kInt:
      return Search(kIntMethods, name);
    case Kind::kFloat:
      return Search(kFloatMethods, name);
    case Kind::kLoop:
      return Search(kLoopMethods, name);
    case Kind::kCycler:
      return Search(kCyclerMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace penstock::jinja
