#include "common/text/model_text.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "common/base/status.h"
#include "common/formats/gguf.h"
#include "common/formats/mapped_file.h"
#include "common/text/gguf_vocab.h"
#include "common/text/sentencepiece_model.h"
#include "common/text/tekken_json.h"
#include "common/text/tiktoken_file.h"
#include "common/text/tokenizer_config.h"
#include "common/text/tokenizer_json.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxAssetBytes = size_t{256} << 20;
constexpr std::string_view kMoreTemplates = "additional_chat_templates";
constexpr std::string_view kNames[] = {
    "tokenizer.json",      "tokenizer_config.json",  "special_tokens_map.json",
    "added_tokens.json",   "generation_config.json", "config.json",
    "chat_template.jinja", "chat_template.json",     "tokenizer.model",
    "tekken.json",
};

bool IsTokenizer(std::string_view name) {
  return name == "tokenizer.json" || name == "tokenizer.model" || name == "tekken.json" ||
         name == "model.gguf" || name.ends_with(".tiktoken");
}

// The model's files while they are put together: parsed once, named in errors.
class Loader {
 public:
  Loader(const TextAssets& assets, const std::string& name) : assets_(assets), name_(name) {}

  absl::StatusOr<ModelText> Load();

 private:
  const std::string* Find(std::string_view file) const {
    const auto it = assets_.find(file);
    return it == assets_.end() ? nullptr : &it->second;
  }
  std::string NameOf(std::string_view file) const { return name_ + "/" + std::string(file); }
  // Null JSON when there is no such file.
  absl::StatusOr<Json> ParseFile(std::string_view file) const {
    const std::string* text = Find(file);
    if (text == nullptr) return Json();
    return ParseModelJson(*text, NameOf(file));
  }
  absl::StatusOr<TokenizerSpec> Spec();
  absl::StatusOr<TokenizerSpec> SpecFromOtherFile();
  absl::Status AddConfigs(bool complete, TokenizerSpec* spec);
  absl::Status ReadTemplates(ModelText* text);
  absl::Status ReadEos(ModelText* text);
  absl::Status AddEosOf(const Json& json, std::string_view file, std::set<int32_t>* ids);

  const TextAssets& assets_;
  const std::string& name_;
  Json tokenizer_config_, special_tokens_map_, generation_config_, config_;
  std::unique_ptr<GgufFile> gguf_;
};

absl::StatusOr<TokenizerSpec> Loader::SpecFromOtherFile() {
  if (const std::string* bytes = Find("tekken.json")) {
    ASSIGN_OR_RETURN(const Json file, ParseModelJson(*bytes, NameOf("tekken.json")));
    ASSIGN_OR_RETURN(TokenizerSpec spec, SpecFromTekken(file, NameOf("tekken.json")));
    RecogniseTekkenSpecials(&spec);
    return spec;
  }
  const Json* config = tokenizer_config_.is_object() ? &tokenizer_config_ : nullptr;
  if (const std::string* bytes = Find("tokenizer.model")) {
    if (LooksLikeTiktoken(*bytes))
      return SpecFromTiktoken(*bytes, config, NameOf("tokenizer.model"));
    ASSIGN_OR_RETURN(TokenizerSpec spec, SpecFromSentencePiece(*bytes, NameOf("tokenizer.model")));
    RecogniseControlPieces(&spec);
    return spec;
  }
  for (const auto& [file, bytes] : assets_) {
    if (file.ends_with(".tiktoken")) return SpecFromTiktoken(bytes, config, NameOf(file));
  }
  if (gguf_ != nullptr) return TokenizerSpecFromGguf(*gguf_);
  return InvalidArgument(
      "%s: no tokenizer in it (tokenizer.json, tekken.json, tokenizer.model, *.tiktoken or a GGUF)",
      name_);
}

