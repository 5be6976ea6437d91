// Filters of sequences and mappings.

#include <algorithm>

#include "common/text/jinja/errors.h"
#include "common/text/jinja/filters.h"
#include "common/text/jinja/runtime.h"

namespace penstock::jinja {
namespace {

using Result = absl::StatusOr<Value>;
using NextItem = absl::StatusOr<std::optional<Value>>;

Value Iterator(std::shared_ptr<IteratorObject> iterator, const Value& input) {
  iterator->depth = input.depth() + 1;
  return Value::Of(Kind::kIterator, std::move(iterator));
}

// Opens its input when first asked for an item, as generators do.
struct LazyIterator : IteratorObject {
  Value input;
  Cursor cursor;
  bool begun = false;

  NextItem NextInput(Runtime& runtime) {
    if (!begun) {
      begun = true;
      RETURN_IF_ERROR(runtime.CheckStack());
      ASSIGN_OR_RETURN(cursor, Cursor::Open(input));
    }
    if (!cursor.is_open()) return std::nullopt;
    return cursor.Next(runtime);
  }
};

Value LowerIfText(const Value& value) {
  return value.is_string() ? Value::String(Lower(value.text())) : value;
}

Value OrNone(const Value& value) { return value.is_missing() ? Value::None() : value; }

// What sorting and comparing filters look at: an attribute, lower-cased unless case matters.
absl::StatusOr<Value> KeyOf(Runtime& runtime, const Value& item, const Value& attribute,
                            bool case_sensitive) {
  ASSIGN_OR_RETURN(Value key, GetPath(runtime, item, OrNone(attribute)));
  return case_sensitive ? key : LowerIfText(key);
}

// --- Sorting ---

struct Keyed {
  Value key;
  Value item;
};

absl::Status SortByKey(Runtime& runtime, std::vector<Keyed>* items, bool reverse) {
  absl::Status failure;
  std::stable_sort(items->begin(), items->end(), [&](const Keyed& a, const Keyed& b) {
    if (!failure.ok()) return false;
    absl::StatusOr<int> order =
        runtime.Tick().ok() ? Order(runtime, reverse ? b.key : a.key, reverse ? a.key : b.key, "<")
                            : absl::StatusOr<int>(LimitError("sorting takes too long"));
    if (!order.ok()) {
      failure = order.status();
      return false;
    }
    return *order == -1;
  });
  return failure;
}

Value Items(std::vector<Keyed> sorted) {
  std::vector<Value> items;
  for (Keyed& keyed : sorted) items.push_back(std::move(keyed.item));
  return MakeList(std::move(items));
}

Result SortFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind("do_sort", args, {"reverse", "case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(runtime, input));
  std::vector<Value> paths;
  if (bound[2].is_string()) {
    for (Text& path : Split(bound[2].text(), ",", -1, false)) {
      paths.push_back(Value::String(std::move(path)));
    }
  } else {
    paths.push_back(OrNone(bound[2]));
  }
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    std::vector<Value> keys;
    for (const Value& path : paths) {
      ASSIGN_OR_RETURN(Value key, KeyOf(runtime, item, path, IsTrue(bound[1])));
      keys.push_back(std::move(key));
    }
    keyed.push_back({MakeList(std::move(keys)), std::move(item)});
  }
  RETURN_IF_ERROR(SortByKey(runtime, &keyed, IsTrue(bound[0])));
  return Items(std::move(keyed));
}

Result DictSortFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind("do_dictsort", args, {"case_sensitive", "by", "reverse"}));
  const std::string by = bound[1].is_missing()  ? "key"
                         : bound[1].is_string() ? bound[1].text().bytes
                                                : "";
  if (by != "key" && by != "value") {
    return TemplateRuntimeError("You can only sort by either \"key\" or \"value\"");
  }
  if (input.is_undefined()) return UndefinedErrorOf(input);
  if (!input.is(Kind::kDict)) {
    return LookupError("'%s' object has no attribute 'items'", TypeName(input));
  }
  std::vector<Keyed> keyed;
  for (const auto& entry : input.as<DictObject>().entries()) {
    const Value& key = by == "key" ? entry.key : entry.value;
    keyed.push_back(
        {IsTrue(bound[0]) ? key : LowerIfText(key), MakeTuple({entry.key, entry.value})});
  }
  RETURN_IF_ERROR(SortByKey(runtime, &keyed, IsTrue(bound[2])));
  return Items(std::move(keyed));
}

