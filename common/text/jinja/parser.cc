#include "common/text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "common/text/jinja/expression_parser.h"

namespace penstock::jinja {
namespace {

using EndTags = std::initializer_list<std::string_view>;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  absl::StatusOr<Body> Run() { return ParseBody({}); }

 private:
  bool AtEndTag(EndTags tags) const {
    return Is(TokenType::kName) && std::find(tags.begin(), tags.end(), Now().text) != tags.end();
  }

  absl::Status MissingEnd(EndTags tags) const {
    std::string wanted;
    for (const std::string_view tag : tags) {
      wanted += (wanted.empty() ? "'" : " or '") + std::string(tag) + "'";
    }
    std::string message = "Unexpected end of template. Looking for " + wanted + ".";
    if (!open_tags_.empty()) {
      message += " The innermost block that needs to be closed is '" + open_tags_.back() + "'.";
    }
    return Error(message);
  }

  absl::Status UnknownTag(const Token& token) const {
    std::string message = "Encountered unknown tag '" + token.text + "'.";
    if (!open_tags_.empty()) {
      message += " The innermost block that needs to be closed is '" + open_tags_.back() + "'.";
    }
    return ErrorAt(token, message);
  }

  // Statements up to one of tags, which is left as the current token (or to the end of all).
  absl::StatusOr<Body> ParseBody(EndTags tags) {
    Nesting nesting(this);
    RETURN_IF_ERROR(nesting.Check());
    Body body;
    StmtPtr output;
    const auto flush = [&] {
      if (output) body.push_back(std::move(output));
    };
    const auto add = [&](const Token& token, ExprPtr node) {
      if (!output) output = NewStmt(StmtKind::kOutput, token);
      output->nodes.push_back(std::move(node));
    };
    while (!Is(TokenType::kEof)) {
      const Token& token = Take();
      if (token.type == TokenType::kData) {
        ExprPtr data = NewExpr(ExprKind::kData, token);
        data->value = Value::String(token.text);
        add(token, std::move(data));
      } else if (token.type == TokenType::kVariableBegin) {
        ASSIGN_OR_RETURN(ExprPtr node, ParseTuple(TupleMode::kFull));
        RETURN_IF_ERROR(ExpectType(TokenType::kVariableEnd, "end of print statement"));
        add(token, std::move(node));
      } else {  // a block begins
        flush();
        if (AtEndTag(tags)) return body;
        ASSIGN_OR_RETURN(StmtPtr statement, ParseStatement());
        body.push_back(std::move(statement));
        RETURN_IF_ERROR(ExpectType(TokenType::kBlockEnd, "end of statement block"));
      }
    }
    flush();
    if (tags.size() > 0) return MissingEnd(tags);
    return body;
  }

  // What follows a tag's head: its end, and statements up to one of tags.
  absl::StatusOr<Body> ParseBlock(EndTags tags, bool drop_end) {
    SkipOp(":");
    RETURN_IF_ERROR(ExpectType(TokenType::kBlockEnd, "end of statement block"));
    ASSIGN_OR_RETURN(Body body, ParseBody(tags));
    if (drop_end) Take();
    return body;
  }

  absl::StatusOr<StmtPtr> ParseStatement() {
    const Token& token = Now();
    if (token.type != TokenType::kName) return Error("tag name expected");
    static constexpr std::pair<std::string_view, absl::StatusOr<StmtPtr> (Parser::*)()> kTags[] = {
        {"for", &Parser::ParseFor},
        {"if", &Parser::ParseIf},
        {"set", &Parser::ParseSet},
        {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCallBlock},
        {"filter", &Parser::ParseFilterBlock},
        {"with", &Parser::ParseWith},
        {"print", &Parser::ParsePrint},
        {"block", &Parser::ParseNamedBlock},
        {"generation", &Parser::ParseGeneration},
        {"break", &Parser::ParseLoopControl},
        {"continue", &Parser::ParseLoopControl},
        {"autoescape", &Parser::ParseAutoescape}};
    for (const auto& [name, parse] : kTags) {
      if (token.text != name) continue;
      open_tags_.push_back(token.text);
      auto statement = (this->*parse)();
      open_tags_.pop_back();
      return statement;
    }
    for (const std::string_view name : {"extends", "include", "import", "from"}) {
      if (token.text == name) {
        return NotSupported(token, "the tag '" + token.text +
                                       "' loads another template, which chat templates cannot");
      }
    }
    return UnknownTag(token);
  }