// complete: the tokenizer's own file has its added tokens and post-processor.
absl::Status Loader::AddConfigs(bool complete, TokenizerSpec* spec) {
  if (!complete) {
    ASSIGN_OR_RETURN(const Json added, ParseFile("added_tokens.json"));
    if (added.is_object()) RETURN_IF_ERROR(AddTokens(added, NameOf("added_tokens.json"), spec));
  }
  if (special_tokens_map_.is_object()) NameSpecialTokens(special_tokens_map_, spec);
  if (!tokenizer_config_.is_object()) return absl::OkStatus();
  if (complete) {
    NameSpecialTokens(tokenizer_config_, spec);
    return absl::OkStatus();
  }
  return ApplyTokenizerConfig(tokenizer_config_, NameOf("tokenizer_config.json"), spec);
}

absl::StatusOr<TokenizerSpec> Loader::Spec() {
  const std::string* json = Find("tokenizer.json");
  absl::StatusOr<TokenizerSpec> spec = json != nullptr
                                           ? SpecFromTokenizerJson(*json, NameOf("tokenizer.json"))
                                           : SpecFromOtherFile();
  if (!spec.ok()) return spec;
  RETURN_IF_ERROR(AddConfigs(json != nullptr, &*spec));
  return spec;
}

absl::Status Loader::ReadTemplates(ModelText* text) {
  const auto set = [&](std::string name, std::string source) {
    auto& list = text->chat_templates;
    const auto it = std::find_if(list.begin(), list.end(),
                                 [&](const auto& entry) { return entry.first == name; });
    if (it != list.end()) {
      it->second = std::move(source);
    } else {
      list.emplace(name == "default" ? list.begin() : list.end(), name, std::move(source));
    }
  };
  // From the weakest source to the strongest; files of their own win, as in transformers.
  if (gguf_ != nullptr) {
    ASSIGN_OR_RETURN(auto templates, TemplatesFromGguf(*gguf_));
    for (auto& [name, source] : templates) set(name, std::move(source));
  }
  ASSIGN_OR_RETURN(const Json file, ParseFile("chat_template.json"));
  using Source = std::pair<const Json*, const char*>;
  for (const auto& [json, name] :
       {Source(&tokenizer_config_, "tokenizer_config.json"), Source(&file, "chat_template.json")}) {
    ASSIGN_OR_RETURN(auto templates, TemplatesOfConfig(*json, NameOf(name)));
    for (auto& [key, source] : templates) set(key, std::move(source));
  }
  if (const std::string* source = Find("chat_template.jinja")) set("default", *source);
  for (const auto& [path, source] : assets_) {
    const std::string folder = std::string(kMoreTemplates) + "/";
    if (!path.starts_with(folder) || !path.ends_with(".jinja")) continue;
    set(path.substr(folder.size(), path.size() - folder.size() - 6), source);
  }
  return absl::OkStatus();
}

// eos_token_id: an id, a list of ids, or null.
absl::Status Loader::AddEosOf(const Json& json, std::string_view file, std::set<int32_t>* ids) {
  const Json* value = json.Find("eos_token_id");
  if (value == nullptr || value->is_null()) return absl::OkStatus();
  const Json::Array one = {*value};
  for (const Json& id : value->is_array() ? value->as_array() : one) {
    const std::optional<int64_t> number = id.ToInt64();
    // Some files write -1 for none.
    if (number == -1) continue;
    if (!number.has_value() || *number < 0 || *number > INT32_MAX) {
      return InvalidArgument("%s: eos_token_id is %s, neither an id nor a list of ids",
                             NameOf(file), value->Dump());
    }
    ids->insert(static_cast<int32_t>(*number));
  }
  return absl::OkStatus();
}