template <bool want_max>
Result ExtremeFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("do_min", args, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const std::vector<Value> items, ToVector(runtime, input));
  if (items.empty()) return MakeUndefined("No aggregated item, sequence was empty.");
  Value best = items[0];
  ASSIGN_OR_RETURN(Value best_key, KeyOf(runtime, best, bound[1], IsTrue(bound[0])));
  for (size_t i = 1; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(Value key, KeyOf(runtime, items[i], bound[1], IsTrue(bound[0])));
    ASSIGN_OR_RETURN(const bool better,
                     Compare(runtime, want_max ? Operator::kGt : Operator::kLt, key, best_key));
    if (!better) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

Result GroupByFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind("do_groupby", args, {"attribute", "default", "case_sensitive"}, 1));
  const bool case_sensitive = IsTrue(bound[2]);
  ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(runtime, input));
  const auto get = [&](const Value& item) -> Result {
    ASSIGN_OR_RETURN(Value key, GetPath(runtime, item, bound[0]));
    if (key.is_undefined() && !OrNone(bound[1]).is_none()) return bound[1];
    return key;
  };
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    ASSIGN_OR_RETURN(Value key, get(item));
    keyed.push_back({case_sensitive ? key : LowerIfText(key), std::move(item)});
  }
  RETURN_IF_ERROR(SortByKey(runtime, &keyed, false));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> members;
    size_t end = begin;
    for (; end < keyed.size(); ++end) {
      ASSIGN_OR_RETURN(const bool same, Equal(runtime, keyed[begin].key, keyed[end].key));
      if (!same) break;
      members.push_back(keyed[end].item);
    }
    if (end == begin) ++end;  // a NaN equals nothing: alone, as Python has it
    if (members.empty()) members.push_back(keyed[begin].item);
    ASSIGN_OR_RETURN(Value shown, get(members[0]));
    Value group = MakeTuple({case_sensitive ? keyed[begin].key : shown, MakeList(members)});
    group.as<SequenceObject>().is_group = true;
    groups.push_back(std::move(group));
    begin = end;
  }
  return MakeList(std::move(groups));
}

struct UniqueIterator : LazyIterator {
  Value attribute;
  bool case_sensitive = false;
  DictObject seen;

  NextItem Next(Runtime& runtime) override {
    while (true) {
      ASSIGN_OR_RETURN(std::optional<Value> item, NextInput(runtime));
      if (!item) return std::nullopt;
      ASSIGN_OR_RETURN(Value key, KeyOf(runtime, *item, attribute, case_sensitive));
      ASSIGN_OR_RETURN(const Value* found, seen.Find(runtime, key));
      if (found != nullptr) continue;
      RETURN_IF_ERROR(seen.Set(runtime, std::move(key), Value::None()));
      return item;
    }
  }
};

Result UniqueFilter(Runtime&, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("do_unique", args, {"case_sensitive", "attribute"}));
  auto iterator = std::make_shared<UniqueIterator>();
  iterator->input = input;
  iterator->case_sensitive = IsTrue(bound[0]);
  iterator->attribute = bound[1];
  return Iterator(std::move(iterator), input);
}

// --- Items ---

Result LengthFilter(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("len", args, {}).status());
  ASSIGN_OR_RETURN(const int64_t length, Length(runtime, input));
  return Value::Int(length);
}

Result FirstFilter(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("do_first", args, {}).status());
  ASSIGN_OR_RETURN(Cursor cursor, Cursor::Open(input));
  ASSIGN_OR_RETURN(std::optional<Value> item, cursor.Next(runtime));
  return item ? *std::move(item) : MakeUndefined("No first item, sequence was empty.");
}

// What reversed() takes.
bool IsReversible(const Value& value) {
  return value.is_sequence() || value.is_string() || value.is_undefined() ||
         value.is(Kind::kDict) || value.is(Kind::kDictView) || value.is(Kind::kRange);
}

