#include "worker/model/hub_select.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "common/base/status.h"
#include "common/json/json.h"
#include "worker/model/hub_cache.h"

namespace penstock {
namespace {

constexpr char kSingleSafetensors[] = "model.safetensors";
constexpr char kDefaultQuantization[] = "Q4_K_M";

constexpr std::string_view kSmallFiles[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "tekken.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "chat_template.jinja",
    "chat_template.json",
    kSafetensorsIndex,
};

bool IsSmallFile(std::string_view file) {
  if (std::find(std::begin(kSmallFiles), std::end(kSmallFiles), file) != std::end(kSmallFiles)) {
    return true;
  }
  const bool nested = file.find('/') != std::string_view::npos;
  return (!nested && file.ends_with(".tiktoken")) ||
         (file.starts_with("additional_chat_templates/") && file.ends_with(".jinja"));
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// "name-Q4_K_M.gguf", "name.Q4_K_M.gguf" and "Q4_K_M/name.gguf" carry the tag Q4_K_M.
bool HasTag(const std::string& file, const std::string& tag) {
  const std::string name = Lower(file);
  const std::string wanted = Lower(tag);
  const std::string ending = wanted + ".gguf";
  if (name == ending || name.starts_with(wanted + "/")) return true;
  if (!name.ends_with(ending)) return false;
  const char before = name[name.size() - ending.size() - 1];
  return before == '-' || before == '.' || before == '_' || before == '/';
}

std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < 12; ++i) {
    text += absl::StrFormat("%s%s", i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > 12) text += absl::StrFormat(" and %d more", names.size() - 12);
  return text;
}

absl::StatusOr<std::string> ChooseGguf(const std::vector<std::string>& ggufs,
                                       const std::string& variant, std::string_view repo) {
  if (Lower(variant).ends_with(".gguf")) {
    if (std::find(ggufs.begin(), ggufs.end(), variant) != ggufs.end()) return variant;
    return NotFound("%s has no file %s; its GGUF files: %s", repo, variant, Listed(ggufs));
  }
  if (variant.empty() && ggufs.size() == 1) return ggufs[0];
  const std::string tag = variant.empty() ? kDefaultQuantization : variant;
  std::vector<std::string> matching;
  for (const std::string& file : ggufs) {
    if (HasTag(file, tag)) matching.push_back(file);
  }
  if (matching.size() == 1) return matching[0];
  if (matching.empty()) {
    return NotFound("%s has no GGUF file for '%s'; name one of %s as %s:FILE", repo, tag,
                    Listed(ggufs), repo);
  }
  return InvalidArgument("%s has %d GGUF files for '%s'; name one of %s as %s:FILE", repo,
                         matching.size(), tag, Listed(matching), repo);
}

bool IsPartOfSplit(std::string_view file) { return file.find("-of-0") != std::string_view::npos; }

}  // namespace

absl::StatusOr<HubSelection> SelectHubFiles(const std::vector<std::string>& files,
                                            const std::string& variant, std::string_view repo) {
  HubSelection selection;
  std::vector<std::string> ggufs;
  bool single = false;
  bool pickles = false;
  for (const std::string& file : files) {
    RETURN_IF_ERROR(CheckHubFileName(file));
    if (IsSmallFile(file)) selection.small.push_back(file);
    if (file == kSafetensorsIndex) selection.has_index = true;
    if (file == kSingleSafetensors) single = true;
    if (Lower(file).ends_with(".gguf")) ggufs.push_back(file);
    if (file.ends_with(".bin") || file.ends_with(".pth")) pickles = true;
  }
  if (variant.empty() && (single || selection.has_index)) {
    if (!selection.has_index) selection.weights.push_back(kSingleSafetensors);
    return selection;
  }
  if (ggufs.empty()) {
    if (!variant.empty()) {
      return NotFound("%s has no GGUF files, so '%s:%s' names nothing", repo, repo, variant);
    }
    return NotFound("%s has neither %s, %s nor GGUF files%s", repo, kSingleSafetensors,
                    kSafetensorsIndex,
                    pickles ? ": PyTorch pickle files (.bin, .pth) can run code when read and are "
                              "not supported"
                            : "");
  }
  ASSIGN_OR_RETURN(const std::string chosen, ChooseGguf(ggufs, variant, repo));
  if (IsPartOfSplit(chosen)) {
    return Unimplemented("%s: %s is one part of a split GGUF, which is not supported", repo,
                         chosen);
  }
  selection.gguf = true;
  selection.has_index = false;
  selection.weights.push_back(chosen);
  selection.small.clear();  // a GGUF carries its own
  return selection;
}

absl::StatusOr<std::vector<std::string>> ShardsOfIndex(std::string_view index_json,
                                                       std::string_view path) {
  const absl::StatusOr<Json> index = Json::Parse(index_json);
  if (!index.ok()) return InvalidArgument("%s: %s", path, index.status().message());
  const Json* map = index->Find("weight_map");
  if (map == nullptr || !map->is_object()) {
    return InvalidArgument("%s has no weight_map object", path);
  }
  std::set<std::string> shards;
  for (const JsonMember& member : map->as_object()) {
    if (!member.value.is_string() || !member.value.as_string().ends_with(".safetensors") ||
        member.value.as_string().find('/') != std::string::npos) {
      return InvalidArgument("%s: weight_map['%s'] is no safetensors file name", path, member.key);
    }
    shards.insert(member.value.as_string());
  }
  return std::vector<std::string>(shards.begin(), shards.end());
}

}  // namespace penstock
