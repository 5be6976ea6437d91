#include "worker/model/weight_source.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "common/base/status.h"
#include "worker/model/model_config.h"
#include "worker/model/tensor_list.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}
bool IsFolder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Files of a folder whose names end so, sorted.
std::vector<std::string> FilesEnding(const std::string& folder, std::string_view suffix) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    if (path.ends_with(suffix) && IsFile(path)) found.push_back(path);
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool HasSafetensors(const std::string& folder) {
  return IsFile(folder + "/model.safetensors") || IsFile(folder + "/model.safetensors.index.json");
}

absl::StatusOr<std::string> OnlyGguf(const std::string& folder) {
  const std::vector<std::string> files = FilesEnding(folder, ".gguf");
  if (files.size() == 1) return files[0];
  if (!files.empty()) {
    return InvalidArgument("%s holds %d GGUF files: name one of them, such as %s", folder,
                           files.size(), files[0]);
  }
  if (!FilesEnding(folder, ".bin").empty() || !FilesEnding(folder, ".pth").empty()) {
    return InvalidArgument(
        "%s holds PyTorch pickle files only (.bin, .pth), which can run code when read and are not "
        "supported: convert the model to safetensors",
        folder);
  }
  return NotFound(
      "%s holds no model: expected config.json with model.safetensors or "
      "model.safetensors.index.json, or one .gguf file",
      folder);
}

absl::StatusOr<ModelFiles> OpenGguf(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> gguf, GgufFile::Open(path));
  ModelFiles files;
  ASSIGN_OR_RETURN(files.spec, SpecFromGguf(*gguf));
  files.weights = MakeGgufSource(std::move(gguf), files.spec);
  files.format = "GGUF " + files.spec.weights_dtype;
  return files;
}

absl::StatusOr<ModelFiles> OpenSafetensors(const std::string& folder) {
  ModelFiles files;
  ASSIGN_OR_RETURN(files.spec, SpecFromConfigFile(folder + "/config.json"));
  ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsModel> model, SafetensorsModel::Open(folder));
  files.weights = MakeSafetensorsSource(std::move(model));
  // The tensors know better than config.json.
  const absl::StatusOr<WeightView> query = files.weights->Get(RequiredTensors(files.spec)[2].name);
  if (query.ok()) {
    const DType dtype = query->dtype;
    files.spec.weights_dtype = dtype == DType::kBF16  ? "bfloat16"
                               : dtype == DType::kF16 ? "float16"
                                                      : "float32";
  }
  files.format = "safetensors " + files.spec.weights_dtype;
  return files;
}

absl::StatusOr<ModelFiles> OpenDummy(const std::string& path, uint64_t seed) {
  ModelFiles files;
  ASSIGN_OR_RETURN(files.spec, OpenModelSpec(path));
  ASSIGN_OR_RETURN(files.weights, MakeDummySource(files.spec, seed));
  files.format = "dummy " + files.spec.weights_dtype;
  return files;
}

absl::StatusOr<ModelFiles> Open(const std::string& path, LoadFormat format, uint64_t seed) {
  if (format == LoadFormat::kDummy) return OpenDummy(path, seed);
  if (IsFile(path)) {
    if (format == LoadFormat::kSafetensors) {
      return InvalidArgument(
          "%s is a file, but --load-format is safetensors: name the folder that holds config.json",
          path);
    }
    return OpenGguf(path);
  }
  if (!IsFolder(path)) return NotFound("%s does not exist", path);
  if (format == LoadFormat::kSafetensors || (format == LoadFormat::kAuto && HasSafetensors(path))) {
    return OpenSafetensors(path);
  }
  ASSIGN_OR_RETURN(const std::string gguf, OnlyGguf(path));
  return OpenGguf(gguf);
}

// Tensors that files carry and nobody computes with.
bool IsIgnorable(const ModelSpec& spec, std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name.starts_with("rope_freqs.") ||
         name.starts_with("rope_factors_") || name.ends_with(".attn_rot_embd.weight") ||
         (spec.tie_word_embeddings && name == "lm_head.weight");
}

absl::Status CheckTensor(const NamedShape& needed, const WeightSource& source) {
  ASSIGN_OR_RETURN(const WeightView view, source.Get(needed.name));
  if (view.shape != needed.shape) {
    return InvalidArgument("%s: tensor '%s' has shape %s, expected %s",
                           source.Location(needed.name), needed.name, ShapeText(view.shape),
                           ShapeText(needed.shape));
  }
  const bool vector = needed.shape.size() == 1;
  if (vector && LayoutOf(view.dtype).values != 1) {
    return InvalidArgument("%s: tensor '%s' is %s, expected F32, F16 or BF16",
                           source.Location(needed.name), needed.name, DTypeName(view.dtype));
  }
  const std::optional<int64_t> bytes = CheckedBytes(view.dtype, view.shape);
  if (!bytes.has_value() || static_cast<size_t>(*bytes) != view.data.size()) {
    return InvalidArgument("%s: tensor '%s' has %d bytes, expected %d",
                           source.Location(needed.name), needed.name, view.data.size(),
                           bytes.value_or(-1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoadFormat> ParseLoadFormat(std::string_view text) {
  if (text == "auto") return LoadFormat::kAuto;
  if (text == "safetensors") return LoadFormat::kSafetensors;
  if (text == "gguf") return LoadFormat::kGguf;
  if (text == "dummy") return LoadFormat::kDummy;
  return InvalidArgument("--load-format is '%s', expected auto, safetensors, gguf or dummy", text);
}

absl::StatusOr<ModelSpec> OpenModelSpec(const std::string& path) {
  if (IsFile(path)) {
    if (path.ends_with(".json")) return SpecFromConfigFile(path);
    ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> gguf, GgufFile::Open(path));
    return SpecFromGguf(*gguf);
  }
  if (!IsFolder(path)) return NotFound("%s does not exist", path);
  if (IsFile(path + "/config.json")) return SpecFromConfigFile(path + "/config.json");
  ASSIGN_OR_RETURN(const std::string file, OnlyGguf(path));
  return OpenModelSpec(file);
}

absl::Status CheckWeights(const ModelSpec& spec, const WeightSource& source) {
  std::set<std::string> needed;
  for (const NamedShape& tensor : RequiredTensors(spec)) {
    RETURN_IF_ERROR(CheckTensor(tensor, source));
    needed.insert(tensor.name);
  }
  for (const std::string& name : source.Names()) {
    if (needed.count(name) != 0 || IsIgnorable(spec, name)) continue;
    return InvalidArgument(
        "%s: tensor '%s' has no place in a %s of %d layers with this configuration: leaving it out "
        "would give wrong answers",
        source.Location(name), name, spec.architecture, spec.num_layers);
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelFiles> OpenModelFiles(const std::string& path, LoadFormat format,
                                          uint64_t dummy_seed) {
  ASSIGN_OR_RETURN(ModelFiles files, Open(path, format, dummy_seed));
  RETURN_IF_ERROR(CheckWeights(files.spec, *files.weights));
  return files;
}

}  // namespace penstock
