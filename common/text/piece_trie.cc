#include "common/text/piece_trie.h"

namespace penstock {

void PieceTrie::Build(std::vector<std::pair<std::string_view, int32_t>> pieces) {
  std::erase_if(pieces, [](const auto& piece) { return piece.first.empty(); });
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  nodes_.assign(1, Node{});
  // Breadth first: every node has the range of pieces below it and its depth.
  struct Range {
    uint32_t node;
    size_t begin, end, depth;
  };
  std::vector<Range> level = {{0, 0, pieces.size(), 0}}, next;
  while (!level.empty()) {
    next.clear();
    for (const Range& range : level) {
      size_t i = range.begin;
      for (; i < range.end && pieces[i].first.size() == range.depth; ++i) {
        nodes_[range.node].value = pieces[i].second;
      }
      nodes_[range.node].first_child = static_cast<uint32_t>(nodes_.size());
      while (i < range.end) {
        const uint8_t byte = static_cast<uint8_t>(pieces[i].first[range.depth]);
        const size_t begin = i;
        while (i < range.end && static_cast<uint8_t>(pieces[i].first[range.depth]) == byte) ++i;
        const uint32_t child = static_cast<uint32_t>(nodes_.size());
        nodes_.push_back({0, 0, byte, -1});
        ++nodes_[range.node].children;
        if (range.node == 0) root_[byte] = child;
        next.push_back({child, begin, i, range.depth + 1});
      }
    }
    std::swap(level, next);
  }
}

}  // namespace penstock
