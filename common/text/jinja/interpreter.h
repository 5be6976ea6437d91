#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/runtime.h"

namespace penstock::jinja {

// Walks the tree for one call of a template function. Lives on the stack.
class Interpreter {
 public:
  enum class Flow { kNext, kBreak, kContinue };

  Interpreter(Runtime* runtime, std::shared_ptr<Activation> activation, TextBuilder* out)
      : runtime_(*runtime), activation_(std::move(activation)), out_(out) {}

  absl::StatusOr<Flow> Run(const Body& body);
  absl::StatusOr<Value> Eval(const Expr& expr);
  absl::Status Assign(const Expr& target, const Value& value);
  void Enter(const Scope& scope);
  // The body of a loop over iterable, once for each item.
  absl::StatusOr<Flow> RunLoop(const Stmt& stmt, const Value& iterable, int64_t depth0,
                               const std::shared_ptr<Activation>& closure);
  // A macro's parameters and body; args as CallMacro got them.
  absl::Status RunMacro(const Stmt& definition, Args& args);

 private:
  absl::StatusOr<Flow> RunOne(const Stmt& stmt);
  absl::StatusOr<Flow> RunIf(const Stmt& stmt);
  absl::StatusOr<Flow> RunFor(const Stmt& stmt);
  absl::StatusOr<Flow> RunScoped(const Stmt& stmt);
  absl::Status RunOutput(const Stmt& stmt);
  absl::Status RunSet(const Stmt& stmt);
  absl::Status RunCallBlock(const Stmt& stmt);
  absl::Status RunBlock(const Stmt& stmt);
  absl::Status Print(const Value& value);
  absl::Status PrintText(const Value& value);
  absl::Status SetTarget(const Stmt& stmt, const Value& value);

  absl::StatusOr<Value> EvalDict(const Expr& expr);
  absl::StatusOr<Value> EvalConditional(const Expr& expr);
  absl::StatusOr<Value> EvalConcat(const Expr& expr);
  absl::StatusOr<Value> EvalCompare(const Expr& expr);
  absl::StatusOr<Value> EvalGetItem(const Expr& expr);
  absl::StatusOr<Value> EvalFilter(const Expr& expr, const Value* buffer);
  absl::StatusOr<Value> EvalTest(const Expr& expr);
  absl::StatusOr<Value> EvalCall(const Expr& expr, const Value* caller);
  absl::StatusOr<std::vector<Value>> EvalItems(const Expr& expr);
  absl::Status EvalArguments(const Expr& expr, Args* args, const Value* caller = nullptr);
  absl::StatusOr<Value> EvalBuffered(const Stmt& stmt, Flow* flow);

  Value& Slot(const VarRef& ref) {
    Activation* activation = activation_.get();
    for (int i = 0; i < ref.hops; ++i) activation = activation->parent.get();
    return activation->slots[ref.slot];
  }
  absl::StatusOr<Value> MakeMacro(const Stmt& stmt);

  Runtime& runtime_;
  std::shared_ptr<Activation> activation_;
  TextBuilder* out_;
};

}  // namespace penstock::jinja