Result LastFilter(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("do_last", args, {}).status());
  if (!IsReversible(input)) return TypeError("'%s' object is not reversible", TypeName(input));
  if (input.is_sequence() && !input.items().empty()) return input.items().back();
  ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(runtime, input));
  return items.empty() ? MakeUndefined("No last item, sequence was empty.") : items.back();
}

Result ListFilter(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("do_list", args, {}).status());
  ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(runtime, input));
  RETURN_IF_ERROR(runtime.Charge(items.size() * sizeof(Value)));
  return MakeList(std::move(items));
}

struct ItemsIterator : LazyIterator {
  NextItem Next(Runtime& runtime) override {
    if (!begun && !input.is_undefined()) {
      if (!input.is(Kind::kDict)) return TypeError("Can only get item pairs from a mapping.");
      Args none;
      ASSIGN_OR_RETURN(input, FindMethod(Kind::kDict, "items")->call(runtime, input, none));
    }
    return NextInput(runtime);
  }
};

Result ItemsFilter(Runtime&, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("do_items", args, {}).status());
  auto iterator = std::make_shared<ItemsIterator>();
  iterator->input = input;
  return Iterator(std::move(iterator), input);
}

struct VectorIterator : LazyIterator {
  NextItem Next(Runtime& runtime) override { return NextInput(runtime); }
};

Result ReverseFilter(Runtime& runtime, const Value& input, Args& args) {
  RETURN_IF_ERROR(Bind("do_reverse", args, {}).status());
  if (input.is_string()) {
    return SliceOf(runtime, input, Value::None(), Value::None(), Value::Int(-1));
  }
  auto items = ToVector(runtime, input);
  if (!items.ok()) {
    if (items.status().code() != kTypeError) return items.status();
    return TemplateRuntimeError("argument must be iterable");
  }
  std::reverse(items->begin(), items->end());
  Value list = MakeList(*std::move(items));
  if (!IsReversible(input)) return list;
  auto iterator = std::make_shared<VectorIterator>();
  iterator->input = std::move(list);
  iterator->type_name = input.is(Kind::kList) ? "list_reverseiterator" : "reversed";
  return Iterator(std::move(iterator), input);
}

Result JoinFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("do_join", args, {"d", "attribute"}));
  Text separator;
  if (!bound[0].is_missing()) {
    ASSIGN_OR_RETURN(separator, ToText(runtime, bound[0]));
  }
  ASSIGN_OR_RETURN(Cursor cursor, Cursor::Open(input));
  TextBuilder builder;
  bool first = true;
  while (true) {
    ASSIGN_OR_RETURN(std::optional<Value> item, cursor.Next(runtime));
    if (!item) break;
    ASSIGN_OR_RETURN(const Value value, GetPath(runtime, *std::move(item), OrNone(bound[1])));
    if (!std::exchange(first, false)) builder.Append(separator);
    ASSIGN_OR_RETURN(const Text text, ToText(runtime, value));
    builder.Append(text);
    RETURN_IF_ERROR(runtime.CheckSize(static_cast<double>(builder.size())));
  }
  return runtime.NewString(builder.Finish());
}

Result SumFilter(Runtime& runtime, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("do_sum", args, {"attribute", "start"}));
  Value total = bound[1].is_missing() ? Value::Int(0) : bound[1];
  ASSIGN_OR_RETURN(Cursor cursor, Cursor::Open(input));
  if (total.is_string()) return TypeError("sum() can't sum strings [use ''.join(seq) instead]");
  while (true) {
    ASSIGN_OR_RETURN(std::optional<Value> item, cursor.Next(runtime));
    if (!item) return total;
    ASSIGN_OR_RETURN(const Value value, GetPath(runtime, *std::move(item), OrNone(bound[0])));
    ASSIGN_OR_RETURN(total, Arithmetic(runtime, Operator::kAdd, total, value));
    RETURN_IF_ERROR(CheckDepth(total));
  }
}

// --- Cutting into rows ---

struct BatchIterator : LazyIterator {
  Value line_count, fill;
  std::vector<Value> row;
  bool ended = false;