  absl::StatusOr<StmtPtr> ParseFor() {
    StmtPtr stmt = NewStmt(StmtKind::kFor, Take());
    ASSIGN_OR_RETURN(stmt->target, ParseTarget(TargetMode::kForLoop));
    RETURN_IF_ERROR(ExpectName("in"));
    ASSIGN_OR_RETURN(stmt->expr, ParseTuple(TupleMode::kForIterable));
    if (SkipName("if")) {
      ASSIGN_OR_RETURN(stmt->test, ParseExpression());
    }
    stmt->recursive = SkipName("recursive");
    ASSIGN_OR_RETURN(stmt->body, ParseBlock({"endfor", "else"}, false));
    if (Take().text == "else") {
      ASSIGN_OR_RETURN(stmt->otherwise, ParseBlock({"endfor"}, true));
    }
    return stmt;
  }

  absl::StatusOr<StmtPtr> ParseIf() {
    StmtPtr result = NewStmt(StmtKind::kIf, Take());
    Stmt* branch = result.get();
    while (true) {
      ASSIGN_OR_RETURN(branch->expr, ParseTuple(TupleMode::kNoConditional));
      ASSIGN_OR_RETURN(branch->body, ParseBlock({"elif", "else", "endif"}, false));
      const Token& end = Take();
      if (end.text == "elif") {
        result->branches.push_back(NewStmt(StmtKind::kIf, Now()));
        branch = result->branches.back().get();
        continue;
      }
      if (end.text == "else") {
        ASSIGN_OR_RETURN(result->otherwise, ParseBlock({"endif"}, true));
      }
      return result;
    }
  }

