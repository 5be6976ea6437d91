// Operators, lookups and calls, as Python and jinja2's sandbox do them.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/text/jinja/ast.h"
#include "common/text/jinja/errors.h"
#include "common/text/jinja/runtime.h"
#include "common/text/jinja/unicode_tables.h"

namespace penstock::jinja {
namespace {

const char* Sign(Operator op) {
  static constexpr const char* kSigns[] = {"+",  "-", "*",  "/", "//", "%",  "** or pow()", "==",
                                           "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSigns[static_cast<int>(op)];
}

absl::Status Unsupported(Operator op, const Value& a, const Value& b) {
  return TypeError("unsupported operand type(s) for %s: '%s' and '%s'", Sign(op), TypeName(a),
                   TypeName(b));
}

absl::Status IntOverflow() { return NotSupported("an integer result beyond 64 bits"); }

// --- Numbers ---

absl::StatusOr<Value> IntPower(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return IntOverflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return IntOverflow();
  }
  return Value::Int(result);
}

absl::StatusOr<Value> FloatPower(double base, double exponent) {
  if (base == 0 && exponent < 0) {
    return ZeroDivisionError("0.0 cannot be raised to a negative power");
  }
  if (base < 0 && std::isfinite(base) && std::isfinite(exponent) &&
      exponent != std::floor(exponent)) {
    return NotSupported("a complex number as the result of **");
  }
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) {
    return OverflowError("(34, 'Numerical result out of range')");
  }
  return Value::Float(result);
}

struct FloatDivision {
  double quotient, remainder;
};

// Python's divmod of floats: the remainder has the divisor's sign.
FloatDivision DivideFloats(double a, double b) {
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1.0;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), remainder};
  double whole = std::floor(quotient);
  if (quotient - whole > 0.5) whole += 1.0;
  return {whole, remainder};
}

absl::StatusOr<Value> FloatArithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::Float(a + b);
    case Operator::kSub:
      return Value::Float(a - b);
    case Operator::kMul:
      return Value::Float(a * b);
    case Operator::kPow:
      return FloatPower(a, b);
    default:
      break;
  }
  if (b == 0) {
    if (op == Operator::kDiv) return ZeroDivisionError("float division by zero");
    return ZeroDivisionError(op == Operator::kMod ? "float modulo"
                                                  : "float floor division by zero");
  }
  if (op == Operator::kDiv) return Value::Float(a / b);
  const FloatDivision division = DivideFloats(a, b);
  return Value::Float(op == Operator::kMod ? division.remainder : division.quotient);
}

absl::StatusOr<Value> IntArithmetic(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return IntOverflow();
      return Value::Int(result);
    case Operator::kSub:
      if (__builtin_sub_overflow(a, b, &result)) return IntOverflow();
      return Value::Int(result);
    case Operator::kMul:
      if (__builtin_mul_overflow(a, b, &result)) return IntOverflow();
      return Value::Int(result);
    case Operator::kPow:
      if (b < 0) {
        if (a == 0) return ZeroDivisionError("0.0 cannot be raised to a negative power");
        return FloatPower(static_cast<double>(a), static_cast<double>(b));
      }
      return IntPower(a, b);
    default:
      break;
  }
  if (b == 0) {
    if (op == Operator::kDiv) return ZeroDivisionError("division by zero");
    return ZeroDivisionError("integer division or modulo by zero");
  }
  if (op == Operator::kDiv) {  // rounded once from the exact quotient
    return Value::Float(
        static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
  }
  if (a == INT64_MIN && b == -1) {
    if (op == Operator::kMod) return Value::Int(0);
    return IntOverflow();
  }
  int64_t quotient = a / b;
  int64_t remainder = a % b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    --quotient;
    remainder += b;
  }
  return Value::Int(op == Operator::kMod ? remainder : quotient);
}

// --- Sequences ---

absl::StatusOr<Value> AddText(Runtime& runtime, const Text& a, const Text& b) {
  if (!a.safe && !b.safe) return runtime.NewString(Concat(a, b));
  Text sum = Concat(a.safe ? a : EscapeHtml(a), b.safe ? b : EscapeHtml(b));
  sum.safe = true;
  return runtime.NewString(std::move(sum));
}

