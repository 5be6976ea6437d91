#pragma once

// Cuts a template into tokens, as jinja2's lexer does with trim_blocks and lstrip_blocks.

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock::jinja {

enum class TokenType {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kBigInteger,
  kFloat,
  kOperator,
  kEof,
};

struct Token {
  TokenType type = TokenType::kEof;
  std::string text;  // data, name, unescaped string, digits, operator
  int line = 1;
  int column = 1;  // in characters

  bool IsName(std::string_view name) const { return type == TokenType::kName && text == name; }
  bool IsOperator(std::string_view op) const { return type == TokenType::kOperator && text == op; }
  std::string Describe() const;
};

// Ends with a kEof token. InvalidArgument names line and column.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

absl::Status SyntaxErrorAt(int line, int column, const std::string& message);

}  // namespace penstock::jinja
