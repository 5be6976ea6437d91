#include "common/text/model_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "common/formats/gguf.h"
#include "tests/common/formats/bytes.h"
#include "tests/common/text/tiny_vocabularies.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// Bytes a, b, c and the pieces "ab" and "abc"; <|end|> 5, <|eot|> 6, <s> 7.
constexpr std::string_view kTokenizerJson = R"({
  "added_tokens": [
    {"id":5,"content":"<|end|>","special":true,"normalized":false,"single_word":false,"lstrip":false,"rstrip":false},
    {"id":6,"content":"<|eot|>","special":true,"normalized":false,"single_word":false,"lstrip":false,"rstrip":false},
    {"id":7,"content":"<s>","special":true,"normalized":false,"single_word":false,"lstrip":false,"rstrip":false}],
  "normalizer": null, "pre_tokenizer": {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},
  "post_processor": null, "decoder": {"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},
  "model": {"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,
            "fuse_unk":false,"byte_fallback":false,"ignore_merges":false,
            "vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4},"merges":["a b","ab c"]}})";

TextAssets Assets() { return {{"tokenizer.json", std::string(kTokenizerJson)}}; }

ModelText Load(const TextAssets& assets) {
  auto text = LoadModelText(assets, "model");
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *std::move(text) : ModelText();
}

std::string ErrorOf(const TextAssets& assets) {
  const auto text = LoadModelText(assets, "model");
  return text.ok() ? "accepted" : std::string(text.status().message());
}

TEST(ModelText, TokenizerAlone) {
  const ModelText text = Load(Assets());
  ASSERT_NE(text.tokenizer, nullptr);
  EXPECT_THAT(*text.tokenizer->Encode("abc<|eot|>"), ElementsAre(4, 6));
  EXPECT_THAT(text.chat_templates, IsEmpty());
  EXPECT_THAT(text.eos_token_ids, IsEmpty());
  EXPECT_EQ(text.FindTemplate("", false), nullptr);
}

// Every place that names an end token counts, whatever its form.
TEST(ModelText, EosIsTheUnionOfAllPlaces) {
  TextAssets assets = Assets();
  assets["generation_config.json"] = R"({"eos_token_id":[30,31]})";
  EXPECT_THAT(Load(assets).eos_token_ids, ElementsAre(30, 31));
  assets["generation_config.json"] = R"({"eos_token_id":30})";
  EXPECT_THAT(Load(assets).eos_token_ids, ElementsAre(30));
  assets["config.json"] = R"({"eos_token_id":32,"text_config":{"eos_token_id":[3]}})";
  EXPECT_THAT(Load(assets).eos_token_ids, ElementsAre(3, 30, 32));
  assets["tokenizer_config.json"] = R"({"eos_token":{"content":"<|eot|>"},"bos_token":"<s>"})";
  EXPECT_THAT(Load(assets).eos_token_ids, ElementsAre(3, 6, 30, 32));
  assets["special_tokens_map.json"] = R"({"eos_token":"<|end|>"})";
  EXPECT_THAT(Load(assets).eos_token_ids, ElementsAre(3, 5, 6, 30, 32));
  assets["generation_config.json"] = R"({"eos_token_id":null})";
  EXPECT_THAT(Load(assets).eos_token_ids, ElementsAre(3, 5, 6, 32));
  assets["tokenizer_config.json"] = R"({"eos_token":"no such token"})";
  EXPECT_THAT(Load(assets).eos_token_ids, ElementsAre(3, 5, 32));
  assets["generation_config.json"] = R"({"eos_token_id":"</s>"})";
  EXPECT_THAT(ErrorOf(assets), HasSubstr("model/generation_config.json: eos_token_id"));
}

TEST(ModelText, SpecialTokensAreNamed) {
  TextAssets assets = Assets();
  assets["special_tokens_map.json"] = R"({"bos_token":"<|end|>","eos_token":"<|eot|>"})";
  assets["tokenizer_config.json"] =
      R"({"bos_token":"<s>","pad_token":null,"add_bos_token":true,"cls_token":{"content":"a"}})";
  const ModelText text = Load(assets);
  EXPECT_EQ(text.tokenizer->bos_id(), 7);
  EXPECT_EQ(text.tokenizer->eos_id(), 6);
  EXPECT_THAT(
      text.tokenizer->special_tokens(),
      ElementsAre(Pair("bos_token", "<s>"), Pair("eos_token", "<|eot|>"), Pair("cls_token", "a")));
}

TEST(ModelText, TemplatesAndTheirOrder) {
  TextAssets assets = Assets();
  assets["tokenizer_config.json"] =
      R"({"chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"}]})";
  ModelText text = Load(assets);
  EXPECT_THAT(text.chat_templates, ElementsAre(Pair("default", "D"), Pair("tool_use", "T")));
  EXPECT_EQ(*text.FindTemplate("", false), "D");
  EXPECT_EQ(*text.FindTemplate("", true), "T");
  EXPECT_EQ(*text.FindTemplate("default", true), "D");
  EXPECT_EQ(text.FindTemplate("rag", false), nullptr);
  assets["chat_template.jinja"] = "J";
  assets["additional_chat_templates/rag.jinja"] = "R";
  text = Load(assets);
  EXPECT_THAT(text.chat_templates,
              ElementsAre(Pair("default", "J"), Pair("tool_use", "T"), Pair("rag", "R")));
  assets["tokenizer_config.json"] = R"({"chat_template":"only"})";
  assets.erase("chat_template.jinja");
  EXPECT_EQ(*Load(assets).FindTemplate("", true), "only");
  assets["tokenizer_config.json"] = R"({"chat_template":3})";
  EXPECT_THAT(ErrorOf(assets), HasSubstr("tokenizer_config.json: chat_template"));
}

TEST(ModelText, GenerationDefaults) {
  TextAssets assets = Assets();
  assets["generation_config.json"] =
      R"({"temperature":0.6,"top_p":0.9,"top_k":20,"min_p":null,"repetition_penalty":1,"max_new_tokens":256})";
  const GenerationDefaults defaults = Load(assets).defaults;
  EXPECT_EQ(defaults.temperature, 0.6);
  EXPECT_EQ(defaults.top_p, 0.9);
  EXPECT_EQ(defaults.top_k, 20);
  EXPECT_EQ(defaults.min_p, std::nullopt);
  EXPECT_EQ(defaults.repetition_penalty, 1.0);
  EXPECT_EQ(defaults.max_new_tokens, 256);
  assets["generation_config.json"] = R"({"top_k":"many"})";
  EXPECT_THAT(ErrorOf(assets), HasSubstr("top_k is \"many\""));
}

TEST(ModelText, ErrorsNameTheFile) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("no tokenizer"));
  EXPECT_THAT(ErrorOf({{"tokenizer.json", "{"}}), HasSubstr("model/tokenizer.json"));
  EXPECT_THAT(ErrorOf({{"tekken.json", "[]"}}), HasSubstr("model/tekken.json"));
  EXPECT_THAT(ErrorOf({{"tokenizer.model", "\x7f"}}), HasSubstr("model/tokenizer.model"));
  EXPECT_THAT(ErrorOf({{"model.gguf", "GGUF"}}), HasSubstr("model/model.gguf"));
  TextAssets assets = Assets();
  assets["config.json"] = "[1]";
  EXPECT_THAT(ErrorOf(assets), HasSubstr("model/config.json"));
}

