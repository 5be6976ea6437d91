#pragma once

// The small tokenizers of tests/data/tokenizers (tests/tools/make_tokenizer_goldens.py).

#include <cstdlib>
#include <memory>
#include <string>

#include "common/base/check.h"
#include "common/text/load_tokenizer.h"
#include "common/text/tokenizer.h"

namespace penstock {

inline constexpr const char* kGoldenTokenizers[] = {"bert",    "clip",     "gpt2",      "llama2",
                                                    "llama3",  "o200k",    "odd_regex", "smollm",
                                                    "unigram", "wordlevel"};

inline std::string GoldenPath(const std::string& file) {
  const char* folder = std::getenv("PENSTOCK_TEST_DATA");
  return std::string(folder != nullptr ? folder : "tests/data") + "/tokenizers/" + file;
}

inline std::unique_ptr<const Tokenizer> LoadGolden(const std::string& name) {
  auto tokenizer = LoadTokenizer(GoldenPath(name + ".json"));
  CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

}  // namespace penstock
