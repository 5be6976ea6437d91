#include "common/text/stream_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_format.h"
#include "tests/common/text/golden_tokenizers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Deltas(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                bool skip_special = true) {
  StreamDecoder stream(tokenizer, skip_special);
  std::vector<std::string> deltas;
  for (const int32_t id : ids) deltas.push_back(stream.Push(id));
  deltas.push_back(stream.Flush());
  return deltas;
}

std::string Joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

TEST(StreamDecoder, ACharacterComesWhole) {
  const auto tokenizer = LoadGolden("gpt2");
  const std::vector<int32_t> ids = *tokenizer->Encode("\xE1\x9A\xA0");  // three bytes, three ids
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_THAT(Deltas(*tokenizer, ids), ElementsAre("", "", "\xE1\x9A\xA0", ""));
  // Cut short, the flush says so as Decode does.
  const std::vector<int32_t> cut(ids.begin(), ids.end() - 1);
  EXPECT_THAT(Deltas(*tokenizer, cut), ElementsAre("", "", "\xEF\xBF\xBD"));
}

TEST(StreamDecoder, BytesThatNeverBecomeACharacterDoNotStall) {
  const auto tokenizer = LoadGolden("gpt2");
  const int32_t lead = tokenizer->Encode("\xF0\x9F\xA6\x99")->front();
  const std::vector<int32_t> ids(200, lead);
  const std::vector<std::string> deltas = Deltas(*tokenizer, ids);
  size_t silent = 0, longest = 0;
  for (const std::string& delta : deltas) {
    silent = delta.empty() ? silent + 1 : 0;
    longest = std::max(longest, silent);
  }
  EXPECT_LE(longest, static_cast<size_t>(StreamDecoder::kMaxHeldTokens));
  EXPECT_EQ(Joined(deltas), tokenizer->Decode(ids));
}

TEST(StreamDecoder, SpecialTokensAndUnknownIds) {
  const auto tokenizer = LoadGolden("gpt2");
  const int32_t end = *tokenizer->TokenToId("<|im_end|>");
  const int32_t a = *tokenizer->TokenToId("a");
  EXPECT_THAT(Deltas(*tokenizer, {a, end, a}), ElementsAre("a", "", "a", ""));
  EXPECT_THAT(Deltas(*tokenizer, {a, end, a}, false), ElementsAre("a", "<|im_end|>", "a", ""));
  EXPECT_THAT(Deltas(*tokenizer, {a, -1, 1 << 30, a}), ElementsAre("a", "", "", "a", ""));
}

TEST(StreamDecoder, FlushEndsOneTextAndBeginsTheNext) {
  for (const char* name : {"gpt2", "llama2", "bert"}) {
    const auto tokenizer = LoadGolden(name);
    const std::vector<int32_t> ids = *tokenizer->Encode("the time and 🦙");
    StreamDecoder stream(*tokenizer);
    std::string first, second;
    for (const int32_t id : ids) first += stream.Push(id);
    first += stream.Flush();
    for (const int32_t id : ids) second += stream.Push(id);
    second += stream.Flush();
    EXPECT_EQ(first, tokenizer->Decode(ids)) << name;
    EXPECT_EQ(second, first) << name;
  }
}

// Ids in any order: what comes out is what Decode prints, and valid UTF-8 at every step.
TEST(StreamDecoder, AnyIdsOfAByteLevelModel) {
  std::mt19937 random(7);
  for (const char* name : {"gpt2", "o200k", "smollm"}) {
    const auto tokenizer = LoadGolden(name);
    for (int round = 0; round < 300; ++round) {
      std::vector<int32_t> ids(1 + random() % 30);
      // Mostly the bytes themselves: broken characters of all kinds.
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % 300);
      EXPECT_EQ(Joined(Deltas(*tokenizer, ids)), tokenizer->Decode(ids)) << name;
    }
  }
}

// sentencepiece: the first space is not printed, bytes are characters where they can be, and a
// broken byte is one U+FFFD.
TokenizerSpec SentencePiece(bool drop_all_first) {
  TokenizerSpec spec;
  spec.model.kind = TokenizerModel::Kind::kSentencePieceBpe;
  spec.model.byte_fallback = true;
  spec.model.unk_id = 0;
  spec.model.vocab = {{"<unk>", 0}, {"\xE2\x96\x81", 1}, {"\xE2\x96\x81hi", 2}, {"x", 3}};
  spec.model.piece_types = {PieceType::kUnknown, PieceType::kNormal, PieceType::kNormal,
                            PieceType::kNormal};
  for (int b = 0; b < 256; ++b) {
    spec.model.vocab.push_back({absl::StrFormat("<0x%02X>", b), 4 + b});
    spec.model.piece_types.push_back(PieceType::kByte);
  }
  DecoderStep step;
  step.kind = DecoderStep::Kind::kSentencePiece;
  step.drop_all_first = drop_all_first;
  spec.decoder = {step};
  return spec;
}

TEST(StreamDecoder, SentencePieceSpacesAndBytes) {
  const auto once = Tokenizer::Create(SentencePiece(false));
  ASSERT_TRUE(once.ok()) << once.status();
  EXPECT_THAT(Deltas(**once, {2, 2, 3}), ElementsAre("hi", " hi", "x", ""));
  EXPECT_THAT(Deltas(**once, {1, 2, 1, 2}), ElementsAre("", " hi", " ", " hi", ""));
  const auto every = Tokenizer::Create(SentencePiece(true));
  ASSERT_TRUE(every.ok()) << every.status();
  EXPECT_THAT(Deltas(**every, {1, 1, 2, 1, 2}), ElementsAre("", "", "hi", " ", " hi", ""));
  const int32_t e2 = 4 + 0xE2, x82 = 4 + 0x82, ac = 4 + 0xAC;
  EXPECT_THAT(Deltas(**once, {e2, x82, ac, 2}), ElementsAre("", "", "\xE2\x82\xAC", " hi", ""));
  const std::string broken = "\xEF\xBF\xBD";
  EXPECT_THAT(Deltas(**once, {e2, x82, 3}), ElementsAre("", "", broken + broken + "x", ""));
  for (const auto* tokenizer : {&*once, &*every}) {
    std::mt19937 random(11);
    for (int round = 0; round < 500; ++round) {
      std::vector<int32_t> ids(1 + random() % 12);
      for (int32_t& id : ids) {
        const int32_t bytes[] = {e2, x82, ac, 4 + 0x20, 4 + 0xF0};
        id = random() % 2 == 0 ? static_cast<int32_t>(random() % 4) : bytes[random() % 5];
      }
      EXPECT_EQ(Joined(Deltas(**tokenizer, ids)), (*tokenizer)->Decode(ids));
    }
  }
}

}  // namespace
}  // namespace penstock