absl::StatusOr<Value> AddSequences(Runtime& runtime, const Value& a, const Value& b) {
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  RETURN_IF_ERROR(runtime.Charge(items.size() * sizeof(Value)));
  return a.is(Kind::kList) ? MakeList(std::move(items)) : MakeTuple(std::move(items));
}

absl::StatusOr<Value> Multiply(Runtime& runtime, const Value& sequence, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (sequence.is_string()) {
    const Text& text = sequence.text();
    RETURN_IF_ERROR(
        runtime.CheckSize(static_cast<double>(text.bytes.size()) * static_cast<double>(times)));
    if (text.bytes.empty()) times = 0;
    Text repeated = Repeat(text, times);
    repeated.safe = text.safe;
    return runtime.NewString(std::move(repeated));
  }
  const std::vector<Value>& once = sequence.items();
  RETURN_IF_ERROR(runtime.CheckSize(static_cast<double>(once.size() * sizeof(Value)) *
                                    static_cast<double>(times)));
  std::vector<Value> items;
  if (once.empty()) times = 0;
  for (int64_t i = 0; i < times; ++i) items.insert(items.end(), once.begin(), once.end());
  RETURN_IF_ERROR(runtime.Charge(items.size() * sizeof(Value)));
  return sequence.is(Kind::kList) ? MakeList(std::move(items)) : MakeTuple(std::move(items));
}

}  // namespace

absl::StatusOr<Value> Arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (a.is_undefined()) return UndefinedErrorOf(a);
  if (op == Operator::kMod && a.is_string()) return FormatPercent(runtime, a.text(), b);
  if (b.is_undefined()) return UndefinedErrorOf(b);
  if (a.is(Kind::kBigInt) || b.is(Kind::kBigInt)) {
    if (a.is_number() && b.is_number()) return IntOverflow();
    return Unsupported(op, a, b);
  }
  if (a.is_integral() && b.is_integral()) return IntArithmetic(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return FloatArithmetic(op, a.ToDouble(), b.ToDouble());
  if (op == Operator::kAdd) {
    if (a.is_string() && b.is_string()) return AddText(runtime, a.text(), b.text());
    if (a.is_sequence() && a.kind() == b.kind()) return AddSequences(runtime, a, b);
    if (a.is_string() || a.is_sequence()) {
      return TypeError("can only concatenate %s (not \"%s\") to %s", TypeName(a), TypeName(b),
                       TypeName(a));
    }
  }
  if (op == Operator::kMul) {
    if ((a.is_string() || a.is_sequence()) && b.is_integral()) {
      return Multiply(runtime, a, b.as_int());
    }
    if ((b.is_string() || b.is_sequence()) && a.is_integral()) {
      return Multiply(runtime, b, a.as_int());
    }
  }
  return Unsupported(op, a, b);
}

absl::StatusOr<bool> Compare(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::kEq:
    case Operator::kNe: {
      ASSIGN_OR_RETURN(const bool same, Equal(runtime, a, b));
      return same == (op == Operator::kEq);
    }
    case Operator::kIn:
    case Operator::kNotIn: {
      ASSIGN_OR_RETURN(const bool inside, Contains(runtime, b, a));
      return inside == (op == Operator::kIn);
    }
    default:
      break;
  }
  ASSIGN_OR_RETURN(const int order, Order(runtime, a, b, Sign(op)));
  if (order == 2) return false;  // a NaN
  switch (op) {
    case Operator::kLt:
      return order < 0;
    case Operator::kLe:
      return order <= 0;
    case Operator::kGt:
      return order > 0;
    default:
      return order >= 0;
  }
}

absl::StatusOr<Value> Negate(const Value& value, bool minus) {
  if (value.is_undefined()) return UndefinedErrorOf(value);
  if (value.is_integral()) {
    if (!minus) return Value::Int(value.as_int());
    if (value.as_int() == INT64_MIN) return IntOverflow();
    return Value::Int(-value.as_int());
  }
  if (value.is(Kind::kFloat)) return Value::Float(minus ? -value.as_float() : value.as_float());
  if (value.is(Kind::kBigInt)) {
    if (!minus) return value;
    const std::string& digits = value.text().bytes;
    return Value::BigInt(digits[0] == '-' ? digits.substr(1) : "-" + digits);
  }
  return TypeError("bad operand type for unary %s: '%s'", minus ? "-" : "+", TypeName(value));
}

