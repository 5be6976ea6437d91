// What may follow an expression: attributes, subscripts, calls, filters and tests.

#include <utility>

#include "common/text/jinja/expression_parser.h"

namespace penstock::jinja {

absl::StatusOr<ExprPtr> ExpressionParser::ParsePostfix(ExprPtr expr) {
  while (true) {
    if (IsOp(".") || IsOp("[")) {
      ASSIGN_OR_RETURN(expr, ParseSubscript(std::move(expr)));
    } else if (IsOp("(")) {
      ASSIGN_OR_RETURN(expr, ParseCall(std::move(expr)));
    } else {
      return expr;
    }
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseFilterExpression(ExprPtr expr) {
  while (true) {
    if (IsOp("|")) {
      ASSIGN_OR_RETURN(expr, ParseFilters(std::move(expr), false));
    } else if (IsName("is")) {
      ASSIGN_OR_RETURN(expr, ParseTest(std::move(expr)));
    } else if (IsOp("(")) {
      ASSIGN_OR_RETURN(expr, ParseCall(std::move(expr)));
    } else {
      return expr;
    }
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseSubscript(ExprPtr target) {
  const Token& token = Take();
  ExprPtr expr = NewExpr(ExprKind::kGetItem, token);
  expr->target = std::move(target);
  if (token.text == ".") {
    const Token& attribute = Take();
    if (attribute.type == TokenType::kName) {
      expr->kind = ExprKind::kGetAttribute;
      expr->name = attribute.text;
    } else if (attribute.type == TokenType::kInteger) {
      expr->items.push_back(
          Constant(attribute, Value::Int(std::strtoll(attribute.text.c_str(), nullptr, 10))));
    } else {
      return ErrorAt(attribute, "expected name or number");
    }
    return Finish(std::move(expr));
  }
  std::vector<ExprPtr> keys;
  while (!IsOp("]")) {
    if (!keys.empty()) RETURN_IF_ERROR(ExpectOp(","));
    ASSIGN_OR_RETURN(ExprPtr key, ParseKey());
    keys.push_back(std::move(key));
  }
  RETURN_IF_ERROR(ExpectOp("]"));
  if (keys.size() == 1) {
    expr->items.push_back(std::move(keys[0]));
    return Finish(std::move(expr));
  }
  for (const ExprPtr& key : keys) {
    if (key->kind == ExprKind::kSlice) {
      return ErrorAt(token, "a slice cannot be one of several subscripts");
    }
  }
  ExprPtr tuple = NewExpr(ExprKind::kTuple, token);
  tuple->items = std::move(keys);
  ASSIGN_OR_RETURN(tuple, Finish(std::move(tuple)));
  expr->items.push_back(std::move(tuple));
  return Finish(std::move(expr));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseKey() {
  ExprPtr slice = NewExpr(ExprKind::kSlice, Now());
  slice->items.resize(3);
  if (!IsOp(":")) {
    ASSIGN_OR_RETURN(ExprPtr first, ParseExpression());
    if (!IsOp(":")) return first;
    slice->items[0] = std::move(first);
  }
  Take();
  if (!IsOp(":") && !AtKeyEnd()) {
    ASSIGN_OR_RETURN(slice->items[1], ParseExpression());
  }
  if (SkipOp(":") && !AtKeyEnd()) {
    ASSIGN_OR_RETURN(slice->items[2], ParseExpression());
  }
  return Finish(std::move(slice));
}

absl::Status ExpressionParser::ParseArguments(Expr* expr) {
  const Token& token = Now();
  const auto wrong = [&] { return ErrorAt(token, "invalid syntax for function call expression"); };
  RETURN_IF_ERROR(ExpectOp("("));
  bool need_comma = false;
  while (!IsOp(")")) {
    if (need_comma) {
      RETURN_IF_ERROR(ExpectOp(","));
      if (IsOp(")")) break;
    }
    need_comma = true;
    if (IsOp("*")) {
      if (expr->more_positional || expr->more_named) return wrong();
      Take();
      ASSIGN_OR_RETURN(expr->more_positional, ParseExpression());
    } else if (IsOp("**")) {
      if (expr->more_named) return wrong();
      Take();
      ASSIGN_OR_RETURN(expr->more_named, ParseExpression());
    } else if (Is(TokenType::kName) && After().IsOperator("=")) {
      if (expr->more_named) return wrong();
      const Token& name = Take();
      Take();
      for (const auto& [other, value] : expr->named) {
        if (other == name.text) return ErrorAt(name, "keyword argument repeated: " + name.text);
      }
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      expr->named.emplace_back(name.text, std::move(value));
    } else {
      if (expr->more_positional || expr->more_named || !expr->named.empty()) return wrong();
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      expr->items.push_back(std::move(value));
    }
  }
  return ExpectOp(")");
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseCall(ExprPtr target) {
  ExprPtr call = NewExpr(ExprKind::kCall, Now());
  call->target = std::move(target);
  RETURN_IF_ERROR(ParseArguments(call.get()));
  return Finish(std::move(call));
}

absl::StatusOr<std::string> ExpressionParser::ParseDottedName() {
  ASSIGN_OR_RETURN(std::string name, TakeAnyName());
  while (SkipOp(".")) {
    ASSIGN_OR_RETURN(const std::string part, TakeAnyName());
    name += "." + part;
  }
  return name;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseFilters(ExprPtr target, bool begun) {
  while (begun || IsOp("|")) {
    if (!begun) Take();
    begun = false;
    ExprPtr filter = NewExpr(ExprKind::kFilter, Now());
    ASSIGN_OR_RETURN(filter->name, ParseDottedName());
    filter->target = std::move(target);
    if (IsOp("(")) RETURN_IF_ERROR(ParseArguments(filter.get()));
    ASSIGN_OR_RETURN(target, Finish(std::move(filter)));
  }
  return target;
}

bool ExpressionParser::AtTestArgument() const {
  switch (Now().type) {
    case TokenType::kName:
      return !IsName("else") && !IsName("or") && !IsName("and");
    case TokenType::kString:
    case TokenType::kInteger:
    case TokenType::kBigInteger:
    case TokenType::kFloat:
      return true;
    default:
      return IsOp("[") || IsOp("{");
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseTest(ExprPtr target) {
  const Token& token = Take();
  const bool negated = SkipName("not");
  ExprPtr test = NewExpr(ExprKind::kTest, token);
  test->target = std::move(target);
  ASSIGN_OR_RETURN(test->name, ParseDottedName());
  if (IsOp("(")) {
    RETURN_IF_ERROR(ParseArguments(test.get()));
  } else if (AtTestArgument()) {
    if (IsName("is")) return Error("You cannot chain multiple tests with is");
    ASSIGN_OR_RETURN(ExprPtr argument, ParsePrimary(false));
    ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    test->items.push_back(std::move(argument));
  }
  ASSIGN_OR_RETURN(test, Finish(std::move(test)));
  if (!negated) return test;
  ExprPtr inverse = NewExpr(ExprKind::kNot, token);
  inverse->target = std::move(test);
  return Finish(std::move(inverse));
}

}  // namespace penstock::jinja
