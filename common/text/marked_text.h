#pragma once

// Text with a note of which of its bytes came from outside (a chat's messages, tools, documents),
// so that the tokenizer never turns what a user typed into a control token.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

struct MarkedText {
  std::string text;  // UTF-8
  // Half-open byte ranges [begin, end) of text that are user data: ascending, not empty, neither
  // overlapping nor touching. They begin and end at character boundaries when the text is valid.
  std::vector<std::pair<size_t, size_t>> user_ranges;
};

}  // namespace penstock