// --- Subscripts ---

std::optional<int64_t> AsIndex(const Value& value) {
  if (!value.is_integral()) return std::nullopt;
  return value.as_int();
}

namespace {

struct SliceRange {
  int64_t start, count, step;
};

absl::StatusOr<SliceRange> ResolveSlice(int64_t size, const Value& start, const Value& stop,
                                        const Value& step) {
  for (const Value* part : {&start, &stop, &step}) {
    if (!part->is_none() && !AsIndex(*part)) {
      return TypeError("slice indices must be integers or None or have an __index__ method");
    }
  }
  const int64_t by = step.is_none() ? 1 : step.as_int();
  if (by == 0) return ValueError("slice step cannot be zero");
  const auto clamp = [&](const Value& value, int64_t fallback) {
    if (value.is_none()) return fallback;
    int64_t index = value.as_int();
    if (index < 0) {
      index = index < -size ? -1 : index + size;
      return index < 0 ? (by < 0 ? int64_t{-1} : int64_t{0}) : index;
    }
    return index >= size ? (by < 0 ? size - 1 : size) : index;
  };
  const int64_t from = clamp(start, by < 0 ? size - 1 : 0);
  const int64_t to = clamp(stop, by < 0 ? -1 : size);
  int64_t count = 0;
  if (by > 0 && from < to) count = (to - from - 1) / by + 1;
  if (by < 0 && from > to) count = by == INT64_MIN ? 1 : (from - to - 1) / -by + 1;
  return SliceRange{from, count, by};
}

absl::StatusOr<Value> SliceText(Runtime& runtime, const Text& text, const SliceRange& range) {
  const bool ascii = IsAscii(text.bytes);
  Text result;
  if (range.step == 1) {
    const size_t begin =
        ascii ? static_cast<size_t>(range.start) : ByteOffset(text.bytes, range.start);
    const size_t size = ascii ? static_cast<size_t>(range.count)
                              : ByteOffset(std::string_view(text.bytes).substr(begin), range.count);
    result = Slice(text, std::min(begin, text.bytes.size()), begin + size);
  } else {
    std::vector<size_t> offsets;
    for (size_t pos = 0; pos < text.bytes.size(); pos += CharAt(text.bytes, pos).size) {
      offsets.push_back(pos);
    }
    offsets.push_back(text.bytes.size());
    TextBuilder builder;
    int64_t at = range.start;
    for (int64_t i = 0; i < range.count; ++i, at += range.step) {
      builder.AppendSlice(text, offsets[at], offsets[at + 1]);
    }
    result = builder.Finish();
  }
  result.safe = text.safe;
  return runtime.NewString(std::move(result));
}

}  // namespace

absl::StatusOr<Value> SliceOf(Runtime& runtime, const Value& value, const Value& start,
                              const Value& stop, const Value& step) {
  if (value.is_undefined()) return UndefinedErrorOf(value);
  if (value.is_string()) {
    ASSIGN_OR_RETURN(const int64_t size, Length(runtime, value));
    ASSIGN_OR_RETURN(const SliceRange range, ResolveSlice(size, start, stop, step));
    return SliceText(runtime, value.text(), range);
  }
  if (value.is_sequence()) {
    const std::vector<Value>& items = value.items();
    ASSIGN_OR_RETURN(const SliceRange range,
                     ResolveSlice(static_cast<int64_t>(items.size()), start, stop, step));
    std::vector<Value> result;
    result.reserve(range.count);
    int64_t at = range.start;
    for (int64_t i = 0; i < range.count; ++i, at += range.step) result.push_back(items[at]);
    RETURN_IF_ERROR(runtime.Charge(result.size() * sizeof(Value)));
    return value.is(Kind::kList) ? MakeList(std::move(result)) : MakeTuple(std::move(result));
  }
  if (value.is(Kind::kRange)) {
    const auto& range = value.as<RangeObject>();
    ASSIGN_OR_RETURN(const SliceRange part, ResolveSlice(range.size(), start, stop, step));
    auto result = std::make_shared<RangeObject>();
    result->start = range.start + part.start * range.step;
    result->step = range.step * part.step;
    // Python keeps the exact bound, which shows when printed.
    const int64_t by = part.step;
    int64_t bound = part.start + part.count * by;
    if (stop.is_none()) {
      bound = by < 0 ? -1 : range.size();
    } else {
      const int64_t size = range.size();
      bound = stop.as_int() < 0 ? std::max(stop.as_int() + size, by < 0 ? int64_t{-1} : int64_t{0})
                                : std::min(stop.as_int(), by < 0 ? size - 1 : size);
    }
    result->stop = range.start + bound * range.step;
    return Value::Of(Kind::kRange, std::move(result));
  }
  if (value.is(Kind::kDict)) return TypeError("unhashable type: 'slice'");
  return TypeError("'%s' object is not subscriptable", TypeName(value));
}

