// The loaders of GGUF, SentencePiece, tiktoken and tekken vocabularies: what they make of small
// files, and that damaged ones are refused by name. That the ids are right is the business of
// vocabularies_test.py, against the reference libraries.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/text/base64.h"
#include "common/text/gguf_pre_tokenizers.h"
#include "common/text/gguf_vocab.h"
#include "common/text/sentencepiece_model.h"
#include "common/text/tekken_json.h"
#include "common/text/tiktoken_file.h"
#include "tests/common/formats/bytes.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(Base64, DecodesAndRefuses) {
  EXPECT_EQ(DecodeBase64(""), "");
  EXPECT_EQ(DecodeBase64("AA=="), std::string(1, '\0'));
  EXPECT_EQ(DecodeBase64("SGk="), "Hi");
  EXPECT_EQ(DecodeBase64("SGkh"), "Hi!");
  EXPECT_EQ(DecodeBase64("/+8="), "\xff\xef");
  EXPECT_EQ(DecodeBase64("SGk"), std::nullopt);
  EXPECT_EQ(DecodeBase64("S==="), std::nullopt);
  EXPECT_EQ(DecodeBase64("SG k"), std::nullopt);
  EXPECT_EQ(DecodeBase64("SG=k"), std::nullopt);
}

// ---- GGUF ----

class Metadata {
 public:
  Metadata& Text(std::string_view key, std::string_view value) {
    Key(key, 8).String(value);
    return *this;
  }
  Metadata& Uint(std::string_view key, uint32_t value) {
    Key(key, 4).Put(value);
    return *this;
  }
  Metadata& Bool(std::string_view key, bool value) {
    Key(key, 7).Put(value);
    return *this;
  }
  Metadata& Texts(std::string_view key, const std::vector<std::string>& values) {
    Key(key, 9).Put(uint32_t{8}).Put(uint64_t{values.size()});
    for (const std::string& value : values) body_.String(value);
    return *this;
  }
  Metadata& Ints(std::string_view key, const std::vector<int32_t>& values) {
    Key(key, 9).Put(uint32_t{5}).Put(uint64_t{values.size()});
    for (const int32_t value : values) body_.Put(value);
    return *this;
  }
  Metadata& Floats(std::string_view key, const std::vector<float>& values) {
    Key(key, 9).Put(uint32_t{6}).Put(uint64_t{values.size()});
    for (const float value : values) body_.Put(value);
    return *this;
  }
  std::unique_ptr<GgufFile> File() const {
    Bytes bytes;
    bytes.Raw("GGUF").Put(uint32_t{3}).Put(uint64_t{0}).Put(count_).Raw(body_.str());
    auto file = GgufFile::FromMemory("x.gguf", bytes.str());
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }

 private:
  Bytes& Key(std::string_view key, uint32_t type) {
    ++count_;
    return body_.String(key).Put(type);
  }
  Bytes body_;
  uint64_t count_ = 0;
};

Metadata Gpt2(std::string_view pre) {
  Metadata m;
  m.Text("tokenizer.ggml.model", "gpt2").Text("tokenizer.ggml.pre", pre);
  m.Texts("tokenizer.ggml.tokens", {"<|endoftext|>", "a", "b", "ab", "<think>", "<|im_end|>"});
  m.Ints("tokenizer.ggml.token_type", {3, 1, 1, 1, 4, 3});
  m.Uint("tokenizer.ggml.eos_token_id", 0).Uint("tokenizer.ggml.bos_token_id", 0);
  return m;
}

std::string ErrorOf(const Metadata& metadata) {
  const auto spec = TokenizerSpecFromGguf(*metadata.File());
  return spec.ok() ? "accepted" : std::string(spec.status().message());
}

TEST(GgufVocab, ByteLevelBpe) {
  Metadata m = Gpt2("llama-bpe");
  m.Texts("tokenizer.ggml.merges", {"a b"});
  const auto spec = TokenizerSpecFromGguf(*m.File());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.kind, TokenizerModel::Kind::kBpe);
  EXPECT_TRUE(spec->model.ignore_merges);
  EXPECT_THAT(spec->model.merges, ElementsAre(Pair("a", "b")));
  EXPECT_FALSE(spec->model.unk_token.has_value());
  ASSERT_EQ(spec->added_tokens.size(), 3u);
  EXPECT_TRUE(spec->added_tokens[0].special);
  EXPECT_EQ(spec->added_tokens[1].content, "<think>");
  EXPECT_FALSE(spec->added_tokens[1].special);
  EXPECT_TRUE(spec->add_bos);
  EXPECT_THAT(spec->special_tokens,
              ElementsAre(Pair("bos_token", "<|endoftext|>"), Pair("eos_token", "<|endoftext|>")));
  m.Bool("tokenizer.ggml.add_bos_token", false);
  EXPECT_FALSE(TokenizerSpecFromGguf(*m.File())->add_bos);
}

