#include "common/text/jinja/value.h"

#include <cmath>
#include <cstring>

#include "common/json/json.h"
#include "common/text/jinja/errors.h"
#include "common/text/jinja/runtime.h"

namespace penstock::jinja {

const char* ErrorName(absl::StatusCode code) {
  switch (code) {
    case kTypeError:
      return "TypeError";
    case kValueError:
      return "ValueError";
    case kOverflowError:
      return "OverflowError";
    case kLookupError:
      return "LookupError";
    case kZeroDivisionError:
      return "ZeroDivisionError";
    case kUndefinedError:
      return "UndefinedError";
    case kSecurityError:
      return "SecurityError";
    case kTemplateRuntimeError:
      return "TemplateRuntimeError";
    case kRaisedError:
      return "TemplateError";
    case kLimitError:
      return "limit reached";
    case kNotSupported:
      return "not supported";
    default:
      return "error";
  }
}

// --- Value ---

Value Value::Bool(bool value) {
  Value v(Kind::kBool);
  v.int_ = value ? 1 : 0;
  return v;
}
Value Value::Int(int64_t value) {
  Value v(Kind::kInt);
  v.int_ = value;
  return v;
}
Value Value::Float(double value) {
  Value v(Kind::kFloat);
  v.float_ = value;
  return v;
}
Value Value::BigInt(std::string digits) {
  Value v = String(Text(std::move(digits)));
  v.kind_ = Kind::kBigInt;
  return v;
}
Value Value::String(Text text) {
  auto object = std::make_shared<StringObject>();
  object->text = std::move(text);
  return Of(Kind::kString, std::move(object));
}
Value Value::Of(Kind kind, std::shared_ptr<Object> object) {
  Value v(kind);
  v.object_ = std::move(object);
  return v;
}
const Text& Value::text() const { return as<StringObject>().text; }
const std::vector<Value>& Value::items() const { return as<SequenceObject>().items; }

namespace {
Value MakeSequence(Kind kind, std::vector<Value> items) {
  auto object = std::make_shared<SequenceObject>();
  for (const Value& item : items) object->depth = std::max(object->depth, item.depth() + 1);
  object->items = std::move(items);
  return Value::Of(kind, std::move(object));
}
}  // namespace

Value MakeList(std::vector<Value> items) { return MakeSequence(Kind::kList, std::move(items)); }
Value MakeTuple(std::vector<Value> items) { return MakeSequence(Kind::kTuple, std::move(items)); }

Value MakeStringList(std::vector<Text> texts) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (Text& text : texts) items.push_back(Value::String(std::move(text)));
  return MakeList(std::move(items));
}

Value MakeUndefined(std::string hint) {
  auto object = std::make_shared<UndefinedObject>();
  object->hint = std::move(hint);
  return Value::Of(Kind::kUndefined, std::move(object));
}

Value MakeUndefinedName(std::string_view name) {
  auto object = std::make_shared<UndefinedObject>();
  object->name = Value::String(name);
  return Value::Of(Kind::kUndefined, std::move(object));
}

absl::Status CheckDepth(const Value& value) {
  if (value.depth() <= kMaxValueDepth) return absl::OkStatus();
  return LimitError("a value is nested deeper than %d levels", kMaxValueDepth);
}

std::string UndefinedObject::Message() const {
  if (!hint.empty()) return hint;
  if (owner.empty()) return StringRepr(name.text()).bytes + " is undefined";
  if (name.is_string()) {
    return "'" + owner + "' has no attribute " + StringRepr(name.text()).bytes;
  }
  std::string shown = name.is(Kind::kInt) ? std::to_string(name.as_int()) : "of that name";
  return owner + " has no element " + shown;
}

absl::Status UndefinedErrorOf(const Value& undefined) {
  const auto& object = undefined.as<UndefinedObject>();
  if (object.security) return SecurityError("%s", object.Message());
  return UndefinedError("%s", object.Message());
}

Value FromJson(const Json& json, bool user) {
  const auto text = [&](const std::string& s) { return user ? Text::FromUser(s) : Text(s); };
  if (json.is_null()) return Value::None();
  if (json.is_bool()) return Value::Bool(json.as_bool());
  if (json.is_string()) return Value::String(text(json.as_string()));
  if (json.is_number()) {
    if (json.is_integer()) {
      if (const auto value = json.ToInt64()) return Value::Int(*value);
      return Value::BigInt(json.number_text());
    }
    return Value::Float(std::strtod(json.number_text().c_str(), nullptr));
  }
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.as_array().size());
    for (const Json& item : json.as_array()) items.push_back(FromJson(item, user));
    return MakeList(std::move(items));
  }
  auto dict = std::make_shared<DictObject>();
  for (const JsonMember& member : json.as_object()) {
    dict->SetString(text(member.key), FromJson(member.value, user));
  }
  return Value::Of(Kind::kDict, std::move(dict));
}

