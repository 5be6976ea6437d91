#pragma once

// Which files of a repository a model needs: never pickles (.bin, .pth), never other variants.

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

struct HubSelection {
  std::vector<std::string> small;    // configuration, tokenizer, template, shard index
  std::vector<std::string> weights;  // one GGUF or one safetensors file; empty with an index
  bool gguf = false;
  bool has_index = false;  // the shards are those that kSafetensorsIndex names
};

inline constexpr char kSafetensorsIndex[] = "model.safetensors.index.json";

// files are the repository's. variant is what followed the colon of "org/name:variant": a GGUF file
// name or a quantisation tag ("Q4_K_M"); empty takes safetensors where there are, else the only
// GGUF, else its Q4_K_M. repo is for messages.
absl::StatusOr<HubSelection> SelectHubFiles(const std::vector<std::string>& files,
                                            const std::string& variant, std::string_view repo);

// File names of weight_map, each once, sorted. path is for messages.
absl::StatusOr<std::vector<std::string>> ShardsOfIndex(std::string_view index_json,
                                                       std::string_view path);

}  // namespace penstock
