#include "common/text/tiktoken_file.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

#include "common/base/sha256.h"
#include "common/base/status.h"
#include "common/text/base64.h"
#include "common/text/known_patterns.h"

namespace penstock {
namespace {

using Specials = std::vector<std::pair<std::string, int32_t>>;

// The languages of Whisper's language tokens, in their order.
constexpr std::string_view kWhisperLanguages =
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th "
    "ur hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr "
    "pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt "
    "haw ln ha ba jw su";

void Append(Specials* specials, std::string text) {
  const int32_t id = specials->back().second + 1;
  specials->emplace_back(std::move(text), id);
}

Specials WhisperSpecials(int32_t first) {
  Specials specials = {{"<|endoftext|>", first}};
  Append(&specials, "<|startoftranscript|>");
  std::string_view rest = kWhisperLanguages;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    Append(&specials, "<|" + std::string(rest.substr(0, end)) + "|>");
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  for (const char* name :
       {"translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"}) {
    Append(&specials, absl::StrFormat("<|%s|>", name));
  }
  for (int i = 0; i <= 1500; ++i) {
    Append(&specials, absl::StrFormat("<|%d.%02d|>", i / 50, i % 50 * 2));
  }
  return specials;
}

Specials QwenSpecials() {
  Specials specials = {{"<|endoftext|>", 151643}};
  Append(&specials, "<|im_start|>");
  Append(&specials, "<|im_end|>");
  for (int i = 0; i < 205; ++i) Append(&specials, absl::StrFormat("<|extra_%d|>", i));
  return specials;
}

enum class Family { kGpt2, kP50k, kCl100k, kO200k, kWhisper, kQwen };

struct KnownFile {
  std::string_view sha256;
  Family family = Family::kGpt2;
};

constexpr KnownFile kKnownFiles[] = {
    {"306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930", Family::kGpt2},
    {"94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069", Family::kP50k},
    {"223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7", Family::kCl100k},
    {"446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d", Family::kO200k},
    {"b34b360dbb493e781e479794586d661700670d65564001f23024971d1f2fa126", Family::kWhisper},
    {"b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186", Family::kQwen},
};

struct Rules {
  std::string pattern;
  Specials specials;
  bool nfc = false;
};

Rules RulesOf(Family family) {
  switch (family) {
    case Family::kGpt2:
      // English Whisper ships the same file; its own tokens lie above GPT-2's ids.
      return {std::string(kGpt2Pattern), WhisperSpecials(50256)};
    case Family::kP50k:
      return {std::string(kGpt2Pattern), {{"<|endoftext|>", 50256}}};
    case Family::kCl100k:
      return {std::string(kCl100kPattern),
              {{"<|endoftext|>", 100257},
               {"<|fim_prefix|>", 100258},
               {"<|fim_middle|>", 100259},
               {"<|fim_suffix|>", 100260},
               {"<|endofprompt|>", 100276}}};
    case Family::kO200k:
      return {std::string(kO200kPattern), {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}};
    case Family::kWhisper:
      return {std::string(kGpt2Pattern), WhisperSpecials(50257)};
    case Family::kQwen:
      return {std::string(kQwen2Pattern), QwenSpecials(), true};
  }
  return {};
}

std::optional<int64_t> ParseInt(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// added_tokens_decoder: {"151643": {"content": "<|endoftext|>", ...}, ...}.
absl::StatusOr<Specials> SpecialsFromConfig(const Json& config, const std::string& name) {
  Specials specials;
  if (const Json* map = config.Find("special_tokens"); map != nullptr && map->is_object()) {
    for (const JsonMember& member : map->as_object()) {
      const std::optional<int64_t> id = member.value.ToInt64();
      if (!id.has_value() || *id < 0 || *id > std::numeric_limits<int32_t>::max()) {
        return InvalidArgument("%s: special_tokens['%s'] in the config beside it is no id", name,
                               member.key);
      }
      specials.emplace_back(member.key, static_cast<int32_t>(*id));
    }
    return specials;
  }
  const Json* decoder = config.Find("added_tokens_decoder");
  if (decoder == nullptr || !decoder->is_object()) return specials;
  for (const JsonMember& member : decoder->as_object()) {
    const std::optional<int64_t> id = ParseInt(member.key);
    const Json* content = member.value.Find("content");
    if (!id.has_value() || *id < 0 || *id > std::numeric_limits<int32_t>::max() ||
        content == nullptr || !content->is_string()) {
      return InvalidArgument("%s: added_tokens_decoder['%s'] in the config beside it is no token",
                             name, member.key);
    }
    specials.emplace_back(content->as_string(), static_cast<int32_t>(*id));
  }
  return specials;
}

absl::StatusOr<Rules> FindRules(std::string_view bytes, const Json* config,
                                const std::string& name) {
  const std::string hash = HexEncode(Sha256(bytes));
  for (const KnownFile& known : kKnownFiles) {
    if (known.sha256 == hash) return RulesOf(known.family);
  }
  if (config != nullptr) {
    ASSIGN_OR_RETURN(Specials specials, SpecialsFromConfig(*config, name));
    const Json* pattern = config->Find("pat_str");
    if (pattern != nullptr && pattern->is_string()) {
      return Rules{pattern->as_string(), std::move(specials)};
    }
    const Json* type = config->Find("tokenizer_class");
    if (type != nullptr && *type == Json("QWenTokenizer")) {
      Rules rules = RulesOf(Family::kQwen);
      if (!specials.empty()) rules.specials = std::move(specials);
      return rules;
    }
  }
  return Unimplemented(
      "%s (sha256 %s) is no known .tiktoken file, and such a file holds neither its pattern nor "
      "its "
      "special tokens: put a tokenizer_config.json with \"pat_str\" and \"special_tokens\" beside "
      "it, or use the model's tokenizer.json",
      name, hash);
}

// The next line without its end; false at the end of the file.
bool NextLine(std::string_view* rest, std::string_view* line) {
  if (rest->empty()) return false;
  const size_t end = std::min(rest->find('\n'), rest->size());
  *line = rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  while (!line->empty() && (line->back() == '\r' || line->back() == ' ')) line->remove_suffix(1);
  return true;
}

bool ParseLine(std::string_view line, VocabEntry* entry) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return false;
  std::string_view text = line.substr(0, space);
  // Whisper's file ends in a token of no bytes, written "=".
  if (text == "=") text = {};
  std::optional<std::string> bytes = DecodeBase64(text);
  const std::optional<int64_t> rank = ParseInt(line.substr(space + 1));
  if (space == 0 || !bytes.has_value() || !rank.has_value() || *rank < 0 ||
      *rank > std::numeric_limits<int32_t>::max()) {
    return false;
  }
  entry->piece = std::move(*bytes);
  entry->id = static_cast<int32_t>(*rank);
  return true;
}

}  // namespace

bool LooksLikeTiktoken(std::string_view bytes) {
  std::string_view rest = bytes.substr(0, 4096);
  std::string_view line;
  VocabEntry entry;
  while (NextLine(&rest, &line)) {
    if (!line.empty()) return ParseLine(line, &entry);
  }
  return false;
}

absl::StatusOr<TokenizerSpec> SpecFromTiktoken(std::string_view bytes, const Json* config,
                                               const std::string& name) {
  TokenizerSpec spec;
  spec.model.kind = TokenizerModel::Kind::kTiktoken;
  std::string_view rest = bytes;
  std::string_view line;
  std::set<int32_t> ids;
  for (int number = 1; NextLine(&rest, &line); ++number) {
    if (line.empty()) continue;
    VocabEntry entry;
    if (!ParseLine(line, &entry)) {
      return InvalidArgument("%s: line %d is not base64 and a rank", name, number);
    }
    if (!ids.insert(entry.id).second) {
      return InvalidArgument("%s: rank %d is there twice (line %d)", name, entry.id, number);
    }
    spec.model.vocab.push_back(std::move(entry));
  }
  ASSIGN_OR_RETURN(Rules rules, FindRules(bytes, config, name));
  for (auto& [text, id] : rules.specials) {
    if (ids.contains(id)) {
      return InvalidArgument("%s: id %d is both a piece and the special token '%s'", name, id,
                             text);
    }
    if (text == "<|endoftext|>") {
      spec.eos_id = id;
      spec.special_tokens.emplace_back("eos_token", text);
    }
    AddedToken token;
    token.id = id;
    token.content = std::move(text);
    token.special = true;
    spec.added_tokens.push_back(std::move(token));
  }
  if (rules.nfc) spec.normalizer.push_back({.kind = NormalizerStep::Kind::kNfc14});
  PreTokenizerStep split;
  split.kind = PreTokenizerStep::Kind::kSplit;
  split.pattern = {.text = std::move(rules.pattern), .is_regex = true};
  split.behavior = SplitBehavior::kIsolated;
  spec.pre_tokenizer.push_back(std::move(split));
  return spec;
}

}  // namespace penstock