// --- Dict ---

namespace {
constexpr size_t kIndexFrom = 9;  // entries; fewer are compared one by one
size_t HashOfString(std::string_view key) { return std::hash<std::string_view>()(key); }
}  // namespace

const Value* DictObject::FindString(std::string_view key) const {
  const auto matches = [&](const Entry& e) {
    return e.key.is_string() && e.key.text().bytes == key;
  };
  if (index_.empty()) {
    for (const Entry& entry : entries_) {
      if (matches(entry)) return &entry.value;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(HashOfString(key));
  for (auto it = begin; it != end; ++it) {
    if (matches(entries_[it->second])) return &entries_[it->second].value;
  }
  return nullptr;
}

absl::StatusOr<const Value*> DictObject::Find(Runtime& runtime, const Value& key) const {
  if (key.is_string()) return FindString(key.text().bytes);
  ASSIGN_OR_RETURN(const size_t hash, Hash(runtime, key));
  const auto check = [&](size_t i) -> absl::StatusOr<bool> {
    return Equal(runtime, entries_[i].key, key);
  };
  if (index_.empty()) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      ASSIGN_OR_RETURN(const bool same, check(i));
      if (same) return &entries_[i].value;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    ASSIGN_OR_RETURN(const bool same, check(it->second));
    if (same) return &entries_[it->second].value;
  }
  return nullptr;
}

void DictObject::Append(size_t hash, Value key, Value value) {
  depth = std::max({depth, key.depth() + 1, value.depth() + 1});
  entries_.push_back({std::move(key), std::move(value)});
  if (!index_.empty()) index_.emplace(hash, entries_.size() - 1);
}

void DictObject::SetString(Text key, Value value) {
  if (const Value* found = FindString(key.bytes)) {
    depth = std::max(depth, value.depth() + 1);
    *const_cast<Value*>(found) = std::move(value);  // an entry of ours
    return;
  }
  const size_t hash = HashOfString(key.bytes);
  Append(hash, Value::String(std::move(key)), std::move(value));
  if (entries_.size() == kIndexFrom && index_.empty()) {
    bool all_strings = true;
    for (const Entry& entry : entries_) all_strings = all_strings && entry.key.is_string();
    if (!all_strings) return;  // rare; stays a list until Set builds the index
    for (size_t i = 0; i < entries_.size(); ++i) {
      index_.emplace(HashOfString(entries_[i].key.text().bytes), i);
    }
  }
}

absl::Status DictObject::Set(Runtime& runtime, Value key, Value value) {
  if (key.is_string() && !(index_.empty() && entries_.size() >= kIndexFrom)) {
    SetString(key.text(), std::move(value));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Value* found, Find(runtime, key));
  if (found != nullptr) {
    depth = std::max(depth, value.depth() + 1);
    *const_cast<Value*>(found) = std::move(value);  // an entry of ours
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const size_t hash, Hash(runtime, key));
  Append(hash, std::move(key), std::move(value));
  if (entries_.size() >= kIndexFrom && index_.empty()) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      ASSIGN_OR_RETURN(const size_t entry_hash, Hash(runtime, entries_[i].key));
      index_.emplace(entry_hash, i);
    }
  }
  return absl::OkStatus();
}

void DictObject::Clear() {
  entries_.clear();
  index_.clear();
}

// --- Protocols ---

int64_t RangeObject::size() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_float() != 0;
    case Kind::kString:
      return !value.text().bytes.empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.as<DictObject>().entries().empty();
    case Kind::kRange:
      return value.as<RangeObject>().size() > 0;
    case Kind::kDictView:
      return !value.as<DictViewObject>().of().entries().empty();
    default:
      return true;
  }
}

absl::StatusOr<int64_t> Length(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(CountChars(value.text().bytes));
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.as<DictObject>().entries().size());
    case Kind::kRange:
      return value.as<RangeObject>().size();
    case Kind::kDictView:
      return static_cast<int64_t>(value.as<DictViewObject>().of().entries().size());
    case Kind::kLoop:
      return value.as<LoopObject>().Length(runtime);
    default:
      return TypeError("object of type '%s' has no len()", TypeName(value));
  }
}

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
      return "MissingType";
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.text().safe ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kDictView: {
      const auto part = value.as<DictViewObject>().part;
      return part == DictViewObject::Part::kKeys     ? "dict_keys"
             : part == DictViewObject::Part::kValues ? "dict_values"
                                                     : "dict_items";
    }
    case Kind::kIterator:
      return value.as<IteratorObject>().type_name;
    case Kind::kFunction:
      return value.as<FunctionObject>().self.is_missing() ? "function"
                                                          : "builtin_function_or_method";
    case Kind::kMacro:
      return "Macro";
    case Kind::kNamespace:
      return "TemplateNamespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
    case Kind::kDictType:
      return "TemplateDict";
  }
  return "object";
}

