#pragma once

// Finds stop strings in text that arrives piece by piece, and says what may be shown meanwhile.
//
// Byte by byte, so that the result does not depend on how the text was cut: the match that is
// complete first wins; of those that end at the same byte, the longest. Held back is only the
// longest suffix that could still become a stop. Time is linear in text and stops (an Aho-Corasick
// automaton). One object per choice, used by one thread at a time; copying shares nothing.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

class StopMatcher {
 public:
  struct Options {
    std::vector<std::string> stops;  // valid UTF-8; an empty one never matches
    bool include_stop = false;       // the matched stop is shown too
    // A match whose last byte belongs to a token with an index below this does not count (as
    // the mask of EOS and stop ids: the stop may come with output token number min_tokens + 1).
    int32_t min_tokens = 0;
  };

  StopMatcher() : StopMatcher(Options()) {}
  explicit StopMatcher(Options options);

  // Takes the text that one token adds and returns what may be shown now. Text that is matched but
  // not shown (a special token's) has visible = false. After a match, everything is swallowed.
  std::string Append(std::string_view delta, int32_t token_index, bool visible = true);
  // The generation ended: what was held back, unless a stop matched.
  std::string Flush();

  bool matched() const { return matched_stop_ >= 0; }
  // Index into Options::stops of the one that matched, or -1.
  int matched_stop() const { return matched_stop_; }
  const std::string& matched_text() const { return options_.stops[matched_stop_]; }

 private:
  // A prefix of some stop. Children are a list over next_sibling: at most one per stop.
  struct Node {
    uint8_t byte = 0;
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t fail = 0;   // the longest proper suffix that is a prefix of some stop
    int32_t depth = 0;  // bytes
    int32_t stop = -1;  // the longest stop that ends here
    int32_t hold = 0;   // bytes of the longest suffix that is a proper prefix of some stop
  };

  int32_t Child(int32_t node, uint8_t byte) const;
  void AddStop(int index);
  void LinkSuffixes();
  int32_t Next(int32_t node, uint8_t byte) const;
  void Release(size_t count, std::string* out);

  Options options_;
  std::vector<Node> nodes_;
  int32_t node_ = 0;
  std::string held_;          // from held_begin_ on: bytes not shown yet ...
  std::string held_visible_;  // ... and whether each of them ever may be (0 or 1)
  size_t held_begin_ = 0;     // what is before it is dropped now and then, to stay linear
  int matched_stop_ = -1;
};

}  // namespace penstock
