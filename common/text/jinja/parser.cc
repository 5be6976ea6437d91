#include "common/text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "common/base/status.h"
#include "common/text/jinja/lexer.h"

namespace penstock::jinja {
namespace {

constexpr int kMaxNesting = 100;  // of statements and expressions, in the parser
constexpr int kMaxHeight = 400;   // of an expression's tree

using EndTags = std::initializer_list<std::string_view>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  absl::StatusOr<Body> Run() { return ParseBody({}); }

 private:
  // --- Tokens ---

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

  // --- Nodes ---

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
    explicit Nesting(Parser* parser) : parser_(*parser) { ++parser_.nesting_; }
    ~Nesting() { --parser_.nesting_; }
    absl::Status Check() const {
      if (parser_.nesting_ <= kMaxNesting) return absl::OkStatus();
      return parser_.Error("nested too deeply");
    }

   private:
    Parser& parser_;
  };

  // --- Statements ---

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

  // --- Targets ---

  enum class TargetMode { kPlain, kSet, kForLoop };

  static void SetUse(Expr* expr, NameUse use) {
    expr->use = use;
    for (const ExprPtr& item : expr->items) {
      if (item) SetUse(item.get(), use);
    }
    if (expr->target) SetUse(expr->target.get(), use);
  }

  static bool IsConstantName(std::string_view name) {
    return name == "true" || name == "false" || name == "none" || name == "True" ||
           name == "False" || name == "None";
  }

  static bool CanAssign(const Expr& expr) {
    if (expr.kind == ExprKind::kName) return !IsConstantName(expr.name);
    if (expr.kind == ExprKind::kNamespaceRef) return true;
    if (expr.kind != ExprKind::kTuple) return false;
    return std::all_of(expr.items.begin(), expr.items.end(),
                       [](const ExprPtr& item) { return CanAssign(*item); });
  }

  absl::StatusOr<ExprPtr> ParseNameTarget() {
    const Token& token = Now();
    ExprPtr name = NewExpr(ExprKind::kName, token);
    name->use = NameUse::kStore;
    ASSIGN_OR_RETURN(name->name, TakeAnyName());
    if (!CanAssign(*name)) return ErrorAt(token, "can't assign to '" + name->name + "'");
    return name;
  }

  absl::StatusOr<ExprPtr> ParseTarget(TargetMode mode) {
    const Token& token = Now();
    const TupleMode tuple_mode = mode == TargetMode::kForLoop ? TupleMode::kForTarget
                                 : mode == TargetMode::kSet   ? TupleMode::kSetTarget
                                                              : TupleMode::kTarget;
    ASSIGN_OR_RETURN(ExprPtr target, ParseTuple(tuple_mode));
    SetUse(target.get(), NameUse::kStore);
    if (!CanAssign(*target)) return ErrorAt(token, "can't assign to this expression");
    return target;
  }

  // --- Expressions ---

  enum class TupleMode {
    kFull,
    kNoConditional,
    kForIterable,
    kParenthesized,
    kTarget,
    kSetTarget,
    kForTarget
  };

  bool AtTupleEnd(TupleMode mode) const {
    if (Is(TokenType::kVariableEnd) || Is(TokenType::kBlockEnd) || IsOp(")")) return true;
    if (mode == TupleMode::kForTarget) return IsName("in");
    return mode == TupleMode::kForIterable && IsName("recursive");
  }

