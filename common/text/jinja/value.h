#pragma once

// Values of a running template, with Python's types as templates can see them. Everything but
// namespaces, iterators and loop state is immutable once built, so copies share. Values of one
// render belong to its thread; a program's constants are shared by all threads, read only.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/jinja/text.h"

namespace penstock {
class Json;
}

namespace penstock::jinja {

class Runtime;
class Value;
struct Activation;
struct Stmt;

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

enum class Kind : uint8_t {
  kMissing,  // a variable or optional argument without a value: never seen by templates
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,  // beyond 64 bits: read from JSON, printed as written
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kDictView,
  kIterator,
  kFunction,  // a global or a bound method
  kMacro,
  kNamespace,
  kLoop,
  kCycler,
  kJoiner,
  kDictType,  // the global `dict`
};

struct Object {
  virtual ~Object() = default;
  int depth = 0;  // of nesting; bounded, so that recursion over values is
};

class Value {
 public:
  Value() = default;  // missing
  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Float(double value);
  static Value BigInt(std::string digits);
  static Value String(Text text);
  static Value String(std::string_view plain) { return String(Text(std::string(plain))); }
  static Value Of(Kind kind, std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_missing() const { return kind_ == Kind::kMissing; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  // Python's int, which bool is.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const {
    return is_integral() || kind_ == Kind::kFloat || kind_ == Kind::kBigInt;
  }

  bool as_bool() const { return int_ != 0; }
  int64_t as_int() const { return int_; }  // also of a bool
  double as_float() const { return float_; }
  // Any number but a big one as double.
  double ToDouble() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_); }
  const Text& text() const;                 // kString, kBigInt
  const std::vector<Value>& items() const;  // kList, kTuple
  template <typename T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  const std::shared_ptr<Object>& object() const { return object_; }
  int depth() const { return object_ ? object_->depth : 0; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kMissing;
  union {
    int64_t int_ = 0;
    double float_;
  };
  std::shared_ptr<Object> object_;
};

struct StringObject : Object {
  Text text;
};
struct SequenceObject : Object {
  std::vector<Value> items;
  bool is_group = false;  // groupby's tuple: .grouper and .list
};

class DictObject : public Object {
 public:
  struct Entry {
    Value key;
    Value value;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  const Value* FindString(std::string_view key) const;
  // Null when absent. TypeError for a key that cannot be hashed.
  absl::StatusOr<const Value*> Find(Runtime& runtime, const Value& key) const;
  absl::Status Set(Runtime& runtime, Value key, Value value);
  void SetString(Text key, Value value);
  void Clear();

 private:
  size_t Position(size_t hash, const Value& key) const;  // entries_.size() when absent
  void Append(size_t hash, Value key, Value value);
  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, size_t> index_;  // by hash; only once it has grown
};

struct UndefinedObject : Object {
  std::string hint;   // the whole message, or
  std::string owner;  // "dict object" and the name that it lacks
  Value name;
  bool security = false;
  std::string Message() const;
};

struct RangeObject : Object {
  int64_t start = 0, stop = 0, step = 1;
  int64_t size() const;
};

struct DictViewObject : Object {
  enum class Part { kKeys, kValues, kItems };
  std::shared_ptr<Object> dict;
  Part part = Part::kKeys;
  const DictObject& of() const { return static_cast<const DictObject&>(*dict); }
};

// What Python's generators are: read once, lazily.
struct IteratorObject : Object {
  virtual absl::StatusOr<std::optional<Value>> Next(Runtime& runtime) = 0;
  const char* type_name = "generator";
};

struct FunctionObject : Object {
  std::string name;
  Value self;  // of a method
  absl::StatusOr<Value> (*call)(Runtime&, const Value& self, Args&) = nullptr;
};

struct MacroObject : Object {
  const Stmt* definition = nullptr;
  std::shared_ptr<Activation> closure;
};

struct NamespaceObject : Object {
  DictObject attributes;
};

struct CyclerObject : Object {
  std::vector<Value> items;
  size_t position = 0;
};
struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

// Walks anything iterable.
class Cursor {
 public:
  static absl::StatusOr<Cursor> Open(const Value& value);  // TypeError when not iterable
  absl::StatusOr<std::optional<Value>> Next(Runtime& runtime);
  // Items in all; nullopt for an iterator.
  std::optional<int64_t> length() const;
  bool is_open() const { return !value_.is_missing(); }

 private:
  Value value_;
  size_t position_ = 0;  // item, or byte of a string
};

// State of a `for` loop, visible as `loop`.
struct LoopObject : Object {
  Value iterable;
  Cursor cursor;
  int64_t index0 = -1;
  int64_t depth0 = 0;
  std::optional<int64_t> known_length;
  std::optional<Value> after;  // peeked; a missing value = the end was seen
  Value current, before;
  Value last_changed;
  const Stmt* recursive = nullptr;  // the statement, when it may be called
  std::shared_ptr<Activation> closure;

  absl::StatusOr<bool> Advance(Runtime& runtime);
  absl::StatusOr<bool> PeekIsEnd(Runtime& runtime);
  absl::StatusOr<int64_t> Length(Runtime& runtime);
};

// --- Building ---

Value MakeList(std::vector<Value> items);
Value MakeTuple(std::vector<Value> items);
Value MakeUndefined(std::string hint);
Value MakeUndefinedName(std::string_view name);
Value MakeStringList(std::vector<Text> texts);
// Nested deeper than this is refused (checked by CheckDepth where templates can nest).
inline constexpr int kMaxValueDepth = 250;
absl::Status CheckDepth(const Value& value);

// Strings and keys are marked as the user's when user is true.
Value FromJson(const Json& json, bool user);

// --- Python's protocols ---

bool IsTrue(const Value& value);
absl::StatusOr<bool> Equal(Runtime& runtime, const Value& a, const Value& b);
absl::StatusOr<int> Order(Runtime& runtime, const Value& a, const Value& b, const char* sign);
absl::StatusOr<bool> Contains(Runtime& runtime, const Value& container, const Value& item);
absl::StatusOr<size_t> Hash(Runtime& runtime, const Value& value);
// len(): TypeError when the type has none.
absl::StatusOr<int64_t> Length(Runtime& runtime, const Value& value);
absl::StatusOr<std::vector<Value>> ToVector(Runtime& runtime, const Value& iterable);
std::string TypeName(const Value& value);      // "str", "NoneType", "generator"
std::string DescribeType(const Value& value);  // "dict object", as undefined's messages say
absl::Status UndefinedErrorOf(const Value& undefined);

// str() and repr().
absl::StatusOr<Text> ToText(Runtime& runtime, const Value& value);
absl::StatusOr<Text> Repr(Runtime& runtime, const Value& value);
std::string FloatRepr(double value);
Text StringRepr(const Text& text);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<Text> indent;  // one level
  Text item_separator{", "};
  Text key_separator{": "};
  bool sort_keys = false;
};
absl::StatusOr<Text> ToJson(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace penstock::jinja
