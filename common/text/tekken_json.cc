#include "common/text/tekken_json.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "common/base/status.h"
#include "common/text/base64.h"

namespace penstock {
namespace {

// What files up to version 7 leave out: the first special tokens, by id.
constexpr std::string_view kOldSpecials[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};

absl::StatusOr<int64_t> Count(const Json& config, const char* key, const std::string& name) {
  const Json* value = config.Find(key);
  const std::optional<int64_t> count = value == nullptr ? std::nullopt : value->ToInt64();
  if (!count.has_value() || *count < 0 || *count > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("%s: config.%s is not a count", name, key);
  }
  return *count;
}

struct Special {
  std::string text;
};

absl::StatusOr<std::vector<Special>> ReadSpecials(const Json& file, int64_t count,
                                                  const std::string& name) {
  std::vector<Special> specials(static_cast<size_t>(count));
  const Json* list = file.Find("special_tokens");
  if (list == nullptr || list->is_null()) {
    const size_t old = std::min(specials.size(), std::size(kOldSpecials));
    for (size_t i = 0; i < old; ++i) specials[i].text = std::string(kOldSpecials[i]);
  } else if (!list->is_array()) {
    return InvalidArgument("%s: special_tokens is not an array", name);
  } else {
    for (const Json& entry : list->as_array()) {
      const Json* rank = entry.Find("rank");
      const Json* text = entry.Find("token_str");
      const std::optional<int64_t> id = rank == nullptr ? std::nullopt : rank->ToInt64();
      if (!id.has_value() || *id < 0 || *id >= count || text == nullptr || !text->is_string() ||
          text->as_string().empty()) {
        return InvalidArgument("%s: special token %s is not a rank below %d and a token_str", name,
                               entry.Dump().substr(0, 100), count);
      }
      Special& special = specials[static_cast<size_t>(*id)];
      if (!special.text.empty()) {
        return InvalidArgument("%s: two special tokens have rank %d", name, *id);
      }
      special.text = text->as_string();
    }
  }
  for (size_t i = 0; i < specials.size(); ++i) {
    if (specials[i].text.empty()) specials[i].text = absl::StrFormat("<SPECIAL_%d>", i);
  }
  return specials;
}

// Pieces with rank < size, each exactly once; ids begin after the special tokens.
absl::Status ReadPieces(const Json& file, int64_t size, int64_t first_id, const std::string& name,
                        TokenizerModel* model) {
  const Json* vocab = file.Find("vocab");
  if (vocab == nullptr || !vocab->is_array()) return InvalidArgument("%s has no vocab", name);
  std::vector<bool> seen(
      static_cast<size_t>(std::min<int64_t>(size, static_cast<int64_t>(vocab->as_array().size()))));
  if (static_cast<int64_t>(seen.size()) < size) {
    return InvalidArgument("%s: config asks for %d pieces, vocab has %d", name, size, seen.size());
  }
  for (const Json& entry : vocab->as_array()) {
    const Json* rank_value = entry.Find("rank");
    const std::optional<int64_t> rank =
        rank_value == nullptr ? std::nullopt : rank_value->ToInt64();
    if (!rank.has_value() || *rank < 0) return InvalidArgument("%s: a piece has no rank", name);
    if (*rank >= size) continue;
    const Json* base64 = entry.Find("token_bytes");
    std::optional<std::string> bytes = base64 == nullptr || !base64->is_string()
                                           ? std::nullopt
                                           : DecodeBase64(base64->as_string());
    if (!bytes.has_value() || bytes->empty()) {
      return InvalidArgument("%s: token_bytes of the piece of rank %d is not base64", name, *rank);
    }
    if (seen[static_cast<size_t>(*rank)]) {
      return InvalidArgument("%s: two pieces have rank %d", name, *rank);
    }
    seen[static_cast<size_t>(*rank)] = true;
    model->vocab.push_back(
        {.piece = std::move(*bytes), .id = static_cast<int32_t>(first_id + *rank)});
  }
  const auto missing = std::find(seen.begin(), seen.end(), false);
  if (missing != seen.end()) {
    return InvalidArgument("%s: no piece has rank %d", name, missing - seen.begin());
  }
  return absl::OkStatus();
}

}  // namespace

bool LooksLikeTekken(const Json& file) {
  const Json* config = file.Find("config");
  return config != nullptr && config->Find("pattern") != nullptr && file.Find("vocab") != nullptr &&
         file.Find("model") == nullptr;
}

absl::StatusOr<TokenizerSpec> SpecFromTekken(const Json& file, const std::string& name) {
  const Json* config = file.Find("config");
  const Json* pattern = config == nullptr ? nullptr : config->Find("pattern");
  if (pattern == nullptr || !pattern->is_string()) {
    return InvalidArgument("%s has no config.pattern", name);
  }
  ASSIGN_OR_RETURN(const int64_t total, Count(*config, "default_vocab_size", name));
  ASSIGN_OR_RETURN(const int64_t num_specials, Count(*config, "default_num_special_tokens", name));
  if (num_specials > total || num_specials > 1'000'000) {
    return InvalidArgument("%s: %d special tokens in a vocabulary of %d", name, num_specials,
                           total);
  }
  TokenizerSpec spec;
  spec.model.kind = TokenizerModel::Kind::kTiktoken;
  RETURN_IF_ERROR(ReadPieces(file, total - num_specials, num_specials, name, &spec.model));
  ASSIGN_OR_RETURN(const std::vector<Special> specials, ReadSpecials(file, num_specials, name));
  for (size_t i = 0; i < specials.size(); ++i) {
    AddedToken token;
    token.id = static_cast<int32_t>(i);
    token.content = specials[i].text;
    token.special = true;
    token.in_text = false;
    const std::string_view text = specials[i].text;
    if (text == "<s>") spec.bos_id = token.id;
    if (text == "</s>") spec.eos_id = token.id;
    if (text == "<s>") spec.special_tokens.emplace_back("bos_token", text);
    if (text == "</s>") spec.special_tokens.emplace_back("eos_token", text);
    if (text == "<unk>") spec.special_tokens.emplace_back("unk_token", text);
    if (text == "<pad>") spec.special_tokens.emplace_back("pad_token", text);
    spec.added_tokens.push_back(std::move(token));
  }
  spec.add_bos = spec.bos_id.has_value();
  PreTokenizerStep split;
  split.kind = PreTokenizerStep::Kind::kSplit;
  split.pattern = {.text = pattern->as_string(), .is_regex = true};
  split.behavior = SplitBehavior::kIsolated;
  spec.pre_tokenizer.push_back(std::move(split));
  return spec;
}

void RecogniseTekkenSpecials(TokenizerSpec* spec) {
  for (AddedToken& token : spec->added_tokens) token.in_text = true;
}

}  // namespace penstock