TEST(GgufVocab, QwenNormalisesSmolLmDoesNot) {
  Metadata qwen = Gpt2("qwen2");
  qwen.Texts("tokenizer.ggml.merges", {});
  EXPECT_EQ(TokenizerSpecFromGguf(*qwen.File())->normalizer.size(), 1u);
  Metadata smollm = Gpt2("smollm");
  smollm.Texts("tokenizer.ggml.merges", {});
  const auto spec = TokenizerSpecFromGguf(*smollm.File());
  EXPECT_TRUE(spec->normalizer.empty());
  ASSERT_EQ(spec->pre_tokenizer.size(), 2u);
  EXPECT_EQ(spec->pre_tokenizer[0].kind, PreTokenizerStep::Kind::kDigits);
  EXPECT_FALSE(spec->add_bos);
}

TEST(GgufVocab, RefusesWhatItDoesNotKnow) {
  Metadata unknown = Gpt2("surprise");
  unknown.Texts("tokenizer.ggml.merges", {});
  EXPECT_THAT(ErrorOf(unknown), HasSubstr("'surprise'"));
  EXPECT_EQ(TokenizerSpecFromGguf(*unknown.File()).status().code(),
            absl::StatusCode::kUnimplemented);
  Metadata unnamed;
  unnamed.Text("tokenizer.ggml.model", "gpt2").Texts("tokenizer.ggml.tokens", {"a"});
  EXPECT_THAT(ErrorOf(unnamed), HasSubstr("tokenizer.ggml.pre"));
  Metadata other;
  other.Text("tokenizer.ggml.model", "rwkv").Texts("tokenizer.ggml.tokens", {"a"});
  EXPECT_THAT(ErrorOf(other), HasSubstr("'rwkv'"));
  EXPECT_THAT(ErrorOf(Metadata()), HasSubstr("tokenizer.ggml.model"));
}

TEST(GgufVocab, RefusesArraysThatDisagree) {
  Metadata m;
  m.Text("tokenizer.ggml.model", "llama").Texts("tokenizer.ggml.tokens", {"a", "b"});
  EXPECT_THAT(ErrorOf(m), HasSubstr("tokenizer.ggml.scores"));
  m.Floats("tokenizer.ggml.scores", {0});
  EXPECT_THAT(ErrorOf(m), HasSubstr("1 values for 2 tokens"));
  Metadata type = Gpt2("gpt-2");
  type.Texts("tokenizer.ggml.merges", {"ab"});
  EXPECT_THAT(ErrorOf(type), HasSubstr("'ab'"));
  Metadata id;
  id.Text("tokenizer.ggml.model", "gpt2").Text("tokenizer.ggml.pre", "gpt-2");
  id.Texts("tokenizer.ggml.tokens", {"a"}).Uint("tokenizer.ggml.eos_token_id", 5);
  EXPECT_THAT(ErrorOf(id), HasSubstr("tokenizer.ggml.eos_token_id"));
  Metadata types;
  types.Text("tokenizer.ggml.model", "gpt2").Texts("tokenizer.ggml.tokens", {"a"});
  types.Ints("tokenizer.ggml.token_type", {9});
  EXPECT_THAT(ErrorOf(types), HasSubstr("token_type"));
}

TEST(GgufVocab, SentencePieceMarkersAreAddedTokens) {
  Metadata m;
  m.Text("tokenizer.ggml.model", "llama");
  m.Texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "\xE2\x96\x81", "<turn>", "  ", "<0x41>"});
  m.Floats("tokenizer.ggml.scores", {0, 0, -1, -2, -3, -4});
  m.Ints("tokenizer.ggml.token_type", {2, 3, 1, 4, 4, 6});
  m.Uint("tokenizer.ggml.bos_token_id", 1);
  const auto spec = TokenizerSpecFromGguf(*m.File());
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->added_tokens.size(), 2u);
  EXPECT_EQ(spec->added_tokens[0].content, "<s>");
  EXPECT_EQ(spec->added_tokens[1].content, "<turn>");
  EXPECT_EQ(spec->model.piece_types[3], PieceType::kUnused);
  EXPECT_EQ(spec->model.vocab[4].piece, "\xE2\x96\x81\xE2\x96\x81");
  EXPECT_THAT(spec->normalizer[0].user_symbols, ElementsAre("\xE2\x96\x81\xE2\x96\x81"));
  EXPECT_TRUE(spec->model.byte_fallback);
  EXPECT_TRUE(spec->add_bos);
  EXPECT_EQ(spec->model.unk_id, 0);
}