absl::Status Loader::ReadEos(ModelText* text) {
  std::set<int32_t> ids;
  RETURN_IF_ERROR(AddEosOf(generation_config_, "generation_config.json", &ids));
  RETURN_IF_ERROR(AddEosOf(config_, "config.json", &ids));
  if (const Json* inner = config_.Find("text_config")) {
    RETURN_IF_ERROR(AddEosOf(*inner, "config.json", &ids));
  }
  if (text->tokenizer->eos_id().has_value()) ids.insert(*text->tokenizer->eos_id());
  // A name that no token carries adds nothing.
  for (const auto& [json, key] :
       {std::pair(&tokenizer_config_, "eos_token"), std::pair(&tokenizer_config_, "eot_token"),
        std::pair(&special_tokens_map_, "eos_token")}) {
    const std::string token = TokenText(json->Find(key));
    const std::optional<int32_t> id =
        token.empty() ? std::nullopt : text->tokenizer->TokenToId(token);
    if (id.has_value()) ids.insert(*id);
  }
  if (gguf_ != nullptr) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> more, EosIdsFromGguf(*gguf_));
    ids.insert(more.begin(), more.end());
  }
  text->eos_token_ids.assign(ids.begin(), ids.end());
  return absl::OkStatus();
}

template <typename T, typename Convert>
absl::Status ReadNumber(const Json& json, const char* key, const std::string& file, Convert convert,
                        std::optional<T>* out) {
  const Json* value = json.Find(key);
  if (value == nullptr || value->is_null()) return absl::OkStatus();
  *out = convert(*value);
  if (out->has_value()) return absl::OkStatus();
  return InvalidArgument("%s: %s is %s, not a number in range", file, key, value->Dump());
}

absl::Status ReadDefaults(const Json& json, const std::string& file, GenerationDefaults* out) {
  const auto real = [](const Json& value) { return value.ToDouble(); };
  const auto whole = [](const Json& value) { return value.ToInt64(); };
  RETURN_IF_ERROR(ReadNumber(json, "temperature", file, real, &out->temperature));
  RETURN_IF_ERROR(ReadNumber(json, "top_p", file, real, &out->top_p));
  RETURN_IF_ERROR(ReadNumber(json, "top_k", file, whole, &out->top_k));
  RETURN_IF_ERROR(ReadNumber(json, "min_p", file, real, &out->min_p));
  RETURN_IF_ERROR(ReadNumber(json, "repetition_penalty", file, real, &out->repetition_penalty));
  return ReadNumber(json, "max_new_tokens", file, whole, &out->max_new_tokens);
}

absl::StatusOr<ModelText> Loader::Load() {
  ASSIGN_OR_RETURN(tokenizer_config_, ParseFile("tokenizer_config.json"));
  ASSIGN_OR_RETURN(special_tokens_map_, ParseFile("special_tokens_map.json"));
  ASSIGN_OR_RETURN(generation_config_, ParseFile("generation_config.json"));
  ASSIGN_OR_RETURN(config_, ParseFile("config.json"));
  if (const std::string* bytes = Find("model.gguf")) {
    ASSIGN_OR_RETURN(gguf_, GgufFile::FromMemory(NameOf("model.gguf"), *bytes));
  }
  ModelText text;
  ASSIGN_OR_RETURN(TokenizerSpec spec, Spec());
  ASSIGN_OR_RETURN(text.tokenizer, Tokenizer::Create(std::move(spec)));
  RETURN_IF_ERROR(ReadTemplates(&text));
  RETURN_IF_ERROR(ReadEos(&text));
  RETURN_IF_ERROR(
      ReadDefaults(generation_config_, NameOf("generation_config.json"), &text.defaults));
  return text;
}

absl::Status AddFile(const fs::path& path, const std::string& name, TextAssets* assets) {
  ASSIGN_OR_RETURN((*assets)[name], ReadFile(path.string(), kMaxAssetBytes));
  return absl::OkStatus();
}

