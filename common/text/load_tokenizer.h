#pragma once

// Reads a tokenizer from a file or a model directory: one entry for every kind of file.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/text/tokenizer.h"

namespace penstock {

// path: a model directory (its tokenizer.json, with the names in tokenizer_config.json and
// special_tokens_map.json), or one file. The kind is told by the file's content, then its name.
absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const std::string& path);

}  // namespace penstock
