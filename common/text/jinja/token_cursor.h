#pragma once

// What the parser's halves share: the place among the tokens, expectations and their errors, new
// nodes of the tree.

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/status.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/errors.h"
#include "common/text/jinja/lexer.h"

namespace penstock::jinja {

class TokenCursor {
 public:
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  static constexpr int kMaxNesting = 100;  // of statements and expressions, in the parser
  static constexpr int kMaxHeight = 400;   // of an expression's tree

  const Token& Now() const { return tokens_[at_]; }
  const Token& After() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& Take() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool Is(TokenType type) const { return Now().type == type; }
  bool IsName(std::string_view name) const { return Now().IsName(name); }
  bool IsOp(std::string_view op) const { return Now().IsOperator(op); }
  bool SkipName(std::string_view name) {
    if (!IsName(name)) return false;
    Take();
    return true;
  }
  bool SkipOp(std::string_view op) {
    if (!IsOp(op)) return false;
    Take();
    return true;
  }
  absl::Status Error(const std::string& message) const { return ErrorAt(Now(), message); }
  static absl::Status ErrorAt(const Token& token, const std::string& message) {
    return SyntaxErrorAt(token.line, token.column, message);
  }
  absl::Status Expected(std::string_view what) const {
    if (Is(TokenType::kEof)) {
      return Error("unexpected end of template, expected '" + std::string(what) + "'");
    }
    return Error("expected token '" + std::string(what) + "', got '" + Now().Describe() + "'");
  }
  absl::Status ExpectOp(std::string_view op) {
    return SkipOp(op) ? absl::OkStatus() : Expected(op);
  }
  absl::Status ExpectName(std::string_view name) {
    return SkipName(name) ? absl::OkStatus() : Expected(name);
  }
  absl::StatusOr<std::string> TakeAnyName() {
    if (!Is(TokenType::kName)) return Expected("name");
    return Take().text;
  }
  absl::Status ExpectType(TokenType type, std::string_view described) {
    if (!Is(type)) return Expected(described);
    Take();
    return absl::OkStatus();
  }
  absl::Status NotSupported(const Token& token, const std::string& what) const {
    return Unimplemented("chat template, line %d, column %d: %s", token.line, token.column, what);
  }

  static ExprPtr NewExpr(ExprKind kind, const Token& token) {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = token.line;
    expr->column = token.column;
    return expr;
  }
  static StmtPtr NewStmt(StmtKind kind, const Token& token) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = token.line;
    stmt->column = token.column;
    return stmt;
  }
  // Sets the height from the children; too tall is refused, as walking the tree recurses.
  static absl::StatusOr<ExprPtr> Finish(ExprPtr expr) {
    int height = expr->target ? expr->target->height : 0;
    const auto consider = [&](const ExprPtr& child) {
      if (child) height = std::max(height, child->height);
    };
    for (const ExprPtr& item : expr->items) consider(item);
    for (const auto& [name, value] : expr->named) consider(value);
    consider(expr->more_positional);
    consider(expr->more_named);
    expr->height = height + 1;
    if (expr->height > kMaxHeight) {
      return SyntaxErrorAt(expr->line, expr->column, "the expression is nested too deeply");
    }
    return expr;
  }

  class Nesting {
   public:
    explicit Nesting(TokenCursor* parser) : parser_(*parser) { ++parser_.nesting_; }
    ~Nesting() { --parser_.nesting_; }
    absl::Status Check() const {
      if (parser_.nesting_ <= kMaxNesting) return absl::OkStatus();
      return parser_.Error("nested too deeply");
    }

   private:
    TokenCursor& parser_;
  };

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace penstock::jinja
