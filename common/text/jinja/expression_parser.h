#pragma once

// Expressions and assignment targets, by recursive descent in jinja2's order of precedence.

#include <string>
#include <string_view>
#include <vector>

#include "common/text/jinja/token_cursor.h"

namespace penstock::jinja {

class ExpressionParser : public TokenCursor {
 public:
  using TokenCursor::TokenCursor;

 protected:
  // Targets.
  enum class TargetMode { kPlain, kSet, kForLoop };
  static void SetUse(Expr* expr, NameUse use);
  static bool IsConstantName(std::string_view name);
  static bool CanAssign(const Expr& expr);
  absl::StatusOr<ExprPtr> ParseNameTarget();
  absl::StatusOr<ExprPtr> ParseTarget(TargetMode mode);

  // Expressions.
  enum class TupleMode {
    kFull,
    kNoConditional,
    kForIterable,
    kParenthesized,
    kTarget,
    kSetTarget,
    kForTarget
  };
  bool AtTupleEnd(TupleMode mode) const;
  absl::StatusOr<ExprPtr> ParseTupleItem(TupleMode mode);
  absl::StatusOr<ExprPtr> ParseTuple(TupleMode mode);
  absl::StatusOr<ExprPtr> ParseExpression();
  absl::StatusOr<ExprPtr> Binary(ExprKind kind, const Token& token, ExprPtr left, ExprPtr right);
  absl::StatusOr<ExprPtr> ParseOr();
  absl::StatusOr<ExprPtr> ParseAnd();
  absl::StatusOr<ExprPtr> ParseNot();
  bool TakeComparison(Operator* op);
  absl::StatusOr<ExprPtr> ParseCompare();
  // What jinja2 computes when it compiles, as far as it matters here.
  static bool IsConstant(const Expr& expr);
  absl::StatusOr<ExprPtr> Arith(Operator op, const Token& token, ExprPtr left, ExprPtr right);
  absl::StatusOr<ExprPtr> ParseSum();
  absl::StatusOr<ExprPtr> ParseConcat();
  absl::StatusOr<ExprPtr> ParseProduct();
  absl::StatusOr<ExprPtr> ParsePower();
  absl::StatusOr<ExprPtr> ParseUnary(bool with_filter);
  ExprPtr Constant(const Token& token, Value value);
  // Targets nest through here alone: (((a))).
  absl::StatusOr<ExprPtr> ParsePrimary(bool with_namespace);
  absl::StatusOr<ExprPtr> ParseName(bool with_namespace);
  absl::StatusOr<ExprPtr> ParseList();
  absl::StatusOr<ExprPtr> ParseDict();

  // What follows an expression.
  absl::StatusOr<ExprPtr> ParsePostfix(ExprPtr expr);
  absl::StatusOr<ExprPtr> ParseFilterExpression(ExprPtr expr);
  absl::StatusOr<ExprPtr> ParseSubscript(ExprPtr target);
  bool AtKeyEnd() const { return IsOp("]") || IsOp(","); }
  absl::StatusOr<ExprPtr> ParseKey();
  // (arguments) into expr's items, named and more_*.
  absl::Status ParseArguments(Expr* expr);
  absl::StatusOr<ExprPtr> ParseCall(ExprPtr target);
  absl::StatusOr<std::string> ParseDottedName();
  // |filter|filter...; begun: the first stands without its bar.
  absl::StatusOr<ExprPtr> ParseFilters(ExprPtr target, bool begun);
  bool AtTestArgument() const;
  absl::StatusOr<ExprPtr> ParseTest(ExprPtr target);
};

}  // namespace penstock::jinja
