#include <map>

#include "common/base/status.h"
#include "worker/model/weight_source.h"

namespace penstock {
namespace {

// Checkpoints of the bare transformer (AutoModel) lack this prefix.
constexpr std::string_view kPrefix = "model.";

class SafetensorsSource : public WeightSource {
 public:
  explicit SafetensorsSource(std::unique_ptr<SafetensorsModel> model)
      : model_(std::move(model)),
        bare_(model_->Find("model.embed_tokens.weight").tensor == nullptr &&
              model_->Find("embed_tokens.weight").tensor != nullptr) {
    for (const auto& [name, entry] : model_->entries()) {
      total_bytes_ += static_cast<int64_t>(entry.tensor->data.size());
    }
  }

  absl::StatusOr<WeightView> Get(std::string_view hf_name) const override {
    const SafetensorsModel::Entry entry = Find(hf_name);
    if (entry.tensor == nullptr) {
      return NotFound("tensor '%s' is not in %s", hf_name, model_->Description());
    }
    return WeightView{
        .dtype = entry.tensor->dtype, .shape = entry.tensor->shape, .data = entry.tensor->data};
  }
  bool Has(std::string_view hf_name) const override { return Find(hf_name).tensor != nullptr; }
  int64_t total_bytes() const override { return total_bytes_; }

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, entry] : model_->entries()) {
      const bool add = bare_ && !name.starts_with("lm_head.");
      names.push_back(add ? std::string(kPrefix) + name : name);
    }
    return names;
  }
  std::string Location(std::string_view hf_name) const override {
    const SafetensorsModel::Entry entry = Find(hf_name);
    return entry.file == nullptr ? model_->Description() : *entry.file;
  }

 private:
  SafetensorsModel::Entry Find(std::string_view hf_name) const {
    if (bare_ && hf_name.starts_with(kPrefix)) hf_name.remove_prefix(kPrefix.size());
    return model_->Find(hf_name);
  }

  const std::unique_ptr<SafetensorsModel> model_;
  const bool bare_;
  int64_t total_bytes_ = 0;
};

}  // namespace

std::unique_ptr<WeightSource> MakeSafetensorsSource(std::unique_ptr<SafetensorsModel> model) {
  return std::make_unique<SafetensorsSource>(std::move(model));
}

}  // namespace penstock