  absl::StatusOr<ExprPtr> ParseTupleItem(TupleMode mode) {
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

  absl::StatusOr<ExprPtr> ParseTuple(TupleMode mode) {
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

  absl::StatusOr<ExprPtr> ParseExpression() {
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

  absl::StatusOr<ExprPtr> Binary(ExprKind kind, const Token& token, ExprPtr left, ExprPtr right) {
    ExprPtr expr = NewExpr(kind, token);
    expr->items.push_back(std::move(left));
    expr->items.push_back(std::move(right));
    return Finish(std::move(expr));
  }

  absl::StatusOr<ExprPtr> ParseOr() {
    ASSIGN_OR_RETURN(ExprPtr left, ParseAnd());
    while (IsName("or")) {
      const Token& token = Take();
      ASSIGN_OR_RETURN(ExprPtr right, ParseAnd());
      ASSIGN_OR_RETURN(left, Binary(ExprKind::kOr, token, std::move(left), std::move(right)));
    }
    return left;
  }

  absl::StatusOr<ExprPtr> ParseAnd() {
    ASSIGN_OR_RETURN(ExprPtr left, ParseNot());
    while (IsName("and")) {
      const Token& token = Take();
      ASSIGN_OR_RETURN(ExprPtr right, ParseNot());
      ASSIGN_OR_RETURN(left, Binary(ExprKind::kAnd, token, std::move(left), std::move(right)));
    }
    return left;
  }

  absl::StatusOr<ExprPtr> ParseNot() {
    if (!IsName("not")) return ParseCompare();
    Nesting nesting(this);
    RETURN_IF_ERROR(nesting.Check());
    ExprPtr expr = NewExpr(ExprKind::kNot, Take());
    ASSIGN_OR_RETURN(expr->target, ParseNot());
    return Finish(std::move(expr));
  }

  bool TakeComparison(Operator* op) {
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

  absl::StatusOr<ExprPtr> ParseCompare() {
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

  // What jinja2 computes when it compiles, as far as it matters here.
  static bool IsConstant(const Expr& expr) {
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

  absl::StatusOr<ExprPtr> Arith(Operator op, const Token& token, ExprPtr left, ExprPtr right) {
    const bool minus_of_power = op == Operator::kPow && left->kind == ExprKind::kNegative &&
                                IsConstant(*left) && !IsConstant(*right);
    ASSIGN_OR_RETURN(ExprPtr expr,
                     Binary(ExprKind::kArithmetic, token, std::move(left), std::move(right)));
    expr->ops.push_back(op);
    expr->minus_of_power = minus_of_power;
    return expr;
  }

  absl::StatusOr<ExprPtr> ParseSum() {
    ASSIGN_OR_RETURN(ExprPtr left, ParseConcat());
    while (IsOp("+") || IsOp("-")) {
      const Token& token = Take();
      const Operator op = token.text == "+" ? Operator::kAdd : Operator::kSub;
      ASSIGN_OR_RETURN(ExprPtr right, ParseConcat());
      ASSIGN_OR_RETURN(left, Arith(op, token, std::move(left), std::move(right)));
    }
    return left;
  }

  absl::StatusOr<ExprPtr> ParseConcat() {
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

  absl::StatusOr<ExprPtr> ParseProduct() {
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

  absl::StatusOr<ExprPtr> ParsePower() {
    ASSIGN_OR_RETURN(ExprPtr left, ParseUnary(true));
    while (IsOp("**")) {
      const Token& token = Take();
      ASSIGN_OR_RETURN(ExprPtr right, ParseUnary(true));
      ASSIGN_OR_RETURN(left, Arith(Operator::kPow, token, std::move(left), std::move(right)));
    }
    return left;
  }

  absl::StatusOr<ExprPtr> ParseUnary(bool with_filter) {
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

  ExprPtr Constant(const Token& token, Value value) {
    ExprPtr expr = NewExpr(ExprKind::kConst, token);
    expr->value = std::move(value);
    return expr;
  }

  // Targets nest through here alone: (((a))).
  absl::StatusOr<ExprPtr> ParsePrimary(bool with_namespace) {
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

  absl::StatusOr<ExprPtr> ParseName(bool with_namespace) {
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

  absl::StatusOr<ExprPtr> ParseList() {
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

  absl::StatusOr<ExprPtr> ParseDict() {
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

  // --- What follows an expression ---

  absl::StatusOr<ExprPtr> ParsePostfix(ExprPtr expr) {
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

  absl::StatusOr<ExprPtr> ParseFilterExpression(ExprPtr expr) {
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

  absl::StatusOr<ExprPtr> ParseSubscript(ExprPtr target) {
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

  bool AtKeyEnd() const { return IsOp("]") || IsOp(","); }

  absl::StatusOr<ExprPtr> ParseKey() {
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

  // (arguments) into expr's items, named and more_*.
  absl::Status ParseArguments(Expr* expr) {
    const Token& token = Now();
    const auto wrong = [&] {
      return ErrorAt(token, "invalid syntax for function call expression");
    };
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

  absl::StatusOr<ExprPtr> ParseCall(ExprPtr target) {
    ExprPtr call = NewExpr(ExprKind::kCall, Now());
    call->target = std::move(target);
    RETURN_IF_ERROR(ParseArguments(call.get()));
    return Finish(std::move(call));
  }

  absl::StatusOr<std::string> ParseDottedName() {
    ASSIGN_OR_RETURN(std::string name, TakeAnyName());
    while (SkipOp(".")) {
      ASSIGN_OR_RETURN(const std::string part, TakeAnyName());
      name += "." + part;
    }
    return name;
  }

  // |filter|filter...; begun: the first stands without its bar.
  absl::StatusOr<ExprPtr> ParseFilters(ExprPtr target, bool begun) {
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

  bool AtTestArgument() const {
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

  absl::StatusOr<ExprPtr> ParseTest(ExprPtr target) {
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

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  std::vector<std::string> open_tags_;
};

}  // namespace

absl::StatusOr<Body> Parse(std::string_view source) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace penstock::jinja
