#include "common/text/load_tokenizer.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "common/base/status.h"
#include "common/formats/gguf.h"
#include "common/json/json.h"
#include "common/text/gguf_vocab.h"
#include "common/text/sentencepiece_model.h"
#include "common/text/tekken_json.h"
#include "common/text/tiktoken_file.h"
#include "common/text/tokenizer_config.h"
#include "common/text/tokenizer_json.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kMaxFileBytes = uintmax_t{256} << 20;

absl::StatusOr<std::string> ReadFile(const fs::path& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) return NotFound("%s: %s", path.string(), error.message());
  if (size > kMaxFileBytes) {
    return InvalidArgument("%s: %d bytes, more than a tokenizer file may have (%d)", path.string(),
                           size, kMaxFileBytes);
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file) return Unavailable("%s: cannot be read", path.string());
  return std::move(content).str();
}

bool IsGguf(const fs::path& path) {
  char magic[4] = {};
  std::ifstream file(path, std::ios::binary);
  file.read(magic, sizeof(magic));
  return std::string_view(magic, sizeof(magic)) == "GGUF";
}

// A sibling file's JSON, or null when there is none.
absl::StatusOr<Json> Sibling(const fs::path& path, const char* name) {
  const fs::path sibling = path.parent_path() / name;
  if (!fs::exists(sibling)) return Json();
  ASSIGN_OR_RETURN(const std::string text, ReadFile(sibling));
  return ParseModelJson(text, sibling.string());
}

absl::StatusOr<TokenizerSpec> SpecOf(const fs::path& path) {
  const std::string name = path.string();
  if (IsGguf(path)) {
    ASSIGN_OR_RETURN(auto file, GgufFile::Open(name));
    return TokenizerSpecFromGguf(*file);
  }
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && bytes[first] == '{') {
    if (bytes.find("\"default_vocab_size\"") != std::string::npos) {
      absl::StatusOr<Json> json = Json::Parse(bytes);
      if (json.ok() && LooksLikeTekken(*json)) return SpecFromTekken(*json, name);
    }
    ASSIGN_OR_RETURN(TokenizerSpec spec, SpecFromTokenizerJson(bytes, name));
    for (const char* sibling : {"special_tokens_map.json", "tokenizer_config.json"}) {
      absl::StatusOr<Json> config = Sibling(path, sibling);
      if (config.ok() && config->is_object()) NameSpecialTokens(*config, &spec);
    }
    return spec;
  }
  if (LooksLikeTiktoken(bytes)) {
    ASSIGN_OR_RETURN(const Json config, Sibling(path, "tokenizer_config.json"));
    return SpecFromTiktoken(bytes, config.is_object() ? &config : nullptr, name);
  }
  if (LooksLikeSentencePiece(bytes)) return SpecFromSentencePiece(bytes, name);
  return InvalidArgument(
      "%s: no tokenizer; known are tokenizer.json, GGUF, SentencePiece .model, .tiktoken and "
      "tekken.json",
      name);
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const std::string& path) {
  fs::path file = path;
  if (fs::is_directory(file)) {
    for (const char* name : {"tokenizer.json", "tekken.json", "tokenizer.model"}) {
      if (!fs::exists(file / name)) continue;
      file /= name;
      break;
    }
    if (fs::is_directory(file)) {
      return NotFound("%s: no tokenizer.json, tekken.json or tokenizer.model in it", path);
    }
  }
  ASSIGN_OR_RETURN(TokenizerSpec spec, SpecOf(file));
  absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer = Tokenizer::Create(std::move(spec));
  if (tokenizer.ok()) return tokenizer;
  return absl::Status(
      tokenizer.status().code(),
      absl::StrFormat("%s: %s", file.string(), std::string(tokenizer.status().message())));
}

}  // namespace penstock
