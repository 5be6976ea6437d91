#pragma once

// One render's state: limits, clock, what must be taken apart at its end. Used by one thread.

#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/jinja/program.h"
#include "common/text/jinja/value.h"

namespace penstock::jinja {

// Variables of one call of a template function (the template itself, a macro, a block, the filter
// of a loop, a recursive loop), and those around it.
struct Activation {
  std::vector<Value> slots;
  std::shared_ptr<Activation> parent;
  bool kept = false;
};

const char* StackPosition();

class Runtime {
 public:
  explicit Runtime(const RenderOptions& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // One step of anything that repeats: checks the number of steps and, now and then, the time.
  absl::Status Tick();
  // Text of this size was made.
  absl::Status Charge(size_t bytes);
  // Refuses text longer than the limit before it is made.
  absl::Status CheckSize(double bytes) const;
  absl::StatusOr<Value> NewString(Text text);

  std::tm Now() const { return options_.clock ? options_.clock() : LocalTime(); }
  size_t max_bytes() const { return options_.limits.max_output_bytes; }

  // Kept until the render ends, then emptied: what may refer to itself.
  void Keep(const std::shared_ptr<Activation>& activation);
  std::shared_ptr<NamespaceObject> NewNamespace();

  // Globals, then render variables, then what the template sets at its top level.
  std::unordered_map<std::string, Value> variables;
  int call_depth = 0;                // macros, recursive loops
  int error_line = 0;                // of the innermost statement that failed; 0 = none yet
  const char* stack_base = nullptr;  // where the render began

  // Guards against recursion that would leave the thread's stack.
  absl::Status CheckStack() const;

 private:
  static std::tm LocalTime();
  const RenderOptions& options_;
  const std::chrono::steady_clock::time_point deadline_;
  int64_t steps_ = 0;
  size_t charged_ = 0;
  std::vector<std::shared_ptr<Activation>> kept_;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
};

// --- Operations (operations.cc) ---

enum class Operator : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn,
};

absl::StatusOr<Value> Arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b);
absl::StatusOr<bool> Compare(Runtime& runtime, Operator op, const Value& a, const Value& b);
absl::StatusOr<Value> Negate(const Value& value, bool minus);
absl::StatusOr<Value> SliceOf(Runtime& runtime, const Value& value, const Value& start,
                              const Value& stop, const Value& step);
// `value.name` and `value[key]` of the sandbox: undefined when there is none.
absl::StatusOr<Value> GetAttribute(Runtime& runtime, const Value& value, std::string_view name);
absl::StatusOr<Value> GetItem(Runtime& runtime, const Value& value, const Value& key);
// An index: an int or bool, else nullopt.
std::optional<int64_t> AsIndex(const Value& value);

// --- Calls ---

absl::StatusOr<Value> Call(Runtime& runtime, const Value& callee, Args& args);
absl::StatusOr<Value> CallMacro(Runtime& runtime, const Value& macro, Args& args);
absl::StatusOr<Value> CallLoop(Runtime& runtime, const Value& loop, const Value& iterable);

using Filter = absl::StatusOr<Value> (*)(Runtime&, const Value& input, Args&);
using Test = absl::StatusOr<bool> (*)(Runtime&, const Value& input, Args&);
// Null when there is none of that name.
Filter FindFilter(std::string_view name);
Test FindTest(std::string_view name);

struct Method {
  const char* name;
  absl::StatusOr<Value> (*call)(Runtime&, const Value& self, Args&);
};
// Methods that Python's type has and the sandbox allows. Null: no such attribute.
const Method* FindMethod(Kind kind, std::string_view name);
// Attributes that exist but must not be used: __class__, append, ...
bool IsForbidden(const Value& value, std::string_view name);

// dict(...) of the arguments.
absl::StatusOr<Value> MakeDict(Runtime& runtime, Args& args);

void AddGlobals(std::unordered_map<std::string, Value>* variables);

// Arguments by position and name, as Python binds them: result[i] is missing when not given.
absl::StatusOr<std::vector<Value>> Bind(std::string_view function, Args& args,
                                        std::initializer_list<std::string_view> names,
                                        size_t num_required = 0);

// `format % arguments` and format.format(...).
absl::StatusOr<Value> FormatPercent(Runtime& runtime, const Text& format, const Value& arguments);
absl::StatusOr<Value> FormatBraces(Runtime& runtime, const Text& format, Args& args);

// Looks up "a.b.0" step by step, as filters' attribute= does.
absl::StatusOr<Value> GetPath(Runtime& runtime, Value value, const Value& path);

// int(text, base); ValueError when it is none.
absl::StatusOr<Value> ParseInt(const std::string& text, int64_t base);
std::optional<double> ParseFloat(const std::string& text);

}  // namespace penstock::jinja
