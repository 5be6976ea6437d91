#pragma once

// What a tokenizer is, as plain data: every loader (tokenizer.json, GGUF, SentencePiece, tiktoken,
// tekken) fills one of these, and Tokenizer::Create checks it and makes it fast. Sequences of steps
// are flat lists, applied from the first to the last. All text is UTF-8 except where bytes are
// said.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

// A token that is found in the text itself, before the model sees any of it.
struct AddedToken {
  int32_t id = -1;
  std::string content;       // never empty
  bool single_word = false;  // matches only where neither neighbour is a word character
  bool lstrip = false;       // swallows the white space before it
  bool rstrip = false;       // swallows the white space after it
  bool normalized = false;   // is looked for in the normalised text, itself normalised
  bool special = false;      // a control token: left out by Decode(skip_special)
  bool in_text = true;       // false: never found in text, only an id (tekken, as its library does)
};

// A literal or a regular expression (Oniguruma's syntax, as Hugging Face's files have it).
struct Pattern {
  std::string text;
  bool is_regex = false;
};

struct NormalizerStep {
  enum class Kind {
    kNfc,
    kNfc14,  // by Unicode 14, as Python 3.11; the other forms by Unicode 9, as Hugging Face
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStrip,          // strip_left, strip_right: white space at the ends
    kStripAccents,   // drops combining marks (Mn)
    kPrepend,        // content before a text that is not empty
    kReplace,        // pattern -> content
    kPrecompiled,    // charsmap, with Hugging Face's way of matching it (by grapheme)
    kBert,           // clean_text, handle_chinese_chars, strip_accents, lowercase
    kNmt,            // drops control characters, maps exotic spaces to ' '
    kByteLevel,      // every byte becomes the character that GPT-2 gives it
    kSentencePiece,  // charsmap and the five sentencepiece flags, as that library normalises
  };
  Kind kind = Kind::kNfc;
  bool strip_left = true;
  bool strip_right = true;
  std::string content;
  Pattern pattern;
  std::string charsmap;  // bytes: u32 size of the trie, the trie, the replacements; may be empty
  bool clean_text = true;
  bool handle_chinese_chars = true;
  std::optional<bool> strip_accents;  // unset: as lowercase
  bool lowercase = true;
  // kSentencePiece only.
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool treat_whitespace_as_suffix = false;
  std::vector<std::string> user_symbols;  // pieces that normalisation leaves as they are
};

enum class SplitBehavior {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

struct PreTokenizerStep {
  enum class Kind {
    kSplit,        // pattern, behavior, invert
    kByteLevel,    // add_prefix_space, use_regex (GPT-2's pattern)
    kMetaspace,    // replacement, prepend_scheme, split
    kDigits,       // individual_digits
    kPunctuation,  // behavior
    kBert,
    kWhitespace,  // \w+|[^\w\s]+
    kWhitespaceSplit,
    kCharDelimiterSplit,  // delimiter
    kUnicodeScripts,
    kFixedLength,  // length, in characters
  };
  enum class Prepend { kFirst, kNever, kAlways };
  Kind kind = Kind::kSplit;
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
  bool add_prefix_space = true;
  bool use_regex = true;
  std::string replacement = "\xE2\x96\x81";  // one character; U+2581
  Prepend prepend_scheme = Prepend::kAlways;
  bool split = true;
  bool individual_digits = false;
  std::string delimiter;  // one character
  int64_t length = 5;
};

struct DecoderStep {
  enum class Kind {
    kByteLevel,
    kByteFallback,
    kFuse,
    kStrip,          // content (one character), start, stop: how many to drop at each end
    kReplace,        // pattern -> content
    kMetaspace,      // content = the replacement; drop_first: unless the scheme is never
    kWordPiece,      // prefix, cleanup
    kBpe,            // suffix
    kCtc,            // pad_token, word_delimiter_token, cleanup
    kSentencePiece,  // as that library decodes (drop_first: the dummy prefix)
  };
  Kind kind = Kind::kFuse;
  std::string content;
  Pattern pattern;
  int64_t start = 0;
  int64_t stop = 0;
  bool drop_first = true;
  bool drop_all_first = false;  // kSentencePiece: one from every piece until something is printed
  std::string prefix = "##";
  bool cleanup = true;
  std::string suffix = "</w>";
  std::string pad_token = "<pad>";
  std::string word_delimiter_token = "|";
};

// What add_special puts around the text: each item is the text itself or some ids.
struct TemplateItem {
  bool is_text = false;
  std::vector<int32_t> ids;
};

struct VocabEntry {
  std::string piece;  // bytes for kTiktoken, else UTF-8
  int32_t id = -1;
  double score = 0;  // kUnigram and kSentencePiece*
};

// How sentencepiece files class a piece; every other format has kNormal only.
enum class PieceType : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct TokenizerModel {
  enum class Kind {
    kBpe,      // vocab + merges (Hugging Face, GGUF "gpt2")
    kUnigram,  // Hugging Face's Viterbi; entries in id order
    kWordPiece,
    kWordLevel,
    kTiktoken,          // vocab of bytes; of two neighbours' concatenations the lowest id merges
    kSentencePieceBpe,  // vocab with scores: the highest score merges; piece_types
    kSentencePieceUnigram,  // sentencepiece's Viterbi; piece_types
  };
  Kind kind = Kind::kBpe;
  std::vector<VocabEntry> vocab;  // any order; ids need not be dense
  // kSentencePiece*: the type of vocab[i], or empty when all are normal.
  std::vector<PieceType> piece_types;
  // kBpe: pieces to merge, the most eager first. Both and their concatenation (the right one
  // without continuing_subword_prefix) must be in vocab.
  std::vector<std::pair<std::string, std::string>> merges;
  std::optional<std::string> unk_token;        // kBpe, kWordPiece, kWordLevel: a piece of vocab
  std::optional<int32_t> unk_id;               // kUnigram, kSentencePiece*
  std::string unk_surface = " \xE2\x81\x87 ";  // kSentencePiece*: what unk_id prints
  bool byte_fallback = false;              // a missing character becomes its bytes' <0xNN> pieces
  bool fuse_unk = false;                   // kBpe: unk next to unk is one token
  bool ignore_merges = false;              // kBpe: a pre-token that is a piece is that token
  std::string continuing_subword_prefix;   // kBpe, kWordPiece ("##")
  std::string end_of_word_suffix;          // kBpe ("</w>")
  int64_t max_input_chars_per_word = 100;  // kWordPiece
  // What a token means when the file has no decoder of its own: kTiktoken pieces are bytes.
};

struct TokenizerSpec {
  std::vector<AddedToken> added_tokens;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  TokenizerModel model;
  // Each wraps the result of the one before. Empty: add_bos and add_eos decide.
  std::vector<std::vector<TemplateItem>> post_processor;
  // Empty and not kTiktoken: tokens joined by ' ', as Hugging Face does without a decoder.
  std::vector<DecoderStep> decoder;

  // Named special tokens in file order: {"bos_token", "<s>"}, {"pad_token", "<pad>"}, ...
  std::vector<std::pair<std::string, std::string>> special_tokens;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  // With no post_processor: Encode(add_special) puts bos_id first, eos_id last.
  bool add_bos = false;
  bool add_eos = false;
};

}  // namespace penstock