std::string DescribeType(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return "None";
    case Kind::kMacro:
    case Kind::kLoop:
      return "jinja2.runtime." + TypeName(value) + " object";
    case Kind::kCycler:
    case Kind::kJoiner:
      return "jinja2.utils." + TypeName(value) + " object";
    default:
      return TypeName(value) + " object";
  }
}

absl::StatusOr<size_t> Hash(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::kString:
      return HashOfString(value.text().bytes);
    case Kind::kBigInt:
      return HashOfString(value.text().bytes) + 1;
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<int64_t>()(value.as_int());
    case Kind::kFloat: {
      const double d = value.as_float();
      if (d >= -9.2e18 && d <= 9.2e18 && d == std::floor(d)) {
        return std::hash<int64_t>()(static_cast<int64_t>(d));
      }
      return std::hash<double>()(d);
    }
    case Kind::kNone:
      return 1;
    case Kind::kUndefined:
      return 2;
    case Kind::kTuple: {
      RETURN_IF_ERROR(runtime.Tick());
      size_t hash = 3;
      for (const Value& item : value.items()) {
        ASSIGN_OR_RETURN(const size_t part, Hash(runtime, item));
        hash = hash * 1000003 ^ part;
      }
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
      return TypeError("unhashable type: '%s'", TypeName(value));
    default:
      return std::hash<const void*>()(value.object().get());
  }
}

namespace {

absl::StatusOr<bool> EqualItems(Runtime& runtime, const std::vector<Value>& a,
                                const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSIGN_OR_RETURN(const bool same, Equal(runtime, a[i], b[i]));
    if (!same) return false;
  }
  return true;
}

absl::StatusOr<bool> EqualDicts(Runtime& runtime, const DictObject& a, const DictObject& b) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& entry : a.entries()) {
    ASSIGN_OR_RETURN(const Value* other, b.Find(runtime, entry.key));
    if (other == nullptr) return false;
    ASSIGN_OR_RETURN(const bool same, Equal(runtime, entry.value, *other));
    if (!same) return false;
  }
  return true;
}

// An int against a double, exactly.
int CompareIntFloat(int64_t a, double b) {
  if (b >= 9223372036854775808.0) return -1;
  if (b < -9223372036854775808.0) return 1;
  const int64_t whole = static_cast<int64_t>(b);
  if (a != whole) return a < whole ? -1 : 1;
  const double rest = b - static_cast<double>(whole);
  return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

// Numbers; *unordered is set for a NaN. Big ints compare by sign and digits.
int CompareNumbers(const Value& a, const Value& b, bool* unordered) {
  if (a.is(Kind::kBigInt) || b.is(Kind::kBigInt)) {
    const auto magnitude = [](const Value& v) -> double {
      return v.is(Kind::kBigInt) ? std::strtod(v.text().bytes.c_str(), nullptr) : v.ToDouble();
    };
    if (a.is(Kind::kBigInt) && b.is(Kind::kBigInt)) {
      const std::string& x = a.text().bytes;
      const std::string& y = b.text().bytes;
      const bool negative = x[0] == '-';
      if (negative != (y[0] == '-')) return negative ? -1 : 1;
      int order = x.size() != y.size() ? (x.size() < y.size() ? -1 : 1) : x.compare(y);
      return negative ? -order : order;
    }
    const double x = magnitude(a);
    const double y = magnitude(b);
    *unordered = std::isnan(x) || std::isnan(y);
    return x < y ? -1 : x > y ? 1 : 0;
  }
  const bool float_a = a.is(Kind::kFloat);
  const bool float_b = b.is(Kind::kFloat);
  *unordered = (float_a && std::isnan(a.as_float())) || (float_b && std::isnan(b.as_float()));
  if (*unordered) return 1;
  if (float_a && float_b) {
    return a.as_float() < b.as_float() ? -1 : a.as_float() > b.as_float() ? 1 : 0;
  }
  if (float_b) return CompareIntFloat(a.as_int(), b.as_float());
  if (float_a) return -CompareIntFloat(b.as_int(), a.as_float());
  return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
}

}  // namespace

