#include "worker/model_fingerprint.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/base/sha256.h"
#include "common/base/status.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSampleBytes = int64_t{1} << 20;

bool IsWeights(const fs::path& path) {
  return path.extension() == ".safetensors" || path.extension() == ".gguf";
}

absl::StatusOr<std::string> ReadPart(const fs::path& path, int64_t offset, int64_t size) {
  std::ifstream file(path, std::ios::binary);
  std::string data(static_cast<size_t>(size), '\0');
  file.seekg(offset);
  if (!file.read(data.data(), size)) {
    return NotFound("%s: cannot read %d bytes at %d", path.string(), size, offset);
  }
  return data;
}

// The weight files of a directory (also through the hub cache's links), sorted by name.
absl::StatusOr<std::vector<fs::path>> WeightFiles(const std::string& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& item : fs::directory_iterator(directory, error)) {
    std::error_code ignored;
    if (item.is_regular_file(ignored) && IsWeights(item.path())) files.push_back(item.path());
  }
  if (error) return NotFound("%s: %s", directory, error.message());
  std::sort(files.begin(), files.end());
  return files;
}

absl::Status HashWeights(const fs::path& path, Sha256Stream* hash) {
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(path, error));
  if (error) return NotFound("%s: %s", path.string(), error.message());
  // The name is no part of it: the same file may lie elsewhere on another machine.
  const std::string head = absl::StrFormat("weights %d\n", size);
  hash->Update(head.data(), head.size());
  const int64_t part = std::min(size, kSampleBytes);
  for (const int64_t offset : {int64_t{0}, size - part}) {
    ASSIGN_OR_RETURN(const std::string data, ReadPart(path, offset, part));
    hash->Update(data.data(), data.size());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ModelFingerprint(const std::string& model,
                                             const std::vector<ModelAssetFile>& assets,
                                             const std::string& extra) {
  Sha256Stream hash;
  const std::string head = absl::StrFormat("penstock model 1\n%s\n", extra);
  hash.Update(head.data(), head.size());
  for (const ModelAssetFile& asset : assets) {
    const std::string line = absl::StrFormat("%s %s\n", asset.name, asset.sha256);
    hash.Update(line.data(), line.size());
  }
  std::error_code error;
  if (fs::is_directory(model, error)) {
    ASSIGN_OR_RETURN(const std::vector<fs::path> files, WeightFiles(model));
    for (const fs::path& path : files) RETURN_IF_ERROR(HashWeights(path, &hash));
  } else if (fs::exists(model, error)) {
    RETURN_IF_ERROR(HashWeights(model, &hash));
  }
  return HexEncode(hash.Finish());
}

}  // namespace penstock
