#include "common/text/added_tokens.h"

#include <algorithm>

#include "common/text/unicode/unicode.h"
#include "common/text/utf8.h"

namespace penstock {
namespace {

bool IsWordBefore(std::string_view text, size_t pos) {
  return pos > 0 && unicode::Is(PreviousChar(text, &pos), unicode::kRustWord);
}
bool IsWordAt(std::string_view text, size_t pos) {
  return pos < text.size() && unicode::Is(NextChar(text, &pos), unicode::kRustWord);
}

}  // namespace

void AddedTokenMatcher::Build(std::vector<Pattern> patterns) {
  patterns_ = std::move(patterns);
  std::vector<std::pair<std::string_view, int32_t>> pieces;
  for (size_t i = patterns_.size(); i-- > 0;) {  // the trie keeps the last of equal pieces
    if (!patterns_[i].text.empty()) {
      pieces.emplace_back(patterns_[i].text, static_cast<int32_t>(i));
    }
  }
  trie_ = PieceTrie();
  if (!pieces.empty()) trie_.Build(std::move(pieces));
}

void AddedTokenMatcher::Find(std::string_view text, size_t begin, size_t end,
                             std::vector<Match>* matches) const {
  if (trie_.empty()) return;
  const std::string_view window = text.substr(0, end);
  for (size_t pos = begin; pos < end;) {
    if (!trie_.StartsWith(static_cast<uint8_t>(text[pos]))) {
      ++pos;
      continue;
    }
    size_t length = 0;
    int32_t pattern = -1;
    trie_.Prefixes(window, pos, [&](size_t n, int32_t value) {
      length = n;
      pattern = value;
    });
    if (pattern < 0) {
      ++pos;
      continue;
    }
    // A match that is then refused has used up its text all the same, as in the reference; what
    // rstrip swallowed has not: the search goes on right behind the token's own text.
    Accept(text, pos, pos + length, patterns_[pattern].token, matches);
    pos += length;
  }
}

bool AddedTokenMatcher::Accept(std::string_view text, size_t begin, size_t end,
                               const AddedToken& token, std::vector<Match>* matches) const {
  if (token.single_word && (IsWordBefore(text, begin) || IsWordAt(text, end))) return false;
  const size_t taken = matches->empty() ? 0 : matches->back().end;
  while (token.lstrip && begin > taken) {
    size_t before = begin;
    if (!unicode::Is(PreviousChar(text, &before), unicode::kSpace)) break;
    begin = before;
  }
  if (token.lstrip) begin = std::max(begin, taken);
  while (token.rstrip && end < text.size()) {
    size_t next = end;
    if (!unicode::Is(NextChar(text, &next), unicode::kSpace)) break;
    end = next;
  }
  matches->push_back({begin, end, token.id});
  return true;
}

}  // namespace penstock
