// The functions that every template finds.

#include <ctime>

#include "common/text/jinja/errors.h"
#include "common/text/jinja/runtime.h"

namespace penstock::jinja {
namespace {

using Result = absl::StatusOr<Value>;

constexpr int64_t kMaxRange = 100000;  // the sandbox's

Result Range(Runtime&, const Value&, Args& args) {
  if (!args.named.empty()) return TypeError("range() takes no keyword arguments");
  const size_t count = args.positional.size();
  if (count < 1 || count > 3) {
    return TypeError("range expected 1 to 3 arguments, got %d", count);
  }
  for (const Value& value : args.positional) {
    if (!value.is_integral()) {
      return TypeError("'%s' object cannot be interpreted as an integer", TypeName(value));
    }
  }
  auto range = std::make_shared<RangeObject>();
  range->start = count == 1 ? 0 : args.positional[0].as_int();
  range->stop = args.positional[count == 1 ? 0 : 1].as_int();
  range->step = count == 3 ? args.positional[2].as_int() : 1;
  if (range->step == 0) return ValueError("range() arg 3 must not be zero");
  const double span = static_cast<double>(range->stop) - static_cast<double>(range->start);
  if (span / static_cast<double>(range->step) > 1e15 || range->size() > kMaxRange) {
    return OverflowError("Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                         kMaxRange);
  }
  return Value::Of(Kind::kRange, std::move(range));
}

Result RaiseException(Runtime& runtime, const Value&, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("raise_exception", args, {"message"}, 1));
  ASSIGN_OR_RETURN(const Text text, ToText(runtime, bound[0]));
  return RaisedError("%s", text.bytes);
}

// Directives that mean nothing without a time zone or below the second.
std::string PrepareTimeFormat(const std::string& format) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      out += format[i];
      continue;
    }
    const char directive = format[++i];
    if (directive == 'f') {
      out += "000000";
    } else if (directive != 'z' && directive != 'Z') {
      out += '%';
      out += directive;
    }
  }
  return out;
}

Result StrftimeNow(Runtime& runtime, const Value&, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("strftime_now", args, {"format"}, 1));
  if (!bound[0].is_string()) {
    return TypeError("strftime() argument 1 must be str, not %s", TypeName(bound[0]));
  }
  const std::string format = PrepareTimeFormat(bound[0].text().bytes);
  if (format.empty()) return Value::String("");
  std::tm now = runtime.Now();
  now.tm_isdst = -1;
  std::string out(format.size() * 64 + 256, '\0');
  RETURN_IF_ERROR(runtime.CheckSize(static_cast<double>(out.size())));
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &now));
  return runtime.NewString(WithMarksOf(std::move(out), bound[0].text()));
}

Result Namespace(Runtime& runtime, const Value&, Args& args) {
  ASSIGN_OR_RETURN(const Value attributes, MakeDict(runtime, args));
  auto space = runtime.NewNamespace();
  for (const auto& entry : attributes.as<DictObject>().entries()) {
    if (entry.key.is_string() && entry.key.text().bytes.substr(0, 1) == "_") {
      return SecurityError(
          "Chat templates cannot store underscore-prefixed attributes on a namespace, but got "
          "'%s'. Please rename the attribute.",
          entry.key.text().bytes);
    }
    RETURN_IF_ERROR(space->attributes.Set(runtime, entry.key, entry.value));
  }
  return Value::Of(Kind::kNamespace, std::move(space));
}

Result Joiner(Runtime&, const Value&, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("joiner", args, {"sep"}));
  auto joiner = std::make_shared<JoinerObject>();
  joiner->separator = bound[0].is_missing() ? Value::String(", ") : bound[0];
  return Value::Of(Kind::kJoiner, std::move(joiner));
}

Result Cycler(Runtime&, const Value&, Args& args) {
  if (!args.named.empty()) return TypeError("cycler() takes no keyword arguments");
  if (args.positional.empty()) {
    return TemplateRuntimeError("at least one item has to be provided");
  }
  auto cycler = std::make_shared<CyclerObject>();
  cycler->items = std::move(args.positional);
  for (const Value& item : cycler->items) cycler->depth = std::max(cycler->depth, item.depth() + 1);
  return Value::Of(Kind::kCycler, std::move(cycler));
}

Result Lipsum(Runtime&, const Value&, Args&) { return NotSupported("the function lipsum()"); }

}  // namespace

absl::StatusOr<Value> MakeDict(Runtime& runtime, Args& args) {
  if (args.positional.size() > 1) {
    return TypeError("dict expected at most 1 argument, got %d", args.positional.size());
  }
  auto dict = std::make_shared<DictObject>();
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.is(Kind::kDict)) {
      for (const auto& entry : source.as<DictObject>().entries()) {
        RETURN_IF_ERROR(dict->Set(runtime, entry.key, entry.value));
      }
    } else {
      if (source.is_undefined()) return UndefinedErrorOf(source);  // asked for its keys
      ASSIGN_OR_RETURN(const std::vector<Value> pairs, ToVector(runtime, source));
      for (size_t i = 0; i < pairs.size(); ++i) {
        auto parts = ToVector(runtime, pairs[i]);
        if (!parts.ok()) {
          if (parts.status().code() != kTypeError) return parts.status();
          return TypeError("cannot convert dictionary update sequence element #%d to a sequence",
                           i);
        }
        if (parts->size() != 2) {
          return ValueError("dictionary update sequence element #%d has length %d; 2 is required",
                            i, parts->size());
        }
        RETURN_IF_ERROR(dict->Set(runtime, (*parts)[0], (*parts)[1]));
      }
    }
  }
  for (auto& [name, value] : args.named) dict->SetString(Text(name), std::move(value));
  return Value::Of(Kind::kDict, std::move(dict));
}

void AddGlobals(std::unordered_map<std::string, Value>* variables) {
  const auto add = [&](const char* name, auto call) {
    auto function = std::make_shared<FunctionObject>();
    function->name = name;
    function->call = call;
    (*variables)[name] = Value::Of(Kind::kFunction, std::move(function));
  };
  add("range", Range);
  add("raise_exception", RaiseException);
  add("strftime_now", StrftimeNow);
  add("namespace", Namespace);
  add("joiner", Joiner);
  add("cycler", Cycler);
  add("lipsum", Lipsum);
  (*variables)["dict"] = Value::Of(Kind::kDictType, std::make_shared<Object>());
}

}  // namespace penstock::jinja