absl::Status AddGguf(const fs::path& path, TextAssets* assets) {
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path.string()));
  (*assets)["model.gguf"] = file->MetadataOnly();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<fs::path>> FilesIn(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    if (it->is_regular_file(error)) files.push_back(it->path());
  }
  if (error) return NotFound("%s: %s", folder.string(), error.message());
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<TextAssets> ReadFolder(const fs::path& folder) {
  TextAssets assets;
  ASSIGN_OR_RETURN(const std::vector<fs::path> files, FilesIn(folder));
  const fs::path* gguf = nullptr;
  for (const fs::path& path : files) {
    const std::string name = path.filename().string();
    if (path.extension() == ".gguf" && gguf == nullptr) gguf = &path;
    const bool known = std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
    if (known || path.extension() == ".tiktoken") RETURN_IF_ERROR(AddFile(path, name, &assets));
  }
  if (gguf != nullptr) RETURN_IF_ERROR(AddGguf(*gguf, &assets));
  std::error_code error;
  if (fs::is_directory(folder / kMoreTemplates, error)) {
    ASSIGN_OR_RETURN(const std::vector<fs::path> more, FilesIn(folder / kMoreTemplates));
    for (const fs::path& path : more) {
      if (path.extension() != ".jinja") continue;
      RETURN_IF_ERROR(
          AddFile(path, std::string(kMoreTemplates) + "/" + path.filename().string(), &assets));
    }
  }
  return assets;
}

// One file: under the name that its content asks for.
absl::StatusOr<TextAssets> ReadOneFile(const fs::path& path) {
  TextAssets assets;
  ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, MappedFile::Open(path.string()));
  const std::string_view text = file->text();
  std::string name = path.filename().string();
  if (text.starts_with("GGUF")) {
    RETURN_IF_ERROR(AddGguf(path, &assets));
    return assets;
  }
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') {
    ASSIGN_OR_RETURN(const Json json, ParseModelJson(text, path.string()));
    name = LooksLikeTekken(json) ? "tekken.json" : "tokenizer.json";
  } else if (LooksLikeTiktoken(text)) {
    name = "tokenizer.tiktoken";
    const fs::path config = path.parent_path() / "tokenizer_config.json";
    std::error_code error;
    if (fs::is_regular_file(config, error)) {
      RETURN_IF_ERROR(AddFile(config, "tokenizer_config.json", &assets));
    }
  } else if (LooksLikeSentencePiece(text)) {
    name = "tokenizer.model";
  } else {
    return InvalidArgument(
        "%s is no tokenizer file: neither a tokenizer.json, tekken.json, SentencePiece or "
        ".tiktoken "
        "file nor a GGUF",
        path.string());
  }
  assets[name] = std::string(text);
  return assets;
}

}  // namespace

const std::string* ModelText::FindTemplate(std::string_view name, bool has_tools) const {
  const auto find = [this](std::string_view wanted) -> const std::string* {
    for (const auto& [key, source] : chat_templates) {
      if (key == wanted) return &source;
    }
    return nullptr;
  };
  if (!name.empty()) return find(name);
  const std::string* with_tools = has_tools ? find("tool_use") : nullptr;
  return with_tools != nullptr ? with_tools : find("default");
}

absl::StatusOr<TextAssets> ReadTextAssets(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return NotFound("%s: no such file or folder", path);
  absl::StatusOr<TextAssets> assets =
      fs::is_directory(status) ? ReadFolder(path) : ReadOneFile(path);
  if (!assets.ok()) return assets;
  const bool any = std::any_of(assets->begin(), assets->end(),
                               [](const auto& asset) { return IsTokenizer(asset.first); });
  if (!any) {
    return InvalidArgument(
        "%s: no tokenizer in it (tokenizer.json, tekken.json, tokenizer.model, *.tiktoken or a "
        "GGUF)",
        path);
  }
  return assets;
}

absl::StatusOr<ModelText> LoadModelText(const TextAssets& assets, const std::string& name) {
  return Loader(assets, name).Load();
}

absl::StatusOr<ModelText> LoadModelText(const std::string& path) {
  ASSIGN_OR_RETURN(const TextAssets assets, ReadTextAssets(path));
  return LoadModelText(assets, path);
}

}  // namespace penstock
