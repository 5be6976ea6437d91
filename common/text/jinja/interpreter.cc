#include "common/text/jinja/interpreter.h"

#include "common/text/jinja/errors.h"

namespace penstock::jinja {

using Flow = Interpreter::Flow;

namespace {

constexpr int kMaxCalls = 195;  // where Python's own recursion limit ends a macro that calls itself

// `for x in y if test`: the items that pass.
struct LoopFilter : IteratorObject {
  const Stmt* stmt = nullptr;
  Cursor cursor;
  std::shared_ptr<Activation> activation;
  bool entered = false;

  absl::StatusOr<std::optional<Value>> Next(Runtime& runtime) override {
    Interpreter interpreter(&runtime, activation, nullptr);
    if (!entered) interpreter.Enter(stmt->test_scope);
    entered = true;
    while (true) {
      ASSIGN_OR_RETURN(std::optional<Value> item, cursor.Next(runtime));
      if (!item) return std::nullopt;
      RETURN_IF_ERROR(interpreter.Assign(*stmt->test_target, *item));
      ASSIGN_OR_RETURN(const Value passed, interpreter.Eval(*stmt->test));
      if (!IsTrue(passed)) continue;
      return Current(*stmt->test_target);
    }
  }

  // The target's value: what was unpacked comes as a tuple.
  Value Current(const Expr& target) const {
    if (target.kind == ExprKind::kName) return activation->slots[target.ref.slot];
    std::vector<Value> items;
    for (const ExprPtr& item : target.items) items.push_back(Current(*item));
    return MakeTuple(std::move(items));
  }
};

std::shared_ptr<Activation> NewActivation(int num_slots, std::shared_ptr<Activation> parent) {
  auto activation = std::make_shared<Activation>();
  activation->slots.resize(num_slots);
  activation->parent = std::move(parent);
  return activation;
}

}  // namespace

// --- Statements ---

void Interpreter::Enter(const Scope& scope) {
  for (const SlotLoad& load : scope) {
    Value value;
    if (load.action == SlotLoad::Action::kResolve) {
      const auto it = runtime_.variables.find(load.name);
      if (it != runtime_.variables.end()) value = it->second;
    } else if (load.action == SlotLoad::Action::kAlias) {
      value = Slot(load.from);
    }
    activation_->slots[load.slot] = std::move(value);
  }
}

absl::StatusOr<Flow> Interpreter::Run(const Body& body) {
  RETURN_IF_ERROR(runtime_.CheckStack());
  for (const StmtPtr& stmt : body) {
    auto flow = RunOne(*stmt);
    if (!flow.ok()) {
      if (runtime_.error_line == 0) runtime_.error_line = stmt->line;
      return flow;
    }
    if (*flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<Flow> Interpreter::RunOne(const Stmt& stmt) {
  switch (stmt.kind) {
    case StmtKind::kOutput:
      RETURN_IF_ERROR(RunOutput(stmt));
      return Flow::kNext;
    case StmtKind::kFor:
      return RunFor(stmt);
    case StmtKind::kIf:
      return RunIf(stmt);
    case StmtKind::kSet:
      RETURN_IF_ERROR(RunSet(stmt));
      return Flow::kNext;
    case StmtKind::kMacro: {
      ASSIGN_OR_RETURN(Value macro, MakeMacro(stmt));
      if (!stmt.exported.empty()) runtime_.variables[stmt.name] = macro;
      Slot(stmt.ref) = std::move(macro);
      return Flow::kNext;
    }
    case StmtKind::kCallBlock:
      RETURN_IF_ERROR(RunCallBlock(stmt));
      return Flow::kNext;
    case StmtKind::kSetBlock:
    case StmtKind::kFilterBlock:
    case StmtKind::kWith:
    case StmtKind::kScope:
      return RunScoped(stmt);
    case StmtKind::kBlock:
      RETURN_IF_ERROR(RunBlock(stmt));
      return Flow::kNext;
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

absl::Status Interpreter::Print(const Value& value) {
  if (value.is_string()) {
    out_->Append(value.text());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Text text, ToText(runtime_, value));
  out_->Append(text);
  return absl::OkStatus();
}

// The result of a filter or call block, which jinja2 does not turn into text.
absl::Status Interpreter::PrintText(const Value& value) {
  if (value.is_string()) return Print(value);
  return TypeError("expected str instance, %s found", TypeName(value));
}

absl::Status Interpreter::RunOutput(const Stmt& stmt) {
  RETURN_IF_ERROR(runtime_.Tick());
  for (const ExprPtr& node : stmt.nodes) {
    if (node->kind == ExprKind::kData) {
      out_->Append(node->value.text().bytes);
      continue;
    }
    auto value = Eval(*node);
    absl::Status status = value.status();
    if (status.ok()) status = Print(*value);
    if (!status.ok()) {
      if (runtime_.error_line == 0) runtime_.error_line = node->line;
      return status;
    }
  }
  return runtime_.CheckSize(static_cast<double>(out_->size()));
}

absl::StatusOr<Flow> Interpreter::RunIf(const Stmt& stmt) {
  ASSIGN_OR_RETURN(const Value condition, Eval(*stmt.expr));
  if (IsTrue(condition)) return Run(stmt.body);
  for (const StmtPtr& branch : stmt.branches) {
    ASSIGN_OR_RETURN(const Value other, Eval(*branch->expr));
    if (IsTrue(other)) return Run(branch->body);
  }
  return Run(stmt.otherwise);
}

absl::Status Interpreter::SetTarget(const Stmt& stmt, const Value& value) {
  RETURN_IF_ERROR(CheckDepth(value));
  RETURN_IF_ERROR(Assign(*stmt.target, value));
  for (const auto& [name, ref] : stmt.exported) runtime_.variables[name] = Slot(ref);
  return absl::OkStatus();
}

absl::Status Interpreter::RunSet(const Stmt& stmt) {
  for (const VarRef& ref : stmt.namespaces) {
    if (!Slot(ref).is(Kind::kNamespace)) {
      return TemplateRuntimeError("cannot assign attribute on non-namespace object");
    }
  }
  ASSIGN_OR_RETURN(const Value value, Eval(*stmt.expr));
  return SetTarget(stmt, value);
}

absl::Status Interpreter::Assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::kName) {
    Slot(target.ref) = value;
    return absl::OkStatus();
  }
  if (target.kind == ExprKind::kNamespaceRef) {
    const Value& space = Slot(target.ref);
    if (!space.is(Kind::kNamespace)) {
      return TemplateRuntimeError("cannot assign attribute on non-namespace object");
    }
    if (target.attribute[0] == '_') {
      return SecurityError(
          "Chat templates cannot store underscore-prefixed attributes on a namespace, but got "
          "'%s'. "
          "Please rename the attribute.",
          target.attribute);
    }
    space.as<NamespaceObject>().attributes.SetString(Text(target.attribute), value);
    return absl::OkStatus();
  }
  auto cursor = Cursor::Open(value);
  if (!cursor.ok()) return TypeError("cannot unpack non-iterable %s object", TypeName(value));
  std::vector<Value> items;
  while (items.size() <= target.items.size()) {
    ASSIGN_OR_RETURN(std::optional<Value> item, cursor->Next(runtime_));
    if (!item) break;
    items.push_back(*std::move(item));
  }
  if (items.size() > target.items.size()) {
    return ValueError("too many values to unpack (expected %d)", target.items.size());
  }
  if (items.size() < target.items.size()) {
    return ValueError("not enough values to unpack (expected %d, got %d)", target.items.size(),
                      items.size());
  }
  for (size_t i = 0; i < items.size(); ++i) {
    RETURN_IF_ERROR(Assign(*target.items[i], items[i]));
  }
  return absl::OkStatus();
}

// The text that a body prints.
absl::StatusOr<Value> Interpreter::EvalBuffered(const Stmt& stmt, Flow* flow) {
  TextBuilder buffer;
  TextBuilder* const outer = std::exchange(out_, &buffer);
  auto result = Run(stmt.body);
  out_ = outer;
  RETURN_IF_ERROR(result.status());
  *flow = *result;
  return runtime_.NewString(buffer.Finish());
}

absl::StatusOr<Flow> Interpreter::RunScoped(const Stmt& stmt) {
  Enter(stmt.scope);
  for (size_t i = 0; i < stmt.nodes.size(); ++i) {  // with
    ASSIGN_OR_RETURN(const Value value, Eval(*stmt.nodes[i]));
    RETURN_IF_ERROR(Assign(*stmt.parameters[i], value));
  }
  if (stmt.kind == StmtKind::kWith || stmt.kind == StmtKind::kScope) return Run(stmt.body);
  Flow flow = Flow::kNext;
  ASSIGN_OR_RETURN(Value text, EvalBuffered(stmt, &flow));
  if (flow != Flow::kNext) return flow;  // what was buffered is lost
  if (stmt.expr) {
    ASSIGN_OR_RETURN(text, EvalFilter(*stmt.expr, &text));
  }
  if (stmt.kind == StmtKind::kSetBlock) {
    RETURN_IF_ERROR(SetTarget(stmt, text));
  } else {
    RETURN_IF_ERROR(PrintText(text));
  }
  return Flow::kNext;
}

absl::Status Interpreter::RunCallBlock(const Stmt& stmt) {
  ASSIGN_OR_RETURN(const Value caller, MakeMacro(stmt));
  if (!stmt.expr) {  // {% generation %}: prints its body
    Args none;
    ASSIGN_OR_RETURN(const Value text, CallMacro(runtime_, caller, none));
    return Print(text);
  }
  ASSIGN_OR_RETURN(const Value result, EvalCall(*stmt.expr, &caller));
  return PrintText(result);
}

absl::Status Interpreter::RunBlock(const Stmt& stmt) {
  Interpreter inner(&runtime_, NewActivation(stmt.num_slots, nullptr), out_);
  inner.Enter(stmt.scope);
  return inner.Run(stmt.body).status();
}

// --- Loops ---

absl::StatusOr<Flow> Interpreter::RunFor(const Stmt& stmt) {
  ASSIGN_OR_RETURN(const Value iterable, Eval(*stmt.expr));
  if (!stmt.recursive) return RunLoop(stmt, iterable, 0, activation_);
  auto loop = std::make_shared<LoopObject>();
  loop->recursive = &stmt;
  loop->closure = activation_;
  ASSIGN_OR_RETURN(const Value text,
                   CallLoop(runtime_, Value::Of(Kind::kLoop, std::move(loop)), iterable));
  RETURN_IF_ERROR(Print(text));
  return Flow::kNext;
}

absl::StatusOr<Flow> Interpreter::RunLoop(const Stmt& stmt, const Value& iterable, int64_t depth0,
                                          const std::shared_ptr<Activation>& closure) {
  Value source = iterable;
  if (stmt.test) {
    auto filter = std::make_shared<LoopFilter>();
    filter->stmt = &stmt;
    ASSIGN_OR_RETURN(filter->cursor, Cursor::Open(iterable));
    filter->activation = NewActivation(stmt.test_slots, closure);
    runtime_.Keep(closure);
    source = Value::Of(Kind::kIterator, std::move(filter));
  }
  auto loop = std::make_shared<LoopObject>();
  loop->iterable = source;
  ASSIGN_OR_RETURN(loop->cursor, Cursor::Open(source));
  const bool uses_loop = stmt.loop_ref.slot >= 0;
  if (uses_loop) {
    loop->depth0 = depth0;
    loop->depth = source.depth() + 1;
    if (stmt.recursive) {
      loop->recursive = &stmt;
      loop->closure = closure;
    }
    Slot(stmt.loop_ref) = Value::Of(Kind::kLoop, loop);
  }
  bool completed = false;  // one turn of the body came to its end
  while (true) {
    Value item;
    if (uses_loop) {
      ASSIGN_OR_RETURN(const bool more, loop->Advance(runtime_));
      if (!more) break;
      item = loop->current;
    } else {
      ASSIGN_OR_RETURN(std::optional<Value> next, loop->cursor.Next(runtime_));
      if (!next) break;
      item = *std::move(next);
    }
    RETURN_IF_ERROR(Assign(*stmt.target, item));
    Enter(stmt.scope);
    ASSIGN_OR_RETURN(const Flow flow, Run(stmt.body));
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNext) completed = true;
  }
  if (completed || stmt.otherwise.empty()) return Flow::kNext;
  Enter(stmt.else_scope);
  return Run(stmt.otherwise);
}

absl::StatusOr<Value> CallLoop(Runtime& runtime, const Value& value, const Value& iterable) {
  const auto& loop = value.as<LoopObject>();
  if (loop.recursive == nullptr) {
    return TypeError("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (runtime.call_depth >= kMaxCalls) return LimitError("recursion is too deep");
  ++runtime.call_depth;
  auto activation = NewActivation(loop.recursive->num_slots, loop.closure);
  runtime.Keep(activation);
  TextBuilder buffer;
  Interpreter interpreter(&runtime, activation, &buffer);
  const int64_t depth0 = loop.cursor.is_open() ? loop.depth0 + 1 : 0;
  const auto flow = interpreter.RunLoop(*loop.recursive, iterable, depth0, loop.closure);
  --runtime.call_depth;
  RETURN_IF_ERROR(flow.status());
  return runtime.NewString(buffer.Finish());
}

// --- Macros ---

absl::StatusOr<Value> Interpreter::MakeMacro(const Stmt& stmt) {
  auto macro = std::make_shared<MacroObject>();
  macro->definition = &stmt;
  macro->closure = activation_;
  runtime_.Keep(activation_);
  RETURN_IF_ERROR(runtime_.Tick());
  return Value::Of(Kind::kMacro, std::move(macro));
}

namespace {

Value TakeNamed(Args& args, std::string_view name) {
  for (auto it = args.named.begin(); it != args.named.end(); ++it) {
    if (it->first != name) continue;
    Value value = std::move(it->second);
    args.named.erase(it);
    return value;
  }
  return Value();
}

}  // namespace

absl::Status Interpreter::RunMacro(const Stmt& macro, Args& args) {
  const size_t num_parameters = macro.parameters.size();
  const auto slot = [&](int index) -> Value& { return activation_->slots[index]; };
  bool found_caller = false;
  if (args.positional.size() >= num_parameters) found_caller = macro.has_caller_parameter;
  for (size_t i = 0; i < num_parameters; ++i) {
    if (i < args.positional.size()) {
      slot(macro.parameter_slots[i]) = args.positional[i];
      continue;
    }
    if (macro.parameters[i]->name == "caller") found_caller = true;
    slot(macro.parameter_slots[i]) = TakeNamed(args, macro.parameters[i]->name);
  }
  const bool accesses_caller =
      macro.caller_slot >= 0;  // a parameter of that name takes it like any other
  if (accesses_caller && !found_caller) {
    Value caller = TakeNamed(args, "caller");
    if (caller.is_missing() || caller.is_none()) caller = MakeUndefined("No caller defined");
    slot(macro.caller_slot) = std::move(caller);
  }
  const std::string name = macro.name.empty() ? "None" : "'" + macro.name + "'";
  if (macro.kwargs_slot >= 0) {
    auto named = std::make_shared<DictObject>();
    for (auto& [key, value] : args.named) named->SetString(Text(key), std::move(value));
    slot(macro.kwargs_slot) = Value::Of(Kind::kDict, std::move(named));
  } else if (!args.named.empty()) {
    return TypeError("macro %s takes no keyword argument '%s'", name, args.named[0].first);
  }
  std::vector<Value> rest;
  if (args.positional.size() > num_parameters) {
    rest.assign(args.positional.begin() + static_cast<int64_t>(num_parameters),
                args.positional.end());
  }
  if (macro.varargs_slot >= 0) {
    slot(macro.varargs_slot) = MakeTuple(std::move(rest));
  } else if (!rest.empty()) {
    return TypeError("macro %s takes not more than %d argument(s)", name, num_parameters);
  }

  Enter(macro.scope);
  const size_t without_default = num_parameters - macro.defaults.size();
  for (size_t i = 0; i < num_parameters; ++i) {
    Value& parameter = slot(macro.parameter_slots[i]);
    if (!parameter.is_missing()) continue;
    if (i < without_default) {
      parameter = MakeUndefined("parameter '" + macro.parameters[i]->name + "' was not provided");
      continue;
    }
    ASSIGN_OR_RETURN(Value value, Eval(*macro.defaults[i - without_default]));
    slot(macro.parameter_slots[i]) = std::move(value);
  }
  return Run(macro.body).status();
}

absl::StatusOr<Value> CallMacro(Runtime& runtime, const Value& value, Args& args) {
  RETURN_IF_ERROR(runtime.Tick());
  if (runtime.call_depth >= kMaxCalls) return LimitError("recursion is too deep");
  const auto& macro = value.as<MacroObject>();
  ++runtime.call_depth;
  TextBuilder buffer;
  Interpreter interpreter(&runtime, NewActivation(macro.definition->num_slots, macro.closure),
                          &buffer);
  const absl::Status status = interpreter.RunMacro(*macro.definition, args);
  --runtime.call_depth;
  RETURN_IF_ERROR(status);
  return runtime.NewString(buffer.Finish());
}

// --- Expressions ---

absl::StatusOr<Value> Interpreter::Eval(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kData:
    case ExprKind::kConst:
      return expr.value;
    case ExprKind::kName:
    case ExprKind::kNamespaceRef: {
      const Value& value = Slot(expr.ref);
      if (value.is_missing()) return MakeUndefinedName(expr.name);
      return value;
    }
    case ExprKind::kTuple: {
      ASSIGN_OR_RETURN(std::vector<Value> items, EvalItems(expr));
      return MakeTuple(std::move(items));
    }
    case ExprKind::kList: {
      ASSIGN_OR_RETURN(std::vector<Value> items, EvalItems(expr));
      return MakeList(std::move(items));
    }
    case ExprKind::kDict:
      return EvalDict(expr);
    case ExprKind::kConditional:
      return EvalConditional(expr);
    case ExprKind::kFilter:
      return EvalFilter(expr, nullptr);
    case ExprKind::kTest:
      return EvalTest(expr);
    case ExprKind::kCall:
      return EvalCall(expr, nullptr);
    case ExprKind::kGetItem:
      return EvalGetItem(expr);
    case ExprKind::kGetAttribute: {
      ASSIGN_OR_RETURN(const Value target, Eval(*expr.target));
      return GetAttribute(runtime_, target, expr.name);
    }
    case ExprKind::kSlice:
      return TypeError("a slice stands only in brackets");
    case ExprKind::kConcat:
      return EvalConcat(expr);
    case ExprKind::kCompare:
      return EvalCompare(expr);
    case ExprKind::kArithmetic: {
      ASSIGN_OR_RETURN(const Value left, Eval(*expr.items[0]));
      ASSIGN_OR_RETURN(const Value right, Eval(*expr.items[1]));
      if (expr.minus_of_power && left.is_number()) {
        ASSIGN_OR_RETURN(const Value base, Negate(left, true));
        ASSIGN_OR_RETURN(const Value power, Arithmetic(runtime_, expr.ops[0], base, right));
        return Negate(power, true);
      }
      return Arithmetic(runtime_, expr.ops[0], left, right);
    }
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      ASSIGN_OR_RETURN(Value left, Eval(*expr.items[0]));
      if (IsTrue(left) == (expr.kind == ExprKind::kOr)) return left;
      return Eval(*expr.items[1]);
    }
    case ExprKind::kNot: {
      ASSIGN_OR_RETURN(const Value value, Eval(*expr.target));
      return Value::Bool(!IsTrue(value));
    }
    case ExprKind::kNegative:
    case ExprKind::kPositive: {
      ASSIGN_OR_RETURN(const Value value, Eval(*expr.target));
      return Negate(value, expr.kind == ExprKind::kNegative);
    }
  }
  return TypeError("an expression cannot be evaluated");
}

absl::StatusOr<std::vector<Value>> Interpreter::EvalItems(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) {
    ASSIGN_OR_RETURN(Value value, Eval(*item));
    items.push_back(std::move(value));
  }
  return items;
}

absl::StatusOr<Value> Interpreter::EvalDict(const Expr& expr) {
  auto dict = std::make_shared<DictObject>();
  for (size_t i = 0; i < expr.items.size(); i += 2) {
    ASSIGN_OR_RETURN(Value key, Eval(*expr.items[i]));
    ASSIGN_OR_RETURN(Value value, Eval(*expr.items[i + 1]));
    RETURN_IF_ERROR(dict->Set(runtime_, std::move(key), std::move(value)));
  }
  return Value::Of(Kind::kDict, std::move(dict));
}

absl::StatusOr<Value> Interpreter::EvalConditional(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value condition, Eval(*expr.target));
  if (IsTrue(condition)) return Eval(*expr.items[0]);
  if (expr.items[1]) return Eval(*expr.items[1]);
  return MakeUndefined(
      absl::StrFormat("the inline if-expression on line %d evaluated to false and no else section "
                      "was defined.",
                      expr.line));
}

absl::StatusOr<Value> Interpreter::EvalConcat(const Expr& expr) {
  TextBuilder builder;
  for (const ExprPtr& item : expr.items) {
    ASSIGN_OR_RETURN(const Value value, Eval(*item));
    if (value.is_string()) {
      builder.Append(value.text());
    } else {
      ASSIGN_OR_RETURN(const Text text, ToText(runtime_, value));
      builder.Append(text);
    }
  }
  return runtime_.NewString(builder.Finish());
}

absl::StatusOr<Value> Interpreter::EvalCompare(const Expr& expr) {
  ASSIGN_OR_RETURN(Value left, Eval(*expr.target));
  for (size_t i = 0; i < expr.items.size(); ++i) {
    ASSIGN_OR_RETURN(Value right, Eval(*expr.items[i]));
    ASSIGN_OR_RETURN(const bool holds, Compare(runtime_, expr.ops[i], left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

absl::StatusOr<Value> Interpreter::EvalGetItem(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value target, Eval(*expr.target));
  const Expr& key = *expr.items[0];
  if (key.kind != ExprKind::kSlice) {
    ASSIGN_OR_RETURN(const Value index, Eval(key));
    return GetItem(runtime_, target, index);
  }
  Value parts[3] = {Value::None(), Value::None(), Value::None()};
  for (int i = 0; i < 3; ++i) {
    if (!key.items[i]) continue;
    ASSIGN_OR_RETURN(parts[i], Eval(*key.items[i]));
  }
  return SliceOf(runtime_, target, parts[0], parts[1], parts[2]);
}

absl::Status Interpreter::EvalArguments(const Expr& expr, Args* args, const Value* caller) {
  ASSIGN_OR_RETURN(args->positional, EvalItems(expr));
  for (const auto& [name, value_expr] : expr.named) {
    ASSIGN_OR_RETURN(Value value, Eval(*value_expr));
    args->named.emplace_back(name, std::move(value));
  }
  if (caller != nullptr) args->named.emplace_back("caller", *caller);
  if (expr.more_positional) {
    ASSIGN_OR_RETURN(const Value more, Eval(*expr.more_positional));
    ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(runtime_, more));
    for (Value& item : items) args->positional.push_back(std::move(item));
  }
  if (!expr.more_named) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Value more, Eval(*expr.more_named));
  if (!more.is(Kind::kDict)) {
    return TypeError("argument after ** must be a mapping, not %s", TypeName(more));
  }
  for (const auto& entry : more.as<DictObject>().entries()) {
    if (!entry.key.is_string()) return TypeError("keywords must be strings");
    const std::string& name = entry.key.text().bytes;
    for (const auto& [other, value] : args->named) {
      if (other == name) return TypeError("got multiple values for keyword argument '%s'", name);
    }
    args->named.emplace_back(name, entry.value);
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::EvalFilter(const Expr& expr, const Value* buffer) {
  Value input;
  if (!expr.target) {
    input = *buffer;
  } else if (expr.target->kind == ExprKind::kFilter && buffer != nullptr) {
    ASSIGN_OR_RETURN(input, EvalFilter(*expr.target, buffer));
  } else {
    ASSIGN_OR_RETURN(input, Eval(*expr.target));
  }
  Args args;
  RETURN_IF_ERROR(EvalArguments(expr, &args));
  if (expr.filter == nullptr) return TemplateRuntimeError("No filter named '%s' found.", expr.name);
  return expr.filter(runtime_, input, args);
}

absl::StatusOr<Value> Interpreter::EvalTest(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value input, Eval(*expr.target));
  Args args;
  RETURN_IF_ERROR(EvalArguments(expr, &args));
  if (expr.test == nullptr) return TemplateRuntimeError("No test named '%s' found.", expr.name);
  ASSIGN_OR_RETURN(const bool holds, expr.test(runtime_, input, args));
  return Value::Bool(holds);
}

absl::StatusOr<Value> Interpreter::EvalCall(const Expr& expr, const Value* caller) {
  Value callee;
  Value self;
  const Method* method = nullptr;
  if (expr.target->kind == ExprKind::kGetAttribute) {  // without making a bound method
    ASSIGN_OR_RETURN(self, Eval(*expr.target->target));
    method = FindMethod(self.kind(), expr.target->name);
    if (method == nullptr) {
      ASSIGN_OR_RETURN(callee, GetAttribute(runtime_, self, expr.target->name));
    }
  } else {
    ASSIGN_OR_RETURN(callee, Eval(*expr.target));
  }
  Args args;
  RETURN_IF_ERROR(EvalArguments(expr, &args, caller));
  if (method != nullptr) return method->call(runtime_, self, args);
  return Call(runtime_, callee, args);
}

}  // namespace penstock::jinja
