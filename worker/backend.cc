#include "worker/backend.h"

#include <chrono>
#include <filesystem>
#include <utility>

#include "common/base/status.h"
#include "common/formats/gguf.h"
#include "worker/model/fake_runner.h"
#include "worker/model_assets.h"

namespace penstock {
namespace {

constexpr char kVersion[] = "0.1.0";

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

template <typename T>
void SetIfGiven(T value, T* out) {
  if (value != 0) *out = value;
}

absl::StatusOr<FakeRunnerOptions> FakeOptions(const WorkerOptions& options, int32_t vocab_size) {
  FakeRunnerOptions defaults;
  SetIfGiven(vocab_size, &defaults.vocab_size);
  SetIfGiven(options.max_model_len, &defaults.max_model_len);
  SetIfGiven(options.max_num_seqs, &defaults.max_num_seqs);
  SetIfGiven(options.max_num_batched_tokens, &defaults.max_num_batched_tokens);
  SetIfGiven(options.block_size, &defaults.block_size);
  auto fake = ParseFakeRunnerOptions(options.fake, defaults);
  if (!fake.ok()) return InvalidArgument("--fake: %s", std::string(fake.status().message()));
  return fake;
}

// The vocabulary of the text assets, so that the fake's ids can be detokenized; 0 = none.
absl::StatusOr<int32_t> VocabularySize(const std::vector<ModelAssetFile>& assets) {
  for (const ModelAssetFile& asset : assets) {
    if (asset.name != "model.gguf") continue;
    ASSIGN_OR_RETURN(const auto file, GgufFile::FromMemory(asset.name, asset.data));
    ASSIGN_OR_RETURN(const GgufArray* tokens, file->Array("tokenizer.ggml.tokens"));
    if (tokens != nullptr) return static_cast<int32_t>(tokens->count);
  }
  return 0;
}

absl::StatusOr<LoadedModel> LoadFake(const WorkerOptions& options) {
  LoadedModel loaded;
  if (Exists(options.model)) {
    ASSIGN_OR_RETURN(loaded.identity.assets, LoadTextAssets(options.model));
  }
  ASSIGN_OR_RETURN(const int32_t vocab_size, VocabularySize(loaded.identity.assets));
  ASSIGN_OR_RETURN(const FakeRunnerOptions fake, FakeOptions(options, vocab_size));
  ASSIGN_OR_RETURN(loaded.runner, FakeRunner::Create(fake));
  loaded.identity.format = "fake";
  const std::string extra = absl::StrFormat("fake %s vocab %d", options.fake, fake.vocab_size);
  ASSIGN_OR_RETURN(loaded.identity.fingerprint,
                   ModelFingerprint(options.model, loaded.identity.assets, extra));
  return loaded;
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(const WorkerOptions& options) {
  absl::StatusOr<LoadedModel> loaded;
  switch (options.backend) {
    case Backend::kFake:
      loaded = LoadFake(options);
      break;
    case Backend::kAuto:
    case Backend::kCpu:
      return InvalidArgument("--backend: the CPU backend is not part of this build yet; use fake");
    case Backend::kCuda:
      return InvalidArgument("--backend: the CUDA backend is not part of this build; use cpu");
  }
  RETURN_IF_ERROR(loaded.status());
  loaded->identity.name = options.served_model_name;
  loaded->identity.version = kVersion;
  loaded->identity.created = std::chrono::duration_cast<std::chrono::seconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count();
  return loaded;
}

}  // namespace penstock
