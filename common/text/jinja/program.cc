#include "common/text/jinja/program.h"

#include "common/text/jinja/errors.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/parser.h"
#include "common/text/jinja/scope.h"

namespace penstock::jinja {

struct Program::Code {
  Body body;
  Scope scope;
  int num_slots = 0;
};

Program::Program() : code_(std::make_unique<Code>()) {}
Program::~Program() = default;

namespace {

void CollectLiterals(const Expr* expr, std::vector<std::string>* out) {
  if (expr == nullptr) return;
  if (expr->value.is_string()) out->push_back(expr->value.text().bytes);
  CollectLiterals(expr->target.get(), out);
  for (const ExprPtr& item : expr->items) CollectLiterals(item.get(), out);
  for (const auto& [name, value] : expr->named) CollectLiterals(value.get(), out);
  CollectLiterals(expr->more_positional.get(), out);
  CollectLiterals(expr->more_named.get(), out);
}

void CollectLiterals(const Body& body, std::vector<std::string>* out) {
  for (const StmtPtr& stmt : body) {
    for (const ExprPtr& node : stmt->nodes) CollectLiterals(node.get(), out);
    CollectLiterals(stmt->expr.get(), out);
    CollectLiterals(stmt->test.get(), out);
    for (const ExprPtr& value : stmt->defaults) CollectLiterals(value.get(), out);
    CollectLiterals(stmt->body, out);
    CollectLiterals(stmt->branches, out);
    CollectLiterals(stmt->otherwise, out);
  }
}

// What callers see: raise_exception's text alone, else where and what.
absl::Status PublicError(const absl::Status& status, int line) {
  const std::string message(status.message());
  if (status.code() == kRaisedError) return absl::InvalidArgumentError(message);
  const std::string text =
      absl::StrFormat("chat template, line %d: %s: %s", line, ErrorName(status.code()), message);
  if (status.code() == kLimitError) return absl::ResourceExhaustedError(text);
  if (status.code() == kNotSupported) return absl::UnimplementedError(text);
  return absl::InvalidArgumentError(text);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Program>> Program::Compile(std::string source) {
  const std::shared_ptr<Program> program(new Program());
  ASSIGN_OR_RETURN(program->code_->body, Parse(source));
  RETURN_IF_ERROR(
      Resolve(&program->code_->body, &program->code_->scope, &program->code_->num_slots));
  CollectLiterals(program->code_->body, &program->literals_);
  program->source_ = std::move(source);
  return std::shared_ptr<const Program>(program);
}

absl::StatusOr<MarkedText> Program::Render(const Variables& variables,
                                           const RenderOptions& options) const {
  Runtime runtime(options);
  runtime.stack_base = StackPosition();
  AddGlobals(&runtime.variables);
  for (const auto& [name, value] : variables) runtime.variables[name] = value;
  auto activation = std::make_shared<Activation>();
  activation->slots.resize(code_->num_slots);
  runtime.Keep(activation);
  TextBuilder out;
  Interpreter interpreter(&runtime, activation, &out);
  interpreter.Enter(code_->scope);
  const auto flow = interpreter.Run(code_->body);
  if (!flow.ok()) return PublicError(flow.status(), runtime.error_line);
  Text text = out.Finish();
  return MarkedText{std::move(text.bytes), std::move(text.marks)};
}

}  // namespace penstock::jinja