TEST(GgufVocab, WordPieceIsTurnedBack) {
  Metadata m;
  m.Text("tokenizer.ggml.model", "bert");
  m.Texts("tokenizer.ggml.tokens", {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "\xE2\x96\x81the", "ing"});
  m.Ints("tokenizer.ggml.token_type", {3, 2, 3, 3, 1, 1});
  m.Uint("tokenizer.ggml.unknown_token_id", 1).Uint("tokenizer.ggml.cls_token_id", 2);
  m.Uint("tokenizer.ggml.seperator_token_id", 3);
  const auto spec = TokenizerSpecFromGguf(*m.File());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.vocab[4].piece, "the");
  EXPECT_EQ(spec->model.vocab[5].piece, "##ing");
  EXPECT_EQ(spec->model.unk_token, "[UNK]");
  ASSERT_EQ(spec->post_processor.size(), 1u);
  EXPECT_EQ(spec->post_processor[0].size(), 3u);
}

TEST(GgufVocab, EosIsAUnion) {
  Metadata m = Gpt2("gpt-2");
  EXPECT_THAT(*EosIdsFromGguf(*m.File()), ElementsAre(0, 5));  // <|im_end|> by its name
  m.Uint("tokenizer.ggml.eot_token_id", 3);
  EXPECT_THAT(*EosIdsFromGguf(*m.File()), ElementsAre(0, 3));
  m.Uint("tokenizer.ggml.eom_token_id", 4);
  EXPECT_THAT(*EosIdsFromGguf(*m.File()), ElementsAre(0, 3, 4));
}

TEST(GgufVocab, Templates) {
  Metadata m;
  m.Text("tokenizer.chat_template", "A").Texts("tokenizer.chat_templates", {"tool_use"});
  EXPECT_FALSE(TemplatesFromGguf(*m.File()).ok());
  m.Text("tokenizer.chat_template.tool_use", "B");
  EXPECT_THAT(*TemplatesFromGguf(*m.File()),
              ElementsAre(Pair("default", "A"), Pair("tool_use", "B")));
  EXPECT_TRUE(TemplatesFromGguf(*Metadata().File())->empty());
}

TEST(GgufPreTokenizers, NamesAreKnownOnce) {
  EXPECT_TRUE(FindGgufPreTokenizer("tekken")->ignore_merges);
  EXPECT_EQ(FindGgufPreTokenizer("deepseek-v3")->steps.size(), 4u);
  EXPECT_FALSE(FindGgufPreTokenizer("").has_value());
  EXPECT_FALSE(FindGgufPreTokenizer("default").has_value());
}

// ---- SentencePiece ----

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
  return out;
}
std::string Field(int number, std::string_view bytes) {
  return Varint(static_cast<uint64_t>(number) << 3 | 2) + Varint(bytes.size()) + std::string(bytes);
}
std::string Field(int number, uint64_t value) {
  return Varint(static_cast<uint64_t>(number) << 3) + Varint(value);
}
std::string Piece(std::string_view text, float score, uint64_t type) {
  std::string body = Field(1, text) + Varint(2 << 3 | 5);
  body.append(reinterpret_cast<const char*>(&score), sizeof(score));
  return Field(1, body + Field(3, type));
}

std::string SmallModel() {
  return Piece("<unk>", 0, 2) + Piece("<s>", 0, 3) + Piece("</s>", 0, 3) + Piece("a", -1.5f, 1) +
         Piece("<turn>", 0, 4) + Field(2, Field(3, 2) + Field(35, 1)) +
         Field(3, Field(2, "map") + Field(4, 0));
}

TEST(SentencePieceModel, ReadsTheModelProto) {
  const std::string bytes = SmallModel();
  EXPECT_TRUE(LooksLikeSentencePiece(bytes));
  auto spec = SpecFromSentencePiece(bytes, "x.model");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.kind, TokenizerModel::Kind::kSentencePieceBpe);
  EXPECT_TRUE(spec->model.byte_fallback);
  EXPECT_EQ(spec->model.unk_id, 0);
  EXPECT_EQ(spec->bos_id, 1);
  EXPECT_EQ(spec->eos_id, 2);
  EXPECT_EQ(spec->model.vocab[3].score, -1.5);
  EXPECT_EQ(spec->normalizer[0].charsmap, "map");
  EXPECT_FALSE(spec->normalizer[0].remove_extra_whitespaces);
  EXPECT_TRUE(spec->normalizer[0].add_dummy_prefix);
  EXPECT_THAT(spec->normalizer[0].user_symbols, ElementsAre("<turn>"));
  EXPECT_TRUE(spec->added_tokens.empty());
  RecogniseControlPieces(&*spec);
  ASSERT_EQ(spec->added_tokens.size(), 3u);
  EXPECT_EQ(spec->added_tokens[2].content, "<turn>");
  EXPECT_FALSE(spec->added_tokens[2].special);
  EXPECT_TRUE(spec->normalizer[0].user_symbols.empty());
}

