#include "common/text/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "common/base/status.h"

namespace penstock {
namespace {

std::optional<int32_t> IdOf(const TokenizerSpec& spec, std::string_view text) {
  for (const AddedToken& token : spec.added_tokens) {
    if (token.content == text) return token.id;
  }
  for (const VocabEntry& entry : spec.model.vocab) {
    if (entry.piece == text) return entry.id;
  }
  return std::nullopt;
}

bool BoolOf(const Json& object, const char* key) {
  const Json* value = object.Find(key);
  return value != nullptr && value->is_bool() && value->as_bool();
}

// Replaces the added token with this id, or joins.
void SetAddedToken(AddedToken token, TokenizerSpec* spec) {
  for (AddedToken& existing : spec->added_tokens) {
    if (existing.id != token.id) continue;
    existing = std::move(token);
    return;
  }
  spec->added_tokens.push_back(std::move(token));
}

}  // namespace

absl::StatusOr<Json> ParseModelJson(std::string_view text, const std::string& name) {
  absl::StatusOr<Json> parsed = Json::Parse(text, {.max_depth = 100});
  if (!parsed.ok()) return InvalidArgument("%s: %s", name, parsed.status().message());
  if (!parsed->is_object()) {
    return InvalidArgument("%s is not a JSON object but %s", name, parsed->type_name());
  }
  return parsed;
}

std::string TokenText(const Json* token) {
  if (token == nullptr) return "";
  if (token->is_string()) return token->as_string();
  const Json* content = token->Find("content");
  return content != nullptr && content->is_string() ? content->as_string() : "";
}

void NameSpecialTokens(const Json& config, TokenizerSpec* spec) {
  for (const JsonMember& member : config.as_object()) {
    if (!member.key.ends_with("_token") || member.key.starts_with("add_")) continue;
    const std::string text = TokenText(&member.value);
    if (text.empty()) continue;
    const auto named = std::find_if(spec->special_tokens.begin(), spec->special_tokens.end(),
                                    [&](const auto& pair) { return pair.first == member.key; });
    if (named == spec->special_tokens.end()) {
      spec->special_tokens.emplace_back(member.key, text);
    } else {
      named->second = text;
    }
    if (member.key == "bos_token") spec->bos_id = IdOf(*spec, text);
    if (member.key == "eos_token") spec->eos_id = IdOf(*spec, text);
  }
}

absl::Status ApplyTokenizerConfig(const Json& config, const std::string& name,
                                  TokenizerSpec* spec) {
  if (const Json* decoder = config.Find("added_tokens_decoder");
      decoder != nullptr && decoder->is_object()) {
    for (const JsonMember& member : decoder->as_object()) {
      AddedToken token;
      const char* end = member.key.data() + member.key.size();
      const auto [stop, error] = std::from_chars(member.key.data(), end, token.id);
      token.content = TokenText(&member.value);
      if (error != std::errc() || stop != end || token.id < 0 || token.content.empty()) {
        return InvalidArgument("%s: added_tokens_decoder['%s'] is no token", name, member.key);
      }
      token.single_word = BoolOf(member.value, "single_word");
      token.lstrip = BoolOf(member.value, "lstrip");
      token.rstrip = BoolOf(member.value, "rstrip");
      token.special = BoolOf(member.value, "special");
      SetAddedToken(std::move(token), spec);
    }
  }
  NameSpecialTokens(config, spec);
  const auto flag = [&](const char* key, bool* value) {
    const Json* set = config.Find(key);
    if (set != nullptr && set->is_bool()) *value = set->as_bool();
  };
  flag("add_bos_token", &spec->add_bos);
  flag("add_eos_token", &spec->add_eos);
  spec->add_bos = spec->add_bos && spec->bos_id.has_value();
  spec->add_eos = spec->add_eos && spec->eos_id.has_value();
  return absl::OkStatus();
}

absl::Status AddTokens(const Json& added, const std::string& name, TokenizerSpec* spec) {
  for (const JsonMember& member : added.as_object()) {
    const std::optional<int64_t> id = member.value.ToInt64();
    if (!id.has_value() || *id < 0 || *id > std::numeric_limits<int32_t>::max() ||
        member.key.empty()) {
      return InvalidArgument("%s: '%s' has no id", name, member.key);
    }
    if (IdOf(*spec, member.key) == static_cast<int32_t>(*id)) continue;
    AddedToken token;
    token.id = static_cast<int32_t>(*id);
    token.content = member.key;
    SetAddedToken(std::move(token), spec);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> TemplatesOfConfig(
    const Json& config, const std::string& name) {
  std::vector<std::pair<std::string, std::string>> templates;
  const Json* value = config.Find("chat_template");
  if (value == nullptr || value->is_null()) return templates;
  if (value->is_string()) {
    templates.emplace_back("default", value->as_string());
    return templates;
  }
  const auto add = [&](const Json* key, const Json* source) {
    if (key == nullptr || source == nullptr || !key->is_string() || !source->is_string()) {
      return false;
    }
    auto entry = std::make_pair(key->as_string(), source->as_string());
    templates.insert(entry.first == "default" ? templates.begin() : templates.end(),
                     std::move(entry));
    return true;
  };
  bool good = value->is_array() || value->is_object();
  if (value->is_array()) {
    for (const Json& entry : value->as_array()) {
      good = good && add(entry.Find("name"), entry.Find("template"));
    }
  } else if (value->is_object()) {
    for (const JsonMember& member : value->as_object()) {
      const Json key(member.key);
      good = good && add(&key, &member.value);
    }
  }
  if (!good) {
    return InvalidArgument("%s: chat_template is neither a template nor a list of {name, template}",
                           name);
  }
  return templates;
}

}  // namespace penstock
