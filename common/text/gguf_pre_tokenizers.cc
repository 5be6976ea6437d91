#include "common/text/gguf_pre_tokenizers.h"

#include <initializer_list>

#include "common/text/known_patterns.h"

namespace penstock {
namespace {

// Cased letters, Han and punctuation as DeepSeek's first tokenizers spell them out.
constexpr std::string_view kDeepSeekLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr std::string_view kDeepSeekPunctuation = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr std::string_view kDeepSeekHan = R"([一-龥ࠀ-一가-퟿]+)";
constexpr std::string_view kBloomPattern = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";
constexpr std::string_view kSeedCoderPattern =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+"
    "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kBailingPattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";

PreTokenizerStep Split(std::string_view regex) {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kSplit;
  step.pattern = {.text = std::string(regex), .is_regex = true};
  step.behavior = SplitBehavior::kIsolated;
  return step;
}

PreTokenizerStep Digits(bool individual) {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kDigits;
  step.individual_digits = individual;
  return step;
}

PreTokenizerStep ByteLevel(bool use_regex) {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kByteLevel;
  step.add_prefix_space = false;
  step.use_regex = use_regex;
  return step;
}

PreTokenizerStep ContiguousPunctuation() {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kPunctuation;
  step.behavior = SplitBehavior::kContiguous;
  return step;
}

std::vector<PreTokenizerStep> Splits(std::initializer_list<std::string_view> patterns) {
  std::vector<PreTokenizerStep> steps;
  for (const std::string_view pattern : patterns) steps.push_back(Split(pattern));
  steps.push_back(ByteLevel(false));
  return steps;
}

enum class Family {
  kGpt2,
  kDigitsGpt2,
  kLlama3,
  kQwen2,
  kGpt4o,
  kTekken,
  kDeepSeekLlm,
  kDeepSeekCoder,
  kDeepSeek3,
  kFalcon,
  kBloom,
  kViking,
  kSeedCoder,
  kBailing,
};

struct Entry {
  std::string_view name;
  Family family = Family::kGpt2;
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;
};

constexpr Entry kEntries[] = {
    {.name = "gpt-2", .family = Family::kGpt2},
    {.name = "phi-2", .family = Family::kGpt2},
    {.name = "jina-es", .family = Family::kGpt2},
    {.name = "jina-de", .family = Family::kGpt2},
    {.name = "jina-v2-es", .family = Family::kGpt2},
    {.name = "jina-v2-de", .family = Family::kGpt2},
    {.name = "jina-v1-en", .family = Family::kGpt2},
    {.name = "jina-v2-code", .family = Family::kGpt2},
    {.name = "roberta-bpe", .family = Family::kGpt2},
    {.name = "jais", .family = Family::kGpt2},
    {.name = "trillion", .family = Family::kGpt2},
    {.name = "granite-docling", .family = Family::kGpt2},
    {.name = "mpt", .family = Family::kGpt2, .nfc = true},
    {.name = "olmo", .family = Family::kGpt2, .nfc = true},
    {.name = "modern-bert", .family = Family::kGpt2, .nfc = true},
    {.name = "smollm", .family = Family::kDigitsGpt2},
    {.name = "starcoder", .family = Family::kDigitsGpt2},
    {.name = "refact", .family = Family::kDigitsGpt2},
    {.name = "codeshell", .family = Family::kDigitsGpt2},
    {.name = "exaone", .family = Family::kDigitsGpt2},
    {.name = "minerva-7b", .family = Family::kDigitsGpt2},
    {.name = "command-r", .family = Family::kDigitsGpt2, .nfc = true},
    {.name = "llama3", .family = Family::kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "llama-v3", .family = Family::kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "llama-bpe", .family = Family::kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "lfm2", .family = Family::kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "smaug-bpe", .family = Family::kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "dbrx", .family = Family::kLlama3},
    {.name = "chatglm-bpe", .family = Family::kLlama3},
    {.name = "glm4", .family = Family::kLlama3},
    {.name = "qwen2", .family = Family::kQwen2, .nfc = true},
    {.name = "deepseek-r1-qwen", .family = Family::kQwen2, .nfc = true},
    {.name = "stablelm2", .family = Family::kQwen2},
    {.name = "hunyuan", .family = Family::kQwen2},
    {.name = "grok-2", .family = Family::kQwen2},
    {.name = "gpt-4o", .family = Family::kGpt4o, .ignore_merges = true},
    {.name = "llama4", .family = Family::kGpt4o, .ignore_merges = true},
    {.name = "tekken", .family = Family::kTekken, .ignore_merges = true, .add_bos = true},
    {.name = "deepseek-llm", .family = Family::kDeepSeekLlm},
    {.name = "deepseek-coder", .family = Family::kDeepSeekCoder},
    {.name = "deepseek-v3", .family = Family::kDeepSeek3},
    {.name = "hunyuan-dense", .family = Family::kDeepSeek3},
    {.name = "falcon", .family = Family::kFalcon},
    {.name = "bloom", .family = Family::kBloom},
    {.name = "poro-chat", .family = Family::kBloom},
    {.name = "gpt3-finnish", .family = Family::kBloom},
    {.name = "viking", .family = Family::kViking},
    {.name = "seed-coder", .family = Family::kSeedCoder},
    {.name = "bailingmoe", .family = Family::kBailing},
};

std::vector<PreTokenizerStep> StepsOf(Family family) {
  switch (family) {
    case Family::kGpt2:
      return {ByteLevel(true)};
    case Family::kDigitsGpt2:
      return {Digits(true), ByteLevel(true)};
    case Family::kLlama3:
      return Splits({kLlama3Pattern});
    case Family::kQwen2:
      return Splits({kQwen2Pattern});
    case Family::kGpt4o:
      return Splits({kO200kPattern});
    case Family::kTekken:
      return Splits({kTekkenPattern});
    case Family::kDeepSeekLlm:
      return {Split("[\r\n]"),  Split(kDeepSeekLetters), Split(kDeepSeekPunctuation),
              Split(R"(\s+$)"), Split(kDeepSeekHan),     Digits(true),
              ByteLevel(false)};
    case Family::kDeepSeekCoder:
      return {Split("[\r\n]"),     Split(R"(\s?\p{L}+)"), Split(R"(\s?\p{P}+)"),
              Split(kDeepSeekHan), Digits(true),          ByteLevel(false)};
    case Family::kDeepSeek3:
      return Splits({R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepSeek3Pattern});
    case Family::kFalcon:
      return {ContiguousPunctuation(), ByteLevel(true), Digits(false), Split("[0-9][0-9][0-9]")};
    case Family::kBloom:
      return Splits({kBloomPattern});
    case Family::kViking:
      return {Split(kBloomPattern), Digits(true), ByteLevel(false)};
    case Family::kSeedCoder:
      return Splits({kSeedCoderPattern});
    case Family::kBailing:
      return Splits({kBailingPattern});
  }
  return {};
}

}  // namespace

std::optional<GgufPreTokenizer> FindGgufPreTokenizer(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name != name) continue;
    GgufPreTokenizer found;
    if (entry.nfc) found.normalizer.push_back({.kind = NormalizerStep::Kind::kNfc});
    found.steps = StepsOf(entry.family);
    found.ignore_merges = entry.ignore_merges;
    found.add_bos = entry.add_bos;
    return found;
  }
  return std::nullopt;
}

std::string KnownGgufPreTokenizers() {
  std::string names;
  for (const Entry& entry : kEntries) {
    if (!names.empty()) names += ", ";
    names += entry.name;
  }
  return names;
}

}  // namespace penstock
