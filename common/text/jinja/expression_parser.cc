#include "common/text/jinja/expression_parser.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace penstock::jinja {

void ExpressionParser::SetUse(Expr* expr, NameUse use) {
  expr->use = use;
  for (const ExprPtr& item : expr->items) {
    if (item) SetUse(item.get(), use);
  }
  if (expr->target) SetUse(expr->target.get(), use);
}

bool ExpressionParser::IsConstantName(std::string_view name) {
  return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
         name == "None";
}

bool ExpressionParser::CanAssign(const Expr& expr) {
  if (expr.kind == ExprKind::kName) return !IsConstantName(expr.name);
  if (expr.kind == ExprKind::kNamespaceRef) return true;
  if (expr.kind != ExprKind::kTuple) return false;
  return std::all_of(expr.items.begin(), expr.items.end(),
                     [](const ExprPtr& item) { return CanAssign(*item); });
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseNameTarget() {
  const Token& token = Now();
  ExprPtr name = NewExpr(ExprKind::kName, token);
  name->use = NameUse::kStore;
  ASSIGN_OR_RETURN(name->name, TakeAnyName());
  if (!CanAssign(*name)) return ErrorAt(token, "can't assign to '" + name->name + "'");
  return name;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseTarget(TargetMode mode) {
  const Token& token = Now();
  const TupleMode tuple_mode = mode == TargetMode::kForLoop ? TupleMode::kForTarget
                               : mode == TargetMode::kSet   ? TupleMode::kSetTarget
                                                            : TupleMode::kTarget;
  ASSIGN_OR_RETURN(ExprPtr target, ParseTuple(tuple_mode));
  SetUse(target.get(), NameUse::kStore);
  if (!CanAssign(*target)) return ErrorAt(token, "can't assign to this expression");
  return target;
}

bool ExpressionParser::AtTupleEnd(TupleMode mode) const {
  if (Is(TokenType::kVariableEnd) || Is(TokenType::kBlockEnd) || IsOp(")")) return true;
  if (mode == TupleMode::kForTarget) return IsName("in");
  return mode == TupleMode::kForIterable && IsName("recursive");
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseTupleItem(TupleMode mode) {
  switch (mode) {
    case TupleMode::kTarget:
    case TupleMode::kForTarget:
      return ParsePrimary(false);
    case TupleMode::kSetTarget:
      return ParsePrimary(true);
    case TupleMode::kNoConditional:
    case TupleMode::kForIterable:
      return ParseOr();
    default:
      return ParseExpression();
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseTuple(TupleMode mode) {
  ExprPtr tuple = NewExpr(ExprKind::kTuple, Now());
  bool is_tuple = false;
  while (true) {
    if (!tuple->items.empty()) RETURN_IF_ERROR(ExpectOp(","));
    if (AtTupleEnd(mode)) break;
    ASSIGN_OR_RETURN(ExprPtr item, ParseTupleItem(mode));
    tuple->items.push_back(std::move(item));
    if (!IsOp(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!tuple->items.empty()) return std::move(tuple->items[0]);
    if (mode != TupleMode::kParenthesized) {
      return Error("Expected an expression, got '" + Now().Describe() + "'");
    }
  }
  return Finish(std::move(tuple));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseExpression() {
  const Token& token = Now();
  ASSIGN_OR_RETURN(ExprPtr expr, ParseOr());
  while (SkipName("if")) {
    ExprPtr conditional = NewExpr(ExprKind::kConditional, token);
    ASSIGN_OR_RETURN(conditional->target, ParseOr());
    conditional->items.push_back(std::move(expr));
    conditional->items.push_back(nullptr);
    if (SkipName("else")) {
      Nesting nesting(this);
      RETURN_IF_ERROR(nesting.Check());
      ASSIGN_OR_RETURN(conditional->items[1], ParseExpression());
    }
    ASSIGN_OR_RETURN(expr, Finish(std::move(conditional)));
  }
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::Binary(ExprKind kind, const Token& token, ExprPtr left,
                                                 ExprPtr right) {
  ExprPtr expr = NewExpr(kind, token);
  expr->items.push_back(std::move(left));
  expr->items.push_back(std::move(right));
  return Finish(std::move(expr));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseOr() {
  ASSIGN_OR_RETURN(ExprPtr left, ParseAnd());
  while (IsName("or")) {
    const Token& token = Take();
    ASSIGN_OR_RETURN(ExprPtr right, ParseAnd());
    ASSIGN_OR_RETURN(left, Binary(ExprKind::kOr, token, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseAnd() {
  ASSIGN_OR_RETURN(ExprPtr left, ParseNot());
  while (IsName("and")) {
    const Token& token = Take();
    ASSIGN_OR_RETURN(ExprPtr right, ParseNot());
    ASSIGN_OR_RETURN(left, Binary(ExprKind::kAnd, token, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  Nesting nesting(this);
  RETURN_IF_ERROR(nesting.Check());
  ExprPtr expr = NewExpr(ExprKind::kNot, Take());
  ASSIGN_OR_RETURN(expr->target, ParseNot());
  return Finish(std::move(expr));
}

bool ExpressionParser::TakeComparison(Operator* op) {
  static constexpr std::pair<std::string_view, Operator> kOps[] = {
      {"==", Operator::kEq}, {"!=", Operator::kNe}, {"<", Operator::kLt},
      {"<=", Operator::kLe}, {">", Operator::kGt},  {">=", Operator::kGe}};
  for (const auto& [text, value] : kOps) {
    if (!SkipOp(text)) continue;
    *op = value;
    return true;
  }
  if (SkipName("in")) {
    *op = Operator::kIn;
    return true;
  }
  if (IsName("not") && After().IsName("in")) {
    Take();
    Take();
    *op = Operator::kNotIn;
    return true;
  }
  return false;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseCompare() {
  const Token& token = Now();
  ASSIGN_OR_RETURN(ExprPtr first, ParseSum());
  Operator op;
  if (!TakeComparison(&op)) return first;
  ExprPtr compare = NewExpr(ExprKind::kCompare, token);
  compare->target = std::move(first);
  do {
    ASSIGN_OR_RETURN(ExprPtr operand, ParseSum());
    compare->ops.push_back(op);
    compare->items.push_back(std::move(operand));
  } while (TakeComparison(&op));
  return Finish(std::move(compare));
}

bool ExpressionParser::IsConstant(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConst:
      return true;
    case ExprKind::kNegative:
    case ExprKind::kPositive:
    case ExprKind::kNot:
      return IsConstant(*expr.target);
    case ExprKind::kArithmetic:
      return IsConstant(*expr.items[0]) && IsConstant(*expr.items[1]);
    default:
      return false;
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::Arith(Operator op, const Token& token, ExprPtr left,
                                                ExprPtr right) {
  const bool minus_of_power = op == Operator::kPow && left->kind == ExprKind::kNegative &&
                              IsConstant(*left) && !IsConstant(*right);
  ASSIGN_OR_RETURN(ExprPtr expr,
                   Binary(ExprKind::kArithmetic, token, std::move(left), std::move(right)));
  expr->ops.push_back(op);
  expr->minus_of_power = minus_of_power;
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseSum() {
  ASSIGN_OR_RETURN(ExprPtr left, ParseConcat());
  while (IsOp("+") || IsOp("-")) {
    const Token& token = Take();
    const Operator op = token.text == "+" ? Operator::kAdd : Operator::kSub;
    ASSIGN_OR_RETURN(ExprPtr right, ParseConcat());
    ASSIGN_OR_RETURN(left, Arith(op, token, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseConcat() {
  const Token& token = Now();
  ASSIGN_OR_RETURN(ExprPtr first, ParseProduct());
  if (!IsOp("~")) return first;
  ExprPtr concat = NewExpr(ExprKind::kConcat, token);
  concat->items.push_back(std::move(first));
  while (SkipOp("~")) {
    ASSIGN_OR_RETURN(ExprPtr item, ParseProduct());
    concat->items.push_back(std::move(item));
  }
  return Finish(std::move(concat));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseProduct() {
  ASSIGN_OR_RETURN(ExprPtr left, ParsePower());
  while (IsOp("*") || IsOp("/") || IsOp("//") || IsOp("%")) {
    const Token& token = Take();
    const Operator op = token.text == "*"    ? Operator::kMul
                        : token.text == "/"  ? Operator::kDiv
                        : token.text == "//" ? Operator::kFloorDiv
                                             : Operator::kMod;
    ASSIGN_OR_RETURN(ExprPtr right, ParsePower());
    ASSIGN_OR_RETURN(left, Arith(op, token, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParsePower() {
  ASSIGN_OR_RETURN(ExprPtr left, ParseUnary(true));
  while (IsOp("**")) {
    const Token& token = Take();
    ASSIGN_OR_RETURN(ExprPtr right, ParseUnary(true));
    ASSIGN_OR_RETURN(left, Arith(Operator::kPow, token, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseUnary(bool with_filter) {
  ExprPtr expr;
  if (IsOp("-") || IsOp("+")) {
    Nesting nesting(this);
    RETURN_IF_ERROR(nesting.Check());
    const Token& token = Take();
    expr = NewExpr(token.text == "-" ? ExprKind::kNegative : ExprKind::kPositive, token);
    ASSIGN_OR_RETURN(expr->target, ParseUnary(false));
    ASSIGN_OR_RETURN(expr, Finish(std::move(expr)));
  } else {
    ASSIGN_OR_RETURN(expr, ParsePrimary(false));
  }
  ASSIGN_OR_RETURN(expr, ParsePostfix(std::move(expr)));
  if (!with_filter) return expr;
  return ParseFilterExpression(std::move(expr));
}

ExprPtr ExpressionParser::Constant(const Token& token, Value value) {
  ExprPtr expr = NewExpr(ExprKind::kConst, token);
  expr->value = std::move(value);
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParsePrimary(bool with_namespace) {
  Nesting nesting(this);
  RETURN_IF_ERROR(nesting.Check());
  const Token& token = Now();
  switch (token.type) {
    case TokenType::kName:
      return ParseName(with_namespace);
    case TokenType::kString: {
      std::string text;
      while (Is(TokenType::kString)) text += Take().text;
      return Constant(token, Value::String(text));
    }
    case TokenType::kInteger:
      return Constant(token, Value::Int(std::strtoll(Take().text.c_str(), nullptr, 10)));
    case TokenType::kBigInteger:
      return NotSupported(token, "integers beyond 64 bits are not supported");
    case TokenType::kFloat:
      return Constant(token, Value::Float(std::strtod(Take().text.c_str(), nullptr)));
    default:
      break;
  }
  if (SkipOp("(")) {
    ASSIGN_OR_RETURN(ExprPtr expr, ParseTuple(TupleMode::kParenthesized));
    RETURN_IF_ERROR(ExpectOp(")"));
    return expr;
  }
  if (IsOp("[")) return ParseList();
  if (IsOp("{")) return ParseDict();
  return Error("unexpected '" + token.Describe() + "'");
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseName(bool with_namespace) {
  const Token& token = Take();
  if (token.text == "true" || token.text == "True") return Constant(token, Value::Bool(true));
  if (token.text == "false" || token.text == "False") return Constant(token, Value::Bool(false));
  if (token.text == "none" || token.text == "None") return Constant(token, Value::None());
  ExprPtr expr = NewExpr(ExprKind::kName, token);
  expr->name = token.text;
  if (with_namespace && SkipOp(".")) {
    expr->kind = ExprKind::kNamespaceRef;
    ASSIGN_OR_RETURN(expr->attribute, TakeAnyName());
  }
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseList() {
  ExprPtr list = NewExpr(ExprKind::kList, Take());
  while (!IsOp("]")) {
    if (!list->items.empty()) RETURN_IF_ERROR(ExpectOp(","));
    if (IsOp("]")) break;
    ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
    list->items.push_back(std::move(item));
  }
  RETURN_IF_ERROR(ExpectOp("]"));
  return Finish(std::move(list));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseDict() {
  ExprPtr dict = NewExpr(ExprKind::kDict, Take());
  while (!IsOp("}")) {
    if (!dict->items.empty()) RETURN_IF_ERROR(ExpectOp(","));
    if (IsOp("}")) break;
    ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
    RETURN_IF_ERROR(ExpectOp(":"));
    ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    dict->items.push_back(std::move(key));
    dict->items.push_back(std::move(value));
  }
  RETURN_IF_ERROR(ExpectOp("}"));
  return Finish(std::move(dict));
}

}  // namespace penstock::jinja