  NextItem Next(Runtime& runtime) override {
    while (!ended) {
      ASSIGN_OR_RETURN(std::optional<Value> item, NextInput(runtime));
      if (!item) break;
      ASSIGN_OR_RETURN(const bool full,
                       Equal(runtime, Value::Int(static_cast<int64_t>(row.size())), line_count));
      std::vector<Value> done;
      if (full) done = std::exchange(row, {});
      row.push_back(*std::move(item));
      if (full) return MakeList(std::move(done));
    }
    ended = true;
    if (row.empty()) return std::nullopt;
    if (!fill.is_none()) {
      ASSIGN_OR_RETURN(const bool is_short,
                       Compare(runtime, Operator::kLt, Value::Int(static_cast<int64_t>(row.size())),
                               line_count));
      if (is_short) {
        if (!line_count.is_integral()) {
          return TypeError("can't multiply sequence by non-int of type '%s'", TypeName(line_count));
        }
        RETURN_IF_ERROR(
            runtime.CheckSize(static_cast<double>(line_count.as_int()) * sizeof(Value)));
        row.resize(static_cast<size_t>(line_count.as_int()), fill);
      }
    }
    return MakeList(std::exchange(row, {}));
  }
};

Result BatchFilter(Runtime&, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("do_batch", args, {"linecount", "fill_with"}, 1));
  auto iterator = std::make_shared<BatchIterator>();
  iterator->input = input;
  iterator->line_count = bound[0];
  iterator->fill = OrNone(bound[1]);
  return Iterator(std::move(iterator), input);
}

struct SliceIterator : LazyIterator {
  Value slices, fill;
  std::vector<Value> items;
  int64_t next = 0;
  int64_t offset = 0;

  NextItem Next(Runtime& runtime) override {
    if (!begun) {
      begun = true;
      ASSIGN_OR_RETURN(items, ToVector(runtime, input));
      if (!slices.is_integral()) {
        return TypeError("'%s' object cannot be interpreted as an integer", TypeName(slices));
      }
      if (slices.as_int() == 0) return ZeroDivisionError("integer division or modulo by zero");
    }
    const int64_t count = slices.as_int();
    if (next >= count) return std::nullopt;
    RETURN_IF_ERROR(runtime.Tick());
    const auto length = static_cast<int64_t>(items.size());
    const int64_t each = length / count;
    const int64_t with_extra = length % count;
    const int64_t start = offset + next * each;
    if (next < with_extra) ++offset;
    const int64_t end = offset + (next + 1) * each;
    std::vector<Value> part(items.begin() + start, items.begin() + end);
    if (!fill.is_none() && next >= with_extra) part.push_back(fill);
    ++next;
    return MakeList(std::move(part));
  }
};

Result SliceFilter(Runtime&, const Value& input, Args& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind("do_slice", args, {"slices", "fill_with"}, 1));
  auto iterator = std::make_shared<SliceIterator>();
  iterator->input = input;
  iterator->slices = bound[0];
  iterator->fill = OrNone(bound[1]);
  return Iterator(std::move(iterator), input);
}

// --- map, select, reject ---

absl::StatusOr<Value> TakeFirst(Args* args, const char* message) {
  if (args->positional.empty()) return TemplateRuntimeError("%s", message);
  Value first = std::move(args->positional[0]);
  args->positional.erase(args->positional.begin());
  return first;
}

struct MapIterator : LazyIterator {
  Args args;
  bool prepared = false;
  bool by_attribute = false;
  Value attribute, fallback;
  Filter filter = nullptr;

  absl::Status Prepare() {
    prepared = true;
    const auto named = [&](std::string_view name) {
      for (auto it = args.named.begin(); it != args.named.end(); ++it) {
        if (it->first != name) continue;
        Value value = std::move(it->second);
        args.named.erase(it);
        return value;
      }
      return Value();
    };
    if (args.positional.empty()) attribute = named("attribute");
    if (!attribute.is_missing()) {
      by_attribute = true;
      fallback = OrNone(named("default"));
      if (args.named.empty()) return absl::OkStatus();
      return TemplateRuntimeError("Unexpected keyword argument '%s'", args.named[0].first);
    }
    ASSIGN_OR_RETURN(const Value name, TakeFirst(&args, "map requires a filter argument"));
    if (name.is_string()) filter = FindFilter(name.text().bytes);
    if (filter != nullptr) return absl::OkStatus();
    return TemplateRuntimeError("No filter named '%s'.",
                                name.is_string() ? name.text().bytes : TypeName(name));
  }