TEST(ModelText, TekkenSpecialsAreFoundInTemplateTextOnly) {
  const ModelText text = Load({{"tekken.json", TinyTekken()}});
  EXPECT_THAT(*text.tokenizer->Encode("[INST]ab[/INST]"), ElementsAre(3, 266, 4));
  EXPECT_THAT(*text.tokenizer->Encode("ab", {.add_special = true}), ElementsAre(1, 266));
  const MarkedText marked{.text = "[INST]ab", .user_ranges = {{6, 8}}};
  EXPECT_THAT(*text.tokenizer->EncodeMarked(marked), ElementsAre(3, 266));
  EXPECT_THAT(text.eos_token_ids, ElementsAre(2));
  EXPECT_EQ(text.tokenizer->Decode({1, 3, 266, 2}), "ab");
}

TEST(ModelText, TiktokenWithItsConfig) {
  TextAssets assets = {{"x.tiktoken", TinyTiktoken()}};
  EXPECT_THAT(ErrorOf(assets), HasSubstr("pat_str"));
  assets["tokenizer_config.json"] =
      R"({"pat_str":"[a-z]+|.","special_tokens":{"<|x|>":300},"eos_token":"<|x|>"})";
  const ModelText text = Load(assets);
  EXPECT_THAT(*text.tokenizer->Encode("ab<|x|>"), ElementsAre(256, 300));
  EXPECT_THAT(text.eos_token_ids, ElementsAre(300));
}

TEST(ModelText, FoldersAndFiles) {
  const TempFolder folder;
  EXPECT_THAT(std::string(LoadModelText(folder.path()).status().message()),
              HasSubstr("no tokenizer"));
  EXPECT_EQ(LoadModelText(folder.path() + "/absent").status().code(), absl::StatusCode::kNotFound);
  folder.Write("tokenizer.json", kTokenizerJson);
  folder.Write("generation_config.json", R"({"eos_token_id":6})");
  folder.Write("README.md", "not looked at");
  std::filesystem::create_directory(folder.path() + "/additional_chat_templates");
  folder.Write("additional_chat_templates/tool_use.jinja", "T");
  const auto assets = ReadTextAssets(folder.path());
  ASSERT_TRUE(assets.ok()) << assets.status();
  EXPECT_EQ(assets->size(), 3u);
  const auto text = LoadModelText(folder.path());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(text->eos_token_ids, ElementsAre(6));
  EXPECT_THAT(text->chat_templates, ElementsAre(Pair("tool_use", "T")));
  // One file of any name is known by its content.
  const auto alone = LoadModelText(folder.Write("vocab.bin", TinyTekken()));
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_THAT(*alone->tokenizer->Encode("ab"), ElementsAre(266));
  EXPECT_THAT(std::string(LoadModelText(folder.Write("x.bin", "nonsense")).status().message()),
              HasSubstr("no tokenizer file"));
  const auto pointer = LoadModelText(
      folder.Write("p.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"));
  EXPECT_THAT(std::string(pointer.status().message()), HasSubstr("git-lfs"));
}

TEST(ModelText, TheDefaultModelFromFileAndFromItsMetadata) {
  const char* path = std::getenv("PENSTOCK_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "PENSTOCK_TEST_MODEL is not set";
  const auto text = LoadModelText(path);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(text->eos_token_ids, ElementsAre(2));
  ASSERT_NE(text->FindTemplate("", false), nullptr);
  EXPECT_EQ(text->tokenizer->vocab_size(), 49152);
  const auto ids = text->tokenizer->Encode("<|im_start|>user\nHello world 42<|im_end|>");
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(ids->front(), 1);
  EXPECT_EQ(ids->back(), 2);
  EXPECT_EQ(text->tokenizer->Decode(*ids), "user\nHello world 42");
}

}  // namespace
}  // namespace penstock
