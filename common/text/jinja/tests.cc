// Tests: what stands behind `is`.

#include "common/text/jinja/errors.h"
#include "common/text/jinja/filters.h"
#include "common/text/jinja/runtime.h"

namespace penstock::jinja {
namespace {

using Result = absl::StatusOr<bool>;

template <bool (*question)(const Value&)>
Result Ask(Runtime&, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("test", args, {}).status());
  return question(input);
}

bool IsDefined(const Value& v) { return !v.is_undefined(); }
bool IsUndefined(const Value& v) { return v.is_undefined(); }
bool IsNone(const Value& v) { return v.is_none(); }
bool IsBoolean(const Value& v) { return v.is(Kind::kBool); }
bool IsFalse(const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool IsTrueItself(const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
bool IsInteger(const Value& v) { return v.is(Kind::kInt) || v.is(Kind::kBigInt); }
bool IsFloat(const Value& v) { return v.is(Kind::kFloat); }
bool IsNumber(const Value& v) { return v.is_number(); }
bool IsString(const Value& v) { return v.is_string(); }
bool IsMapping(const Value& v) { return v.is(Kind::kDict); }
bool IsIterable(const Value& v) { return Cursor::Open(v).ok(); }
bool IsEscaped(const Value& v) { return v.is_string() && v.text().safe; }

bool IsSequence(const Value& v) {
  return v.is_string() || v.is_sequence() || v.is(Kind::kDict) || v.is(Kind::kRange) ||
         v.is_undefined();
}

bool IsCallable(const Value& v) {
  return v.is(Kind::kFunction) || v.is(Kind::kMacro) || v.is(Kind::kLoop) || v.is(Kind::kJoiner) ||
         v.is(Kind::kDictType) || v.is_undefined();
}

template <bool (*question)(std::string_view)>
Result AskText(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("test", args, {}).status());
  ASSIGN_OR_RETURN(const Text text, ToText(runtime, input));
  return question(text.bytes);
}

template <Operator op>
Result CompareTest(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(args.named.empty() ? absl::OkStatus()
                                     : TypeError("comparison takes no keyword arguments"));
  ASSIGN_OR_RETURN(const auto bound, Bind("comparison", args, {"other"}, 1));
  return Compare(runtime, op, input, bound[0]);
}

Result InTest(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("test_in", args, {"seq"}, 1));
  return Contains(runtime, bound[0], input);
}

Result Remainder(Runtime& runtime, const Value& input, const Value& divisor, int64_t wanted) {
  ASSIGN_OR_RETURN(const Value rest, Arithmetic(runtime, Operator::kMod, input, divisor));
  return Equal(runtime, rest, Value::Int(wanted));
}

template <int64_t wanted>
Result ParityTest(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("test", args, {}).status());
  return Remainder(runtime, input, Value::Int(2), wanted);
}

Result DivisibleByTest(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("test_divisibleby", args, {"num"}, 1));
  return Remainder(runtime, input, bound[0], 0);
}

Result SameAsTest(Runtime&, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("test_sameas", args, {"other"}, 1));
  const Value& other = bound[0];
  if (input.kind() != other.kind()) return false;
  if (input.object() != nullptr) {
    if (input.object() == other.object()) return true;
    // Python keeps one copy of each short string.
    return input.is_string() && CountChars(input.text().bytes) <= 1 &&
           input.text().bytes == other.text().bytes;
  }
  if (input.is(Kind::kFloat)) return input.as_float() == other.as_float();
  return input.is_none() || input.as_int() == other.as_int();
}

template <bool filter>
Result ExistsTest(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("test", args, {}).status());
  RETURN_IF_ERROR(Hash(runtime, input).status());
  if (!input.is_string()) return false;
  const std::string& name = input.text().bytes;
  if (filter) return FindFilter(name) != nullptr || IsUnsupportedFilter(name);
  return FindTest(name) != nullptr;
}

constexpr std::pair<std::string_view, Test> kTests[] = {
    {"odd", ParityTest<1>},
    {"even", ParityTest<0>},
    {"divisibleby", DivisibleByTest},
    {"defined", Ask<IsDefined>},
    {"undefined", Ask<IsUndefined>},
    {"filter", ExistsTest<true>},
    {"test", ExistsTest<false>},
    {"none", Ask<IsNone>},
    {"boolean", Ask<IsBoolean>},
    {"false", Ask<IsFalse>},
    {"true", Ask<IsTrueItself>},
    {"integer", Ask<IsInteger>},
    {"float", Ask<IsFloat>},
    {"lower", AskText<IsLowerText>},
    {"upper", AskText<IsUpperText>},
    {"string", Ask<IsString>},
    {"mapping", Ask<IsMapping>},
    {"number", Ask<IsNumber>},
    {"sequence", Ask<IsSequence>},
    {"iterable", Ask<IsIterable>},
    {"callable", Ask<IsCallable>},
    {"sameas", SameAsTest},
    {"escaped", Ask<IsEscaped>},
    {"in", InTest},
    {"==", CompareTest<Operator::kEq>},
    {"eq", CompareTest<Operator::kEq>},
    {"equalto", CompareTest<Operator::kEq>},
    {"!=", CompareTest<Operator::kNe>},
    {"ne", CompareTest<Operator::kNe>},
    {">", CompareTest<Operator::kGt>},
    {"gt", CompareTest<Operator::kGt>},
    {"greaterthan", CompareTest<Operator::kGt>},
    {"ge", CompareTest<Operator::kGe>},
    {">=", CompareTest<Operator::kGe>},
    {"<", CompareTest<Operator::kLt>},
    {"lt", CompareTest<Operator::kLt>},
    {"lessthan", CompareTest<Operator::kLt>},
    {"<=", CompareTest<Operator::kLe>},
    {"le", CompareTest<Operator::kLe>},
};

}  // namespace

Test FindTest(std::string_view name) {
  for (const auto& [known, test] : kTests) {
    if (known == name) return test;
  }
  return nullptr;
}

}  // namespace penstock::jinja
