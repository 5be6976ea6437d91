#include "common/text/vocabulary.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"

namespace penstock {

absl::StatusOr<Vocabulary> Vocabulary::Create(std::vector<VocabEntry> entries) {
  int32_t end = 0;
  for (const VocabEntry& entry : entries) {
    if (entry.id < 0 || entry.id > kMaxId) {
      return InvalidArgument("id %d of a token: must be from 0 to %d", entry.id, kMaxId);
    }
    end = std::max(end, entry.id + 1);
  }
  // A table of gaps for a handful of pieces would be a cheap way to take memory.
  if (static_cast<size_t>(end) > 1024 + entries.size() * 64) {
    return InvalidArgument("id %d in a vocabulary of %d pieces: too far apart", end - 1,
                           entries.size());
  }
  Vocabulary result;
  result.pieces_.resize(end);
  result.ids_.reserve(entries.size());
  result.doubles_.reserve(entries.size());  // never reallocated: ids_ points into it
  for (VocabEntry& entry : entries) {
    result.longest_ = std::max(result.longest_, entry.piece.size());
    VocabEntry& slot = result.pieces_[entry.id];
    if (slot.id == entry.id) {
      // Another piece has this id: both encode to it, the later one decodes.
      const auto it = result.ids_.find(slot.piece);
      const bool encodes = it != result.ids_.end() && it->second == entry.id;
      if (encodes) result.ids_.erase(it);  // before its key's text moves away
      result.doubles_.push_back(std::move(slot.piece));
      if (encodes) result.ids_.emplace(std::string_view(result.doubles_.back()), entry.id);
    }
    const int32_t id = entry.id;
    slot = std::move(entry);
    result.ids_.erase(std::string_view(slot.piece));  // a piece given twice: the later id counts
    result.ids_.emplace(std::string_view(slot.piece), id);
  }
  return result;
}

}  // namespace penstock
