#pragma once

// A byte trie over pieces: all pieces that begin at a place of a text, the shortest first.
// Immutable after Build. Children of a node lie side by side, sorted by byte.

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

class PieceTrie {
 public:
  // Of equal pieces, the last one's value counts. Empty pieces are left out.
  void Build(std::vector<std::pair<std::string_view, int32_t>> pieces);

  // visit(length, value) for every piece that is a prefix of text.substr(pos).
  template <typename Visit>
  void Prefixes(std::string_view text, size_t pos, Visit visit) const {
    if (nodes_.empty()) return;
    uint32_t node = 0;
    for (size_t i = pos; i < text.size(); ++i) {
      node = Child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) return;
      if (nodes_[node].value >= 0) visit(i + 1 - pos, nodes_[node].value);
    }
  }
  // Whether some piece begins with this byte.
  bool StartsWith(uint8_t byte) const { return !nodes_.empty() && root_[byte] != 0; }
  bool empty() const { return nodes_.empty(); }

 private:
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;
    uint8_t byte = 0;
    int32_t value = -1;
  };

  uint32_t Child(uint32_t node, uint8_t byte) const {
    if (node == 0) return root_[byte];
    const Node& parent = nodes_[node];
    uint32_t low = parent.first_child, high = low + parent.children;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (nodes_[middle].byte < byte) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < parent.first_child + parent.children && nodes_[low].byte == byte ? low : 0;
  }

  std::vector<Node> nodes_;  // nodes_[0]: the root
  uint32_t root_[256] = {};  // the root's children by byte
};

}  // namespace penstock