absl::StatusOr<bool> Equal(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    bool unordered = false;
    const int order = CompareNumbers(a, b, &unordered);
    return !unordered && order == 0;
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone:
    case Kind::kUndefined:
      return true;
    case Kind::kString:
      return a.text().bytes == b.text().bytes;
    case Kind::kList:
    case Kind::kTuple:
      RETURN_IF_ERROR(runtime.Tick());
      return EqualItems(runtime, a.items(), b.items());
    case Kind::kDict:
      RETURN_IF_ERROR(runtime.Tick());
      return EqualDicts(runtime, a.as<DictObject>(), b.as<DictObject>());
    case Kind::kRange: {
      const auto& x = a.as<RangeObject>();
      const auto& y = b.as<RangeObject>();
      if (x.size() != y.size()) return false;
      if (x.size() == 0) return true;
      return x.start == y.start && (x.size() == 1 || x.step == y.step);
    }
    case Kind::kDictView: {
      const auto& x = a.as<DictViewObject>();
      const auto& y = b.as<DictViewObject>();
      if (x.part != y.part || x.part == DictViewObject::Part::kValues) {
        return a.object() == b.object();
      }
      if (x.part == DictViewObject::Part::kItems) return EqualDicts(runtime, x.of(), y.of());
      if (x.of().entries().size() != y.of().entries().size()) return false;
      for (const auto& entry : x.of().entries()) {
        ASSIGN_OR_RETURN(const Value* found, y.of().Find(runtime, entry.key));
        if (found == nullptr) return false;
      }
      return true;
    }
    case Kind::kFunction: {
      const auto& x = a.as<FunctionObject>();
      const auto& y = b.as<FunctionObject>();
      return x.call == y.call && x.name == y.name && x.self.object() == y.self.object();
    }
    default:
      return a.object() == b.object();
  }
}

absl::StatusOr<int> Order(Runtime& runtime, const Value& a, const Value& b, const char* sign) {
  if (a.is_undefined()) return UndefinedErrorOf(a);
  if (b.is_undefined()) return UndefinedErrorOf(b);
  if (a.is_number() && b.is_number()) {
    bool unordered = false;
    const int order = CompareNumbers(a, b, &unordered);
    return unordered ? 2 : order;
  }
  if (a.is_string() && b.is_string()) {  // UTF-8's byte order is the code points' order
    const int order = a.text().bytes.compare(b.text().bytes);
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    RETURN_IF_ERROR(runtime.Tick());
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      // The same object counts as equal, even a NaN or an undefined.
      const bool identical = x[i].object() != nullptr && x[i].object() == y[i].object();
      if (identical) continue;
      ASSIGN_OR_RETURN(const bool same, Equal(runtime, x[i], y[i]));
      if (!same) return Order(runtime, x[i], y[i], sign);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  return TypeError("'%s' not supported between instances of '%s' and '%s'", sign, TypeName(a),
                   TypeName(b));
}

absl::StatusOr<bool> Contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string()) {
        return TypeError("'in <string>' requires string as left operand, not %s", TypeName(item));
      }
      return container.text().bytes.find(item.text().bytes) != std::string::npos;
    case Kind::kDict: {
      ASSIGN_OR_RETURN(const Value* found, container.as<DictObject>().Find(runtime, item));
      return found != nullptr;
    }
    case Kind::kDictView: {
      const auto& view = container.as<DictViewObject>();
      if (view.part != DictViewObject::Part::kKeys) break;
      ASSIGN_OR_RETURN(const Value* found, view.of().Find(runtime, item));
      return found != nullptr;
    }
    case Kind::kRange:
      if (item.is_integral()) {
        const auto& range = container.as<RangeObject>();
        const int64_t value = item.as_int();
        const bool inside = range.step > 0 ? value >= range.start && value < range.stop
                                           : value <= range.start && value > range.stop;
        return inside && (value - range.start) % range.step == 0;
      }
      break;
    default:
      break;
  }
  auto cursor = Cursor::Open(container);
  if (!cursor.ok()) {
    return TypeError("argument of type '%s' is not iterable", TypeName(container));
  }
  while (true) {
    ASSIGN_OR_RETURN(std::optional<Value> element, cursor->Next(runtime));
    if (!element) return false;
    if (element->object() != nullptr && element->object() == item.object()) return true;
    ASSIGN_OR_RETURN(const bool same, Equal(runtime, *element, item));
    if (same) return true;
  }
}

// --- Iteration ---

absl::StatusOr<Cursor> Cursor::Open(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kDictView:
    case Kind::kIterator:
    case Kind::kLoop: {
      Cursor cursor;
      cursor.value_ = value;
      return cursor;
    }
    default:
      return TypeError("'%s' object is not iterable", TypeName(value));
  }
}