TEST(SentencePieceModel, RefusesDamage) {
  const std::string whole = SmallModel();
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto spec = SpecFromSentencePiece(whole.substr(0, size), "x.model");
    if (!spec.ok()) {
      EXPECT_THAT(std::string(spec.status().message()), HasSubstr("x.model"));
    }
  }
  const auto error = [](const std::string& bytes) {
    return std::string(SpecFromSentencePiece(bytes, "x.model").status().message());
  };
  EXPECT_THAT(error(""), HasSubstr("no pieces"));
  EXPECT_THAT(error(Varint(1 << 3 | 2) + Varint(uint64_t{1} << 60) + "x"), HasSubstr("damaged"));
  EXPECT_THAT(error(std::string(11, '\xff')), HasSubstr("damaged"));
  EXPECT_THAT(error(Piece("a", 0, 1)), HasSubstr("unknown piece"));
  EXPECT_THAT(error(Piece("a", 0, 9)), HasSubstr("type 9"));
  EXPECT_THAT(error(Piece("", 0, 1)), HasSubstr("empty"));
  EXPECT_THAT(error(Piece("<unk>", 0, 2) + Field(2, Field(3, 3))), HasSubstr("WORD"));
  EXPECT_FALSE(LooksLikeSentencePiece("{\"model\":1}"));
  EXPECT_FALSE(LooksLikeSentencePiece(""));
}

// ---- tiktoken ----

TEST(TiktokenFile, NeedsAKnownFileOrAConfig) {
  const std::string bytes = "YQ== 0\nYg== 1\r\nYWI= 2\n\n";
  EXPECT_TRUE(LooksLikeTiktoken(bytes));
  const auto unknown = SpecFromTiktoken(bytes, nullptr, "x.tiktoken");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("pat_str"));
  const Json config = *Json::Parse(R"({"pat_str":".","special_tokens":{"<|endoftext|>":7}})");
  const auto spec = SpecFromTiktoken(bytes, &config, "x.tiktoken");
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->model.vocab.size(), 3u);
  EXPECT_EQ(spec->model.vocab[2].piece, "ab");
  EXPECT_EQ(spec->model.vocab[2].id, 2);
  EXPECT_EQ(spec->added_tokens.at(0).id, 7);
  EXPECT_EQ(spec->eos_id, 7);
  EXPECT_EQ(spec->pre_tokenizer.at(0).pattern.text, ".");
  const Json qwen = *Json::Parse(
      R"({"tokenizer_class":"QWenTokenizer","added_tokens_decoder":{"9":{"content":"<x>"}}})");
  const auto by_class = SpecFromTiktoken(bytes, &qwen, "x.tiktoken");
  ASSERT_TRUE(by_class.ok()) << by_class.status();
  EXPECT_EQ(by_class->normalizer.size(), 1u);
  EXPECT_EQ(by_class->added_tokens.at(0).content, "<x>");
}

TEST(TiktokenFile, RefusesDamage) {
  const auto error = [](std::string_view bytes, const char* config = R"({"pat_str":"."})") {
    const Json parsed = *Json::Parse(config);
    return std::string(SpecFromTiktoken(bytes, &parsed, "x.tiktoken").status().message());
  };
  EXPECT_THAT(error("YQ== 0\nYg==\n"), HasSubstr("line 2"));
  EXPECT_THAT(error("YQ= 0\n"), HasSubstr("line 1"));
  EXPECT_THAT(error("YQ== -1\n"), HasSubstr("line 1"));
  EXPECT_THAT(error("YQ== 99999999999\n"), HasSubstr("line 1"));
  EXPECT_THAT(error("YQ== 0\nYg== 0\n"), HasSubstr("rank 0 is there twice"));
  EXPECT_THAT(error("YQ== 0\n", R"({"pat_str":".","special_tokens":{"<x>":0}})"),
              HasSubstr("'<x>'"));
  EXPECT_THAT(error("YQ== 0\n", R"({"pat_str":".","special_tokens":{"<x>":"y"}})"),
              HasSubstr("'<x>'"));
  EXPECT_FALSE(LooksLikeTiktoken("{\"a\": 1}"));
  EXPECT_FALSE(LooksLikeTiktoken(""));
}

