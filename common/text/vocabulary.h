#pragma once

// Pieces and their ids, both ways. Immutable.

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/tokenizer_spec.h"

namespace penstock {

class Vocabulary {
 public:
  // Ids above this are refused: tables are as long as the highest id.
  static constexpr int32_t kMaxId = 1 << 24;

  static absl::StatusOr<Vocabulary> Create(std::vector<VocabEntry> entries);
  Vocabulary(Vocabulary&&) = default;
  Vocabulary(const Vocabulary&) = delete;

  std::optional<int32_t> Find(std::string_view piece) const {
    const auto it = ids_.find(piece);
    return it == ids_.end() ? std::nullopt : std::optional<int32_t>(it->second);
  }
  // Empty for an id that does not exist.
  std::string_view Piece(int32_t id) const {
    return Has(id) ? std::string_view(pieces_[id].piece) : std::string_view();
  }
  bool Has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < pieces_.size() && pieces_[id].id == id;
  }
  double Score(int32_t id) const { return pieces_[id].score; }
  // One more than the highest id.
  int32_t end_id() const { return static_cast<int32_t>(pieces_.size()); }
  size_t size() const { return ids_.size(); }  // different pieces
  size_t longest_piece() const { return longest_; }

 private:
  Vocabulary() = default;
  struct Hash {
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::vector<VocabEntry> pieces_;    // by id; gaps have id -1
  std::vector<std::string> doubles_;  // pieces whose id another piece has too
  boost::unordered_flat_map<std::string_view, int32_t, Hash> ids_;
  size_t longest_ = 0;
};

}  // namespace penstock
