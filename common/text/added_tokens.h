#pragma once

// Finds added tokens in a text: of all that begin leftmost, the longest. Immutable.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/text/piece_trie.h"
#include "common/text/tokenizer_spec.h"

namespace penstock {

class AddedTokenMatcher {
 public:
  struct Match {
    size_t begin, end;  // what is taken out of the text, stripped white space included
    int32_t id;
  };
  struct Pattern {
    std::string text;
    AddedToken token;
  };

  // Of equal texts, the first one's token counts. Empty texts match nowhere.
  void Build(std::vector<Pattern> patterns);
  bool empty() const { return trie_.empty(); }

  // Matches whose own text lies in [begin, end); what stands around it (single_word, lstrip,
  // rstrip) is looked up in all of text. Appends to matches, which must end before begin.
  void Find(std::string_view text, size_t begin, size_t end, std::vector<Match>* matches) const;

 private:
  bool Accept(std::string_view text, size_t begin, size_t end, const AddedToken& token,
              std::vector<Match>* matches) const;

  std::vector<Pattern> patterns_;
  PieceTrie trie_;
};

}  // namespace penstock
