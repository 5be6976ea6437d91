#include "worker/backend.h"

#include <chrono>
#include <filesystem>
#include <utility>

#include "common/base/log.h"
#include "common/base/sha256.h"
#include "common/base/status.h"
#include "common/text/model_text.h"
#include "worker/model/cpu_runner.h"
#include "worker/model/cuda_options.h"
#include "worker/model/fake_runner.h"
#include "worker/model/fingerprint.h"
#include "worker/model/weight_source.h"
#include "worker/model_fingerprint.h"
#include "worker/text_adapter.h"

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

// Tokenizer, templates and EOS ids, and the files that routers make the same of. Returns the
// vocabulary's size.
absl::StatusOr<int32_t> LoadText(const WorkerOptions& options, LoadedModel* loaded) {
  ASSIGN_OR_RETURN(const TextAssets assets, ReadTextAssets(options.model));
  for (const auto& [name, data] : assets) {
    loaded->identity.assets.push_back({name, HexEncode(Sha256(data)), data});
  }
  ASSIGN_OR_RETURN(ModelText text, LoadModelText(assets, options.served_model_name));
  const int32_t vocab_size = text.tokenizer->vocab_size();
  loaded->identity.eos_token_ids = text.eos_token_ids;
  ASSIGN_OR_RETURN(loaded->text, MakeTextModel(std::move(text)));
  return vocab_size;
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

// With a model's text layer when there is such a model, else for any name and with ids only.
absl::StatusOr<LoadedModel> LoadFake(const WorkerOptions& options) {
  LoadedModel loaded;
  int32_t vocab_size = 0;
  if (Exists(options.model)) {
    ASSIGN_OR_RETURN(vocab_size, LoadText(options, &loaded));
  }
  ASSIGN_OR_RETURN(const FakeRunnerOptions fake, FakeOptions(options, vocab_size));
  ASSIGN_OR_RETURN(loaded.runner, FakeRunner::Create(fake));
  loaded.identity.format = "fake";
  const std::string extra = absl::StrFormat("fake %s vocab %d", options.fake, fake.vocab_size);
  loaded.identity.fingerprint = ModelFingerprint("", loaded.identity.assets, extra);
  return loaded;
}

CpuRunnerOptions MakeCpuOptions(const WorkerOptions& options) {
  CpuRunnerOptions cpu;
  cpu.num_threads = options.threads;
  cpu.kv_cache_bytes = options.kv_cache_memory_bytes;
  cpu.max_model_len = options.max_model_len;
  SetIfGiven(options.block_size, &cpu.block_size);
  SetIfGiven(options.max_num_seqs, &cpu.max_num_seqs);
  SetIfGiven(options.max_num_batched_tokens, &cpu.max_num_batched_tokens);
  return cpu;
}

CudaRunnerOptions MakeCudaOptions(const WorkerOptions& options) {
  CudaRunnerOptions cuda;
  cuda.gpu_memory_utilization = options.gpu_memory_utilization;
  cuda.kv_cache_bytes = options.kv_cache_memory_bytes;
  cuda.max_model_len = options.max_model_len;
  SetIfGiven(options.block_size, &cuda.block_size);
  SetIfGiven(options.max_num_seqs, &cuda.max_num_seqs);
  SetIfGiven(options.max_num_batched_tokens, &cuda.max_num_batched_tokens);
  return cuda;
}

// Model files, text layer and fingerprint: what CPU and GPU share. make turns the files into a
// runner.
template <typename MakeRunner>
absl::StatusOr<LoadedModel> LoadFiles(const WorkerOptions& options, std::string_view device,
                                      MakeRunner make) {
  ASSIGN_OR_RETURN(const LoadFormat format, ParseLoadFormat(options.load_format));
  if (!Exists(options.model)) {
    return NotFound("%s: no such model directory or GGUF file", options.model);
  }
  LoadedModel loaded;
  ASSIGN_OR_RETURN(const ModelFiles files, OpenModelFiles(options.model, format, options.seed));
  absl::StatusOr<int32_t> vocab_size = LoadText(options, &loaded);
  // Random weights need no tokenizer: routers then take ids only.
  if (!vocab_size.ok() && format != LoadFormat::kDummy) return vocab_size.status();
  if (!vocab_size.ok()) {
    LogWarning("no tokenizer, ids only: %s", std::string(vocab_size.status().message()));
  }
  ASSIGN_OR_RETURN(loaded.runner, make(files));
  loaded.identity.format = files.format;
  loaded.identity.fingerprint =
      ModelFingerprint(WeightsFingerprint(files.spec, *files.weights), loaded.identity.assets,
                       absl::StrFormat("%s %s", device, files.format));
  return loaded;
}

absl::StatusOr<LoadedModel> LoadCpu(const WorkerOptions& options) {
  if (options.dtype == "float16") {
    return InvalidArgument(
        "--dtype: the CPU backend computes in float32 over weights as they are "
        "in the file; use auto");
  }
  return LoadFiles(options, "cpu", [&options](const ModelFiles& files) {
    return CpuRunner::Create(files.spec, *files.weights, MakeCpuOptions(options));
  });
}

absl::StatusOr<LoadedModel> LoadCuda(const WorkerOptions& options) {
  if (options.dtype != "auto" && options.dtype != "bfloat16") {
    return InvalidArgument("--dtype: the CUDA backend computes in bfloat16, not in %s; use auto",
                           options.dtype);
  }
  if (const absl::Status usable = CheckCudaDevice(0); !usable.ok()) {
    return InvalidArgument("--backend cuda: %s", std::string(usable.message()));
  }
  return LoadFiles(options, "cuda bf16", [&options](const ModelFiles& files) {
    return CreateCudaRunner(files.spec, *files.weights, MakeCudaOptions(options));
  });
}

// The GPU when there is a usable one.
absl::StatusOr<LoadedModel> LoadAuto(const WorkerOptions& options) {
  const absl::Status usable = CheckCudaDevice(0);
  if (usable.ok()) return LoadCuda(options);
  LogInfo("using the CPU: %s", std::string(usable.message()));
  return LoadCpu(options);
}

absl::StatusOr<LoadedModel> LoadByBackend(const WorkerOptions& options) {
  switch (options.backend) {
    case Backend::kFake:
      return LoadFake(options);
    case Backend::kCpu:
      return LoadCpu(options);
    case Backend::kCuda:
      return LoadCuda(options);
    case Backend::kAuto:
      break;
  }
  return LoadAuto(options);
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(const WorkerOptions& options) {
  ASSIGN_OR_RETURN(LoadedModel loaded, LoadByBackend(options));
  loaded.identity.name = options.served_model_name;
  loaded.identity.version = kVersion;
  loaded.identity.created = std::chrono::duration_cast<std::chrono::seconds>(
                                std::chrono::system_clock::now().time_since_epoch())
                                .count();
  return loaded;
}

}  // namespace penstock