// ---- tekken ----

std::string Tekken(std::string_view specials) {
  return R"({"config":{"pattern":".","default_vocab_size":6,"default_num_special_tokens":4},)"
         R"("vocab":[{"rank":0,"token_bytes":"YQ=="},{"rank":1,"token_bytes":"Yg=="},)"
         R"({"rank":2,"token_bytes":"YWI="}])" +
         std::string(specials) + "}";
}

TEST(TekkenJson, PiecesFollowTheSpecials) {
  const Json file = *Json::Parse(Tekken(""));
  EXPECT_TRUE(LooksLikeTekken(file));
  auto spec = SpecFromTekken(file, "tekken.json");
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->model.vocab.size(), 2u);  // the third does not fit default_vocab_size
  EXPECT_EQ(spec->model.vocab[1].piece, "b");
  EXPECT_EQ(spec->model.vocab[1].id, 5);
  ASSERT_EQ(spec->added_tokens.size(), 4u);
  EXPECT_EQ(spec->added_tokens[3].content, "[INST]");
  EXPECT_FALSE(spec->added_tokens[3].in_text);
  EXPECT_EQ(spec->bos_id, 1);
  EXPECT_EQ(spec->eos_id, 2);
  RecogniseTekkenSpecials(&*spec);
  EXPECT_TRUE(spec->added_tokens[3].in_text);
}

TEST(TekkenJson, NamedSpecialsAndFillers) {
  const Json file =
      *Json::Parse(Tekken(R"(,"special_tokens":[{"rank":0,"token_str":"<x>","is_control":true}])"));
  const auto spec = SpecFromTekken(file, "tekken.json");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->added_tokens[0].content, "<x>");
  EXPECT_EQ(spec->added_tokens[3].content, "<SPECIAL_3>");
  EXPECT_FALSE(spec->bos_id.has_value());
}

TEST(TekkenJson, RefusesDamage) {
  const auto error = [](const std::string& text) {
    return std::string(SpecFromTekken(*Json::Parse(text), "tekken.json").status().message());
  };
  EXPECT_THAT(error("{}"), HasSubstr("config.pattern"));
  EXPECT_THAT(error(R"({"config":{"pattern":"."}})"), HasSubstr("default_vocab_size"));
  EXPECT_THAT(error(R"({"config":{"pattern":".","default_vocab_size":2147483647,)"
                    R"("default_num_special_tokens":4},"vocab":[]})"),
              HasSubstr("vocab has 0"));
  EXPECT_THAT(error(R"({"config":{"pattern":".","default_vocab_size":3,)"
                    R"("default_num_special_tokens":4},"vocab":[]})"),
              HasSubstr("4 special tokens"));
  EXPECT_THAT(error(R"({"config":{"pattern":".","default_vocab_size":2,)"
                    R"("default_num_special_tokens":1},"vocab":[{"rank":0,"token_bytes":"?"}]})"),
              HasSubstr("base64"));
  EXPECT_THAT(error(R"({"config":{"pattern":".","default_vocab_size":3,)"
                    R"("default_num_special_tokens":1},"vocab":[{"rank":0,"token_bytes":"YQ=="},)"
                    R"({"rank":0,"token_bytes":"YQ=="}]})"),
              HasSubstr("rank 0"));
  EXPECT_THAT(error(Tekken(R"(,"special_tokens":[{"rank":9,"token_str":"<x>"}])")),
              HasSubstr("special token"));
  EXPECT_FALSE(LooksLikeTekken(*Json::Parse(R"({"model":{},"config":{"pattern":"."}})")));
}

TEST(GgufVocab, TheDefaultModel) {
  const char* path = std::getenv("PENSTOCK_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "PENSTOCK_TEST_MODEL is not set";
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto copy = GgufFile::FromMemory("model.gguf", (*file)->MetadataOnly());
  ASSERT_TRUE(copy.ok()) << copy.status();
  const auto spec = TokenizerSpecFromGguf(**copy);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.vocab.size(), 49152u);
  EXPECT_EQ(spec->model.merges.size(), 48900u);
  EXPECT_EQ(spec->eos_id, 2);
  EXPECT_THAT(*EosIdsFromGguf(**copy), ElementsAre(2));
  EXPECT_EQ(TemplatesFromGguf(**copy)->size(), 1u);
}

}  // namespace
}  // namespace penstock
