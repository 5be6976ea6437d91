#include "worker/model/fingerprint.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_format.h"
#include "common/base/sha256.h"

namespace penstock {
namespace {

constexpr size_t kWholeBytes = size_t{16} << 10;
constexpr size_t kPieces = 8;
constexpr size_t kPieceBytes = 1024;

void HashText(Sha256Stream* hash, const std::string& text) {
  const uint64_t size = text.size();  // length-prefixed: parts cannot run into each other
  hash->Update(&size, sizeof(size));
  hash->Update(text.data(), text.size());
}

void HashContent(Sha256Stream* hash, std::span<const std::byte> data) {
  if (data.size() <= kWholeBytes) {
    hash->Update(data.data(), data.size());
    return;
  }
  const size_t last = data.size() - kPieceBytes;
  for (size_t i = 0; i < kPieces; ++i) {
    // In 128 bits would be exact; dividing first costs a few bytes of spread only.
    const size_t at = i + 1 == kPieces ? last : last / (kPieces - 1) * i;
    hash->Update(data.data() + at, kPieceBytes);
  }
}

}  // namespace

std::string WeightsFingerprint(const ModelSpec& spec, const WeightSource& weights) {
  Sha256Stream hash;
  HashText(&hash, "penstock weights 1");
  HashText(&hash, SpecText(spec));
  std::vector<std::string> names = weights.Names();
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const auto view = weights.Get(name);
    if (!view.ok()) continue;
    HashText(&hash, absl::StrFormat("%s %s %s %d", name, std::string(DTypeName(view->dtype)),
                                    ShapeText(view->shape), view->row_order.size()));
    HashContent(&hash, view->data);
  }
  return HexEncode(hash.Finish());
}

}  // namespace penstock