std::optional<int64_t> Cursor::length() const {
  if (value_.is(Kind::kIterator) || value_.is(Kind::kLoop)) return std::nullopt;
  if (value_.is(Kind::kString)) return CountChars(value_.text().bytes);
  if (value_.is_sequence()) return value_.items().size();
  if (value_.is(Kind::kDict)) return value_.as<DictObject>().entries().size();
  if (value_.is(Kind::kDictView)) return value_.as<DictViewObject>().of().entries().size();
  if (value_.is(Kind::kRange)) return value_.as<RangeObject>().size();
  return 0;
}

absl::StatusOr<std::optional<Value>> Cursor::Next(Runtime& runtime) {
  RETURN_IF_ERROR(runtime.Tick());
  switch (value_.kind()) {
    case Kind::kString: {
      const Text& text = value_.text();
      if (position_ >= text.bytes.size()) return std::nullopt;
      const size_t begin = position_;
      position_ += CharAt(text.bytes, begin).size;
      return Value::String(Slice(text, begin, position_));
    }
    case Kind::kList:
    case Kind::kTuple:
      if (position_ >= value_.items().size()) return std::nullopt;
      return value_.items()[position_++];
    case Kind::kDict: {
      const auto& entries = value_.as<DictObject>().entries();
      if (position_ >= entries.size()) return std::nullopt;
      return entries[position_++].key;
    }
    case Kind::kRange: {
      const auto& range = value_.as<RangeObject>();
      if (static_cast<int64_t>(position_) >= range.size()) return std::nullopt;
      return Value::Int(range.start + static_cast<int64_t>(position_++) * range.step);
    }
    case Kind::kDictView: {
      const auto& view = value_.as<DictViewObject>();
      if (position_ >= view.of().entries().size()) return std::nullopt;
      const auto& entry = view.of().entries()[position_++];
      if (view.part == DictViewObject::Part::kKeys) return entry.key;
      if (view.part == DictViewObject::Part::kValues) return entry.value;
      return MakeTuple({entry.key, entry.value});
    }
    case Kind::kIterator:
      return value_.as<IteratorObject>().Next(runtime);
    case Kind::kLoop: {  // yields (item, loop), as the loop's own `for` does
      ASSIGN_OR_RETURN(const bool more, value_.as<LoopObject>().Advance(runtime));
      if (!more) return std::nullopt;
      return MakeTuple({value_.as<LoopObject>().current, value_});
    }
    default:
      return std::nullopt;
  }
}

absl::StatusOr<std::vector<Value>> ToVector(Runtime& runtime, const Value& iterable) {
  if (iterable.is_sequence()) return iterable.items();
  ASSIGN_OR_RETURN(Cursor cursor, Cursor::Open(iterable));
  std::vector<Value> items;
  while (true) {
    ASSIGN_OR_RETURN(std::optional<Value> item, cursor.Next(runtime));
    if (!item) return items;
    items.push_back(*std::move(item));
  }
}

// --- Loop state ---

absl::StatusOr<bool> LoopObject::Advance(Runtime& runtime) {
  std::optional<Value> next;
  if (after) {
    if (!after->is_missing()) next = *std::move(after);
    after.reset();
    if (!next) after = Value();  // still at the end
  } else {
    ASSIGN_OR_RETURN(next, cursor.Next(runtime));
  }
  if (!next) return false;
  ++index0;
  before = std::move(current);
  current = *std::move(next);
  return true;
}

absl::StatusOr<bool> LoopObject::PeekIsEnd(Runtime& runtime) {
  if (!after) {
    ASSIGN_OR_RETURN(std::optional<Value> next, cursor.Next(runtime));
    after = next ? *std::move(next) : Value();
  }
  return after->is_missing();
}

absl::StatusOr<int64_t> LoopObject::Length(Runtime& runtime) {
  if (known_length) return *known_length;
  if (const auto length = cursor.length()) {
    known_length = length;
    return *known_length;
  }
  std::vector<Value> rest;
  while (true) {
    ASSIGN_OR_RETURN(std::optional<Value> item, cursor.Next(runtime));
    if (!item) break;
    rest.push_back(*std::move(item));
  }
  const bool peeked = after && !after->is_missing();
  known_length = static_cast<int64_t>(rest.size()) + index0 + 1 + (peeked ? 1 : 0);
  ASSIGN_OR_RETURN(cursor, Cursor::Open(MakeList(std::move(rest))));
  return *known_length;
}

}  // namespace penstock::jinja