  absl::StatusOr<Value> LookUp(Runtime& runtime, Value item) {
    if (fallback.is_none()) return GetPath(runtime, std::move(item), attribute);
    std::vector<Value> parts;
    if (attribute.is_string()) {
      for (Text& part : Split(attribute.text(), ".", -1, false)) {
        parts.push_back(Value::String(std::move(part)));
      }
    } else if (!attribute.is_none()) {
      parts.push_back(attribute);
    }
    for (const Value& part : parts) {
      ASSIGN_OR_RETURN(item, GetPath(runtime, item, part));
      if (item.is_undefined()) item = fallback;
    }
    return item;
  }

  NextItem Next(Runtime& runtime) override {
    if (!begun && !IsTrue(input)) return std::nullopt;
    if (!prepared) RETURN_IF_ERROR(Prepare());
    ASSIGN_OR_RETURN(std::optional<Value> item, NextInput(runtime));
    if (!item) return std::nullopt;
    if (by_attribute) {
      ASSIGN_OR_RETURN(Value value, LookUp(runtime, *std::move(item)));
      return value;
    }
    Args copy = args;
    ASSIGN_OR_RETURN(Value value, filter(runtime, *item, copy));
    return value;
  }
};

Result MapFilter(Runtime&, const Value& input, Args& args) {
  auto iterator = std::make_shared<MapIterator>();
  iterator->input = input;
  iterator->args = std::move(args);
  return Iterator(std::move(iterator), input);
}

struct SelectIterator : LazyIterator {
  Args args;
  bool wanted = true;
  bool by_attribute = false;
  bool prepared = false;
  Value attribute;
  Test test = nullptr;  // null: the value's own truth

  absl::Status Prepare() {
    prepared = true;
    if (by_attribute) {
      ASSIGN_OR_RETURN(attribute, TakeFirst(&args, "Missing parameter for attribute name"));
    }
    if (args.positional.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Value name, TakeFirst(&args, ""));
    if (name.is_string()) test = FindTest(name.text().bytes);
    if (test != nullptr) return absl::OkStatus();
    return TemplateRuntimeError("No test named '%s'.",
                                name.is_string() ? name.text().bytes : TypeName(name));
  }

  NextItem Next(Runtime& runtime) override {
    if (!begun && !IsTrue(input)) return std::nullopt;
    if (!prepared) RETURN_IF_ERROR(Prepare());
    while (true) {
      ASSIGN_OR_RETURN(std::optional<Value> item, NextInput(runtime));
      if (!item) return std::nullopt;
      Value value = *item;
      if (by_attribute) {
        ASSIGN_OR_RETURN(value, GetPath(runtime, value, attribute));
      }
      bool holds = IsTrue(value);
      if (test != nullptr) {
        Args copy = args;
        ASSIGN_OR_RETURN(holds, test(runtime, value, copy));
      }
      if (holds == wanted) return item;
    }
  }
};

template <bool wanted, bool by_attribute>
Result SelectFilter(Runtime&, const Value& input, Args& args) {
  auto iterator = std::make_shared<SelectIterator>();
  iterator->input = input;
  iterator->args = std::move(args);
  iterator->wanted = wanted;
  iterator->by_attribute = by_attribute;
  return Iterator(std::move(iterator), input);
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"batch", BatchFilter},
    {"count", LengthFilter},
    {"dictsort", DictSortFilter},
    {"first", FirstFilter},
    {"groupby", GroupByFilter},
    {"items", ItemsFilter},
    {"join", JoinFilter},
    {"last", LastFilter},
    {"length", LengthFilter},
    {"list", ListFilter},
    {"map", MapFilter},
    {"max", ExtremeFilter<true>},
    {"min", ExtremeFilter<false>},
    {"reject", SelectFilter<false, false>},
    {"rejectattr", SelectFilter<false, true>},
    {"reverse", ReverseFilter},
    {"select", SelectFilter<true, false>},
    {"selectattr", SelectFilter<true, true>},
    {"slice", SliceFilter},
    {"sort", SortFilter},
    {"sum", SumFilter},
    {"unique", UniqueFilter},
};

}  // namespace

Filter FindSequenceFilter(std::string_view name) {
  for (const auto& [known, filter] : kFilters) {
    if (known == name) return filter;
  }
  return nullptr;
}

}  // namespace penstock::jinja
