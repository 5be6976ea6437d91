#include "common/text/charsmap.h"

#include <cstring>

#include "common/base/status.h"

namespace penstock {
namespace {

// A unit of the double array, as darts-clone packs it.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t Value(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t Label(uint32_t unit) { return unit & 0x800000FF; }
uint32_t Offset(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

uint32_t ReadU32(const char* p) {
  uint32_t value;
  std::memcpy(&value, p, 4);
  return value;
}

}  // namespace

absl::StatusOr<Charsmap> Charsmap::Create(std::string_view blob) {
  Charsmap map;
  if (blob.empty()) return map;
  if (blob.size() < 4) return InvalidArgument("precompiled_charsmap: %d bytes", blob.size());
  const uint32_t size = ReadU32(blob.data());
  if (size % 4 != 0 || size > blob.size() - 4) {
    return InvalidArgument("precompiled_charsmap: trie of %d bytes in a blob of %d", size,
                           blob.size());
  }
  map.units_.resize(size / 4);
  if (size > 0) std::memcpy(map.units_.data(), blob.data() + 4, size);
  map.pool_ = std::string(blob.substr(4 + size));
  return map;
}

std::optional<Charsmap::Match> Charsmap::Find(std::string_view text, bool longest) const {
  if (units_.empty()) return std::nullopt;
  std::optional<Match> found;
  uint32_t node = Offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size() || Label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= Offset(unit);
    if (!HasLeaf(unit)) continue;
    if (node >= units_.size()) break;
    const uint32_t index = Value(units_[node]);
    if (index >= pool_.size()) break;
    found = Match{i + 1, std::string_view(pool_.c_str() + index)};
    if (!longest) break;
  }
  return found;
}

}  // namespace penstock
