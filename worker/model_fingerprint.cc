#include "worker/model_fingerprint.h"

#include "absl/strings/str_format.h"
#include "common/base/sha256.h"

namespace penstock {
namespace {

void HashPart(Sha256Stream* hash, std::string_view part) {
  const uint64_t size = part.size();  // length-prefixed: parts cannot run into each other
  hash->Update(&size, sizeof(size));
  hash->Update(part.data(), part.size());
}

}  // namespace

std::string ModelFingerprint(std::string_view weights, const std::vector<ModelAssetFile>& assets,
                             std::string_view extra) {
  Sha256Stream hash;
  HashPart(&hash, "penstock model 2");
  HashPart(&hash, extra);
  HashPart(&hash, weights);
  for (const ModelAssetFile& asset : assets) {
    HashPart(&hash, asset.name);
    HashPart(&hash, asset.sha256);
  }
  return HexEncode(hash.Finish());
}

}  // namespace penstock
