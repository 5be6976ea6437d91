#include "worker/model_assets.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "common/base/sha256.h"
#include "common/base/status.h"
#include "common/formats/gguf.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxAssetBytes = int64_t{64} << 20;
constexpr int64_t kSampleBytes = int64_t{1} << 20;

constexpr std::array<std::string_view, 13> kAssetNames = {"config.json",
                                                          "generation_config.json",
                                                          "tokenizer.json",
                                                          "tokenizer_config.json",
                                                          "special_tokens_map.json",
                                                          "added_tokens.json",
                                                          "chat_template.jinja",
                                                          "chat_template.json",
                                                          "tokenizer.model",
                                                          "tekken.json",
                                                          "vocab.json",
                                                          "merges.txt",
                                                          "vocab.txt"};

bool IsAsset(const fs::path& path) {
  const std::string name = path.filename().string();
  return std::find(kAssetNames.begin(), kAssetNames.end(), name) != kAssetNames.end() ||
         path.extension() == ".tiktoken" ||
         path.parent_path().filename() == "additional_chat_templates";
}

bool IsWeights(const fs::path& path) {
  return path.extension() == ".safetensors" || path.extension() == ".gguf";
}

ModelAssetFile MakeAsset(std::string name, std::string data) {
  ModelAssetFile asset{.name = std::move(name), .data = std::move(data)};
  asset.sha256 = HexEncode(Sha256(asset.data));
  return asset;
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

absl::StatusOr<ModelAssetFile> GgufAsset(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  return MakeAsset("model.gguf", file->MetadataOnly());
}

// Regular files (also through the hub cache's links), sorted by their path in the directory.
absl::StatusOr<std::vector<fs::path>> Files(const std::string& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const fs::path& entry :
       {fs::path(directory), fs::path(directory) / "additional_chat_templates"}) {
    for (const auto& item : fs::directory_iterator(entry, error)) {
      if (item.is_regular_file(error)) files.push_back(item.path());
    }
    if (error && entry == directory) {
      return NotFound("%s: %s", directory, error.message());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<std::vector<ModelAssetFile>> DirectoryAssets(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<fs::path> files, Files(directory));
  std::vector<ModelAssetFile> assets;
  std::vector<fs::path> ggufs;
  for (const fs::path& path : files) {
    if (path.extension() == ".gguf") ggufs.push_back(path);
    if (!IsAsset(path)) continue;
    const auto size = static_cast<int64_t>(fs::file_size(path));
    if (size > kMaxAssetBytes) {
      return FailedPrecondition("%s: %d bytes; a tokenizer or template file has at most %d",
                                path.string(), size, kMaxAssetBytes);
    }
    ASSIGN_OR_RETURN(std::string data, ReadPart(path, 0, size));
    assets.push_back(MakeAsset(fs::relative(path, directory).string(), std::move(data)));
  }
  if (!ggufs.empty()) {
    ASSIGN_OR_RETURN(ModelAssetFile asset, GgufAsset(ggufs.front().string()));
    assets.push_back(std::move(asset));
  }
  if (assets.empty()) {
    return FailedPrecondition(
        "%s: no tokenizer in it (tokenizer.json, tokenizer.model, "
        "tekken.json, *.tiktoken or a GGUF file)",
        directory);
  }
  return assets;
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

absl::StatusOr<std::vector<ModelAssetFile>> LoadTextAssets(const std::string& model) {
  std::error_code error;
  if (fs::is_directory(model, error)) return DirectoryAssets(model);
  if (!fs::exists(model, error)) return NotFound("%s: no such file or directory", model);
  ASSIGN_OR_RETURN(ModelAssetFile asset, GgufAsset(model));
  std::vector<ModelAssetFile> assets;
  assets.push_back(std::move(asset));
  return assets;
}

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
    ASSIGN_OR_RETURN(const std::vector<fs::path> files, Files(model));
    for (const fs::path& path : files) {
      if (IsWeights(path)) RETURN_IF_ERROR(HashWeights(path, &hash));
    }
  } else if (fs::exists(model, error)) {
    RETURN_IF_ERROR(HashWeights(model, &hash));
  }
  return HexEncode(hash.Finish());
}

}  // namespace penstock