namespace {

Value Lacks(const Value& value, const Value& name) {
  auto object = std::make_shared<UndefinedObject>();
  object->owner = DescribeType(value);
  object->name = name;
  return Value::Of(Kind::kUndefined, std::move(object));
}

Value Unsafe(const Value& value, std::string_view name) {
  auto object = std::make_shared<UndefinedObject>();
  object->hint = absl::StrFormat("access to attribute '%s' of '%s' object is unsafe.",
                                 std::string(name), TypeName(value));
  object->security = true;
  return Value::Of(Kind::kUndefined, std::move(object));
}

// value[key] alone; missing when there is none (Python's TypeError or LookupError).
absl::StatusOr<Value> Subscript(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is_undefined()) return UndefinedErrorOf(value);
  if (value.is(Kind::kDict)) {
    auto found = value.as<DictObject>().Find(runtime, key);
    if (!found.ok()) {
      if (found.status().code() == kTypeError) return Value();
      return found.status();
    }
    return *found != nullptr ? **found : Value();
  }
  std::optional<int64_t> index = AsIndex(key);
  if (!index) return Value();
  if (value.is_sequence() || value.is_string() || value.is(Kind::kRange)) {
    ASSIGN_OR_RETURN(const int64_t size, Length(runtime, value));
    if (*index < 0) *index += size;
    if (*index < 0 || *index >= size) return Value();
    if (value.is_sequence()) return value.items()[*index];
    if (value.is(Kind::kRange)) {
      const auto& range = value.as<RangeObject>();
      return Value::Int(range.start + *index * range.step);
    }
    const Text& text = value.text();
    const size_t begin = ByteOffset(text.bytes, *index);
    Text result = Slice(text, begin, begin + CharAt(text.bytes, begin).size);
    result.safe = text.safe;
    return Value::String(std::move(result));
  }
  return Value();
}

absl::StatusOr<Value> LoopAttribute(Runtime& runtime, LoopObject& loop, std::string_view name) {
  if (name == "index") return Value::Int(loop.index0 + 1);
  if (name == "index0") return Value::Int(loop.index0);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "depth") return Value::Int(loop.depth0 + 1);
  if (name == "depth0") return Value::Int(loop.depth0);
  if (name == "last") {
    ASSIGN_OR_RETURN(const bool end, loop.PeekIsEnd(runtime));
    return Value::Bool(end);
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    ASSIGN_OR_RETURN(const int64_t length, loop.Length(runtime));
    if (name == "length") return Value::Int(length);
    return Value::Int(length - loop.index0 - (name == "revindex0" ? 1 : 0));
  }
  if (name == "previtem") {
    return loop.index0 == 0 ? MakeUndefined("there is no previous item") : loop.before;
  }
  if (name == "nextitem") {
    ASSIGN_OR_RETURN(const bool end, loop.PeekIsEnd(runtime));
    return end ? MakeUndefined("there is no next item") : *loop.after;
  }
  return Value();
}