  absl::StatusOr<StmtPtr> ParseSet() {
    const Token& token = Take();
    StmtPtr stmt = NewStmt(StmtKind::kSet, token);
    ASSIGN_OR_RETURN(stmt->target, ParseTarget(TargetMode::kSet));
    if (SkipOp("=")) {
      ASSIGN_OR_RETURN(stmt->expr, ParseTuple(TupleMode::kFull));
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    if (IsOp("|")) {
      ASSIGN_OR_RETURN(stmt->expr, ParseFilters(nullptr, false));
    }
    ASSIGN_OR_RETURN(stmt->body, ParseBlock({"endset"}, true));
    return stmt;
  }

  absl::Status ParseSignature(Stmt* stmt) {
    RETURN_IF_ERROR(ExpectOp("("));
    while (!IsOp(")")) {
      if (!stmt->parameters.empty()) RETURN_IF_ERROR(ExpectOp(","));
      const Token& token = Now();
      ASSIGN_OR_RETURN(ExprPtr parameter, ParseNameTarget());
      parameter->use = NameUse::kParameter;
      for (const ExprPtr& other : stmt->parameters) {
        if (other->name == parameter->name) {
          return ErrorAt(token, "duplicate argument '" + parameter->name + "'");
        }
      }
      if (SkipOp("=")) {
        ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
        stmt->defaults.push_back(std::move(value));
      } else if (!stmt->defaults.empty()) {
        return ErrorAt(token, "non-default argument follows default argument");
      }
      stmt->parameters.push_back(std::move(parameter));
    }
    return ExpectOp(")");
  }

  absl::StatusOr<StmtPtr> ParseMacro() {
    StmtPtr stmt = NewStmt(StmtKind::kMacro, Take());
    ASSIGN_OR_RETURN(ExprPtr name, ParseNameTarget());
    stmt->name = name->name;
    RETURN_IF_ERROR(ParseSignature(stmt.get()));
    ASSIGN_OR_RETURN(stmt->body, ParseBlock({"endmacro"}, true));
    return stmt;
  }

  absl::StatusOr<StmtPtr> ParseCallBlock() {
    StmtPtr stmt = NewStmt(StmtKind::kCallBlock, Take());
    if (IsOp("(")) RETURN_IF_ERROR(ParseSignature(stmt.get()));
    ASSIGN_OR_RETURN(stmt->expr, ParseExpression());
    if (stmt->expr->kind != ExprKind::kCall) {
      return SyntaxErrorAt(stmt->line, stmt->column, "expected call");
    }
    ASSIGN_OR_RETURN(stmt->body, ParseBlock({"endcall"}, true));
    return stmt;
  }

  absl::StatusOr<StmtPtr> ParseFilterBlock() {
    StmtPtr stmt = NewStmt(StmtKind::kFilterBlock, Take());
    ASSIGN_OR_RETURN(stmt->expr, ParseFilters(nullptr, true));
    ASSIGN_OR_RETURN(stmt->body, ParseBlock({"endfilter"}, true));
    return stmt;
  }

  absl::StatusOr<StmtPtr> ParseWith() {
    StmtPtr stmt = NewStmt(StmtKind::kWith, Take());
    while (!Is(TokenType::kBlockEnd)) {
      if (!stmt->parameters.empty()) RETURN_IF_ERROR(ExpectOp(","));
      ASSIGN_OR_RETURN(ExprPtr target, ParseTarget(TargetMode::kPlain));
      SetUse(target.get(), NameUse::kParameter);
      stmt->parameters.push_back(std::move(target));
      RETURN_IF_ERROR(ExpectOp("="));
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      stmt->nodes.push_back(std::move(value));
    }
    ASSIGN_OR_RETURN(stmt->body, ParseBlock({"endwith"}, true));
    return stmt;
  }

  absl::StatusOr<StmtPtr> ParsePrint() {
    StmtPtr stmt = NewStmt(StmtKind::kOutput, Take());
    while (!Is(TokenType::kBlockEnd)) {
      if (!stmt->nodes.empty()) RETURN_IF_ERROR(ExpectOp(","));
      ASSIGN_OR_RETURN(ExprPtr node, ParseExpression());
      stmt->nodes.push_back(std::move(node));
    }
    return stmt;
  }

  absl::StatusOr<StmtPtr> ParseNamedBlock() {
    StmtPtr stmt = NewStmt(StmtKind::kBlock, Take());
    ASSIGN_OR_RETURN(stmt->name, TakeAnyName());
    if (IsName("scoped") || IsName("required")) {
      return NotSupported(Now(), "'" + Now().text + "' blocks are not supported");
    }
    ASSIGN_OR_RETURN(stmt->body, ParseBlock({"endblock"}, true));
    SkipName(stmt->name);
    return stmt;
  }

  // {% generation %} only tells a trainer which text the assistant wrote: its body is a scope. In
  // transformers it is a call block, a function of its own, so that no break may leave it.
  absl::StatusOr<StmtPtr> ParseGeneration() {
    const Token& token = Take();
    StmtPtr stmt = NewStmt(StmtKind::kCallBlock, token);
    ASSIGN_OR_RETURN(stmt->body, ParseBlock({"endgeneration"}, true));
    return stmt;
  }

  absl::StatusOr<StmtPtr> ParseLoopControl() {
    const Token& token = Take();
    return NewStmt(token.text == "break" ? StmtKind::kBreak : StmtKind::kContinue, token);
  }

  absl::StatusOr<StmtPtr> ParseAutoescape() {
    const Token& token = Take();
    StmtPtr stmt = NewStmt(StmtKind::kScope, token);
    ASSIGN_OR_RETURN(const ExprPtr value, ParseExpression());
    if (value->kind != ExprKind::kConst || IsTrue(value->value)) {
      return NotSupported(token, "autoescape is not supported, chat templates do without");
    }
    ASSIGN_OR_RETURN(stmt->body, ParseBlock({"endautoescape"}, true));
    return stmt;
  }

  std::vector<std::string> open_tags_;
};

}  // namespace

absl::StatusOr<Body> Parse(std::string_view source) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace penstock::jinja