// A property of value, or a missing value.
absl::StatusOr<Value> Property(Runtime& runtime, const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::kLoop:
      return LoopAttribute(runtime, value.as<LoopObject>(), name);
    case Kind::kNamespace: {
      const Value* found = value.as<NamespaceObject>().attributes.FindString(name);
      return found != nullptr ? *found : Value();
    }
    case Kind::kTuple:
      if (!value.as<SequenceObject>().is_group) return Value();
      if (name == "grouper") return value.items()[0];
      if (name == "list") return value.items()[1];
      return Value();
    case Kind::kRange: {
      const auto& range = value.as<RangeObject>();
      if (name == "start") return Value::Int(range.start);
      if (name == "stop") return Value::Int(range.stop);
      if (name == "step") return Value::Int(range.step);
      return Value();
    }
    case Kind::kCycler: {
      const auto& cycler = value.as<CyclerObject>();
      if (name == "current") return cycler.items[cycler.position];
      if (name == "pos") return Value::Int(static_cast<int64_t>(cycler.position));
      if (name == "items") return MakeTuple(cycler.items);
      return Value();
    }
    case Kind::kJoiner:
      if (name == "sep") return value.as<JoinerObject>().separator;
      if (name == "used") return Value::Bool(value.as<JoinerObject>().used);
      return Value();
    case Kind::kBool:
    case Kind::kInt:
      if (name == "real" || name == "numerator") return Value::Int(value.as_int());
      if (name == "imag") return Value::Int(0);
      if (name == "denominator") return Value::Int(1);
      return Value();
    case Kind::kFloat:
      if (name == "real") return value;
      if (name == "imag") return Value::Float(0.0);
      return Value();
    case Kind::kBigInt:
      return name == "real" || name == "numerator" ? value : Value();
    case Kind::kMacro: {
      const Stmt& macro = *value.as<MacroObject>().definition;
      if (name == "name") return macro.name.empty() ? Value::None() : Value::String(macro.name);
      if (name != "arguments") return Value();
      std::vector<Value> parameters;
      for (const ExprPtr& p : macro.parameters) parameters.push_back(Value::String(p->name));
      return MakeTuple(std::move(parameters));
    }
    default:
      return Value();
  }
}

// getattr() in the sandbox; missing when there is no such attribute.
absl::StatusOr<Value> Attribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (const Method* method = FindMethod(value.kind(), name)) {
    auto bound = std::make_shared<FunctionObject>();
    bound->name = name;
    bound->self = value;
    bound->depth = value.depth() + 1;
    bound->call = method->call;
    return Value::Of(Kind::kFunction, std::move(bound));
  }
  if (IsForbidden(value, name)) return Unsafe(value, name);
  if (value.is_undefined()) return UndefinedErrorOf(value);
  return Property(runtime, value, name);
}

}  // namespace

absl::StatusOr<Value> GetAttribute(Runtime& runtime, const Value& value, std::string_view name) {
  ASSIGN_OR_RETURN(Value attribute, Attribute(runtime, value, name));
  if (!attribute.is_missing()) return attribute;
  if (value.is(Kind::kDict)) {
    if (const Value* found = value.as<DictObject>().FindString(name)) return *found;
  }
  return Lacks(value, Value::String(name));
}

absl::StatusOr<Value> GetItem(Runtime& runtime, const Value& value, const Value& key) {
  ASSIGN_OR_RETURN(Value item, Subscript(runtime, value, key));
  if (!item.is_missing()) return item;
  if (key.is_string()) {
    ASSIGN_OR_RETURN(Value attribute, Attribute(runtime, value, key.text().bytes));
    if (!attribute.is_missing()) return attribute;
  }
  return Lacks(value, key);
}

absl::StatusOr<Value> GetPath(Runtime& runtime, Value value, const Value& path) {
  if (path.is_none()) return value;
  if (!path.is_string()) return GetItem(runtime, value, path);
  for (const Text& part : Split(path.text(), ".", -1, false)) {
    Value key = Value::String(part);
    if (AllHave(part.bytes, kDigit | kDecimal)) {
      auto number = ParseInt(part.bytes, 10);
      RETURN_IF_ERROR(number.status());
      key = *std::move(number);
    }
    ASSIGN_OR_RETURN(value, GetItem(runtime, value, key));
  }
  return value;
}

bool IsForbidden(const Value& value, std::string_view name) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (name.substr(0, 2) != "__") {
    if (value.is(Kind::kList)) {
      return is_one_of({"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
    }
    return value.is(Kind::kDict) && is_one_of({"clear", "pop", "popitem", "setdefault", "update"});
  }
  if (is_one_of({"__class__",   "__delattr__", "__dir__",           "__doc__",         "__eq__",
                 "__format__",  "__ge__",      "__getattribute__",  "__getstate__",    "__gt__",
                 "__hash__",    "__init__",    "__init_subclass__", "__le__",          "__lt__",
                 "__ne__",      "__new__",     "__reduce__",        "__reduce_ex__",   "__repr__",
                 "__setattr__", "__sizeof__",  "__str__",           "__subclasshook__"})) {
    return true;
  }
  if (value.is_undefined()) {
    return is_one_of({"__len__", "__iter__", "__call__", "__getitem__", "__add__", "__bool__",
                      "__int__", "__float__", "__neg__", "__pos__", "__module__"});
  }
  const bool container = value.is_string() || value.is_sequence() || value.is(Kind::kDict);
  if (container && is_one_of({"__len__", "__contains__", "__iter__", "__getitem__"})) return true;
  if ((value.is_string() || value.is_sequence()) &&
      is_one_of({"__add__", "__mul__", "__rmul__", "__getnewargs__"})) {
    return !(value.is(Kind::kList) && name == "__getnewargs__");
  }
  if (value.is_string()) return is_one_of({"__mod__", "__rmod__"});
  if (value.is(Kind::kList) || value.is(Kind::kDict)) {
    return is_one_of({"__setitem__", "__delitem__", "__reversed__", "__class_getitem__"});
  }
  if (value.is_number()) {
    return is_one_of({"__add__", "__sub__", "__mul__", "__abs__", "__bool__", "__int__",
                      "__float__", "__neg__", "__pos__", "__pow__", "__mod__", "__round__"});
  }
  if (value.is(Kind::kFunction) || value.is(Kind::kMacro)) {
    return is_one_of({"__call__", "__name__", "__self__", "__globals__", "__code__", "__closure__",
                      "__defaults__", "__module__", "__dict__", "__func__", "__kwdefaults__"});
  }
  return is_one_of({"__dict__", "__module__", "__weakref__", "__call__"}) && !value.is_none() &&
         !value.is(Kind::kRange) && !value.is(Kind::kIterator);
}

// --- Calls ---

absl::StatusOr<std::vector<Value>> Bind(std::string_view function, Args& args,
                                        std::initializer_list<std::string_view> names,
                                        size_t num_required) {
  if (args.positional.size() > names.size()) {
    return TypeError("%s() takes at most %d arguments (%d given)", std::string(function),
                     names.size(), args.positional.size());
  }
  std::vector<Value> bound(names.size());
  std::move(args.positional.begin(), args.positional.end(), bound.begin());
  for (auto& [name, value] : args.named) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) {
      return TypeError("%s() got an unexpected keyword argument '%s'", std::string(function), name);
    }
    Value& slot = bound[it - names.begin()];
    if (!slot.is_missing()) {
      return TypeError("%s() got multiple values for argument '%s'", std::string(function), name);
    }
    slot = std::move(value);
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (bound[i].is_missing()) {
      return TypeError("%s() missing 1 required positional argument: '%s'", std::string(function),
                       std::string(names.begin()[i]));
    }
  }
  return bound;
}

absl::StatusOr<Value> Call(Runtime& runtime, const Value& callee, Args& args) {
  switch (callee.kind()) {
    case Kind::kUndefined:
      return UndefinedErrorOf(callee);
    case Kind::kFunction: {
      const auto& function = callee.as<FunctionObject>();
      return function.call(runtime, function.self, args);
    }
    case Kind::kMacro:
      return CallMacro(runtime, callee, args);
    case Kind::kLoop: {
      ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind("loop", args, {"iterable"}, 1));
      return CallLoop(runtime, callee, bound[0]);
    }
    case Kind::kJoiner: {
      RETURN_IF_ERROR(Bind("joiner", args, {}).status());
      auto& joiner = callee.as<JoinerObject>();
      if (std::exchange(joiner.used, true)) return joiner.separator;
      return Value::String("");
    }
    case Kind::kDictType:
      return MakeDict(runtime, args);
    default:
      return TypeError("'%s' object is not callable", TypeName(callee));
  }
}

}  // namespace penstock::jinja
