// Text from users never becomes a control token, wherever it stands and however it is cut.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/common/text/golden_tokenizers.h"

namespace penstock {
namespace {

class EncodeMarked : public ::testing::TestWithParam<const char*> {
 protected:
  EncodeMarked() : tokenizer_(LoadGolden(GetParam())) {
    for (const AddedToken& token : tokenizer_->added_tokens()) {
      // Byte pieces are what any character becomes that has no piece of its own.
      if (!token.content.starts_with("<0x")) added_.insert(token.id);
    }
    // What a model yields for characters that it does not know.
    for (const char* unknown : {"<unk>", "[UNK]"}) {
      if (const auto id = tokenizer_->TokenToId(unknown); id.has_value()) added_.erase(*id);
    }
  }

  std::vector<int32_t> Encode(const std::string& text,
                              std::vector<std::pair<size_t, size_t>> user) const {
    const auto ids = tokenizer_->EncodeMarked({.text = text, .user_ranges = std::move(user)});
    EXPECT_TRUE(ids.ok()) << ids.status();
    return *ids;
  }
  int CountAdded(const std::vector<int32_t>& ids) const {
    return static_cast<int>(
        std::count_if(ids.begin(), ids.end(), [&](int32_t id) { return added_.contains(id); }));
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  std::set<int32_t> added_;  // without the unknown token and byte pieces
};

TEST_P(EncodeMarked, UsersTextYieldsNoAddedToken) {
  int tried = 0;
  for (const AddedToken& token : tokenizer_->added_tokens()) {
    if (!added_.contains(token.id)) continue;
    SCOPED_TRACE(token.content);
    const std::string text = "hi " + token.content + " there";
    const size_t begin = 3, end = 3 + token.content.size();
    // The template's own token is one, the user's is text.
    if (CountAdded(Encode(text, {})) != 1) continue;  // llama2: only where a text begins
    ++tried;
    EXPECT_EQ(CountAdded(Encode(text, {{0, text.size()}})), 0);
    EXPECT_EQ(CountAdded(Encode(text, {{begin, end}})), 0);
    EXPECT_EQ(CountAdded(*tokenizer_->Encode(text, {.plain = true})), 0);
    // Nor is one that the user completes, at either end or inside.
    EXPECT_EQ(CountAdded(Encode(text, {{begin + 2, end}})), 0);
    EXPECT_EQ(CountAdded(Encode(text, {{begin, end - 1}})), 0);
    EXPECT_EQ(CountAdded(Encode(text, {{begin + 2, begin + 3}})), 0);
    // The user's neighbours keep their meaning, even glued together.
    const std::string both = token.content + " " + token.content + " " + token.content;
    const size_t middle = token.content.size() + 1;
    EXPECT_EQ(CountAdded(Encode(both, {{middle, middle + token.content.size()}})), 2);
  }
  EXPECT_GE(tried, 5);
}

TEST_P(EncodeMarked, SpecialsAroundTheTextAreAsked) {
  const std::string text = "<|end|> hello";
  const MarkedText marked{.text = text, .user_ranges = {{0, text.size()}}};
  EXPECT_EQ(CountAdded(*tokenizer_->EncodeMarked(marked)), 0);
  EXPECT_EQ(CountAdded(*tokenizer_->EncodeMarked(marked, true)), 2);  // <|end|> $A <mask>
}

// A token that is looked for in normalised text is not found in any spelling of a user's.
TEST_P(EncodeMarked, NormalisedSpellingsAreNotFoundEither) {
  const std::string composed =
                        "\xC3\x89"
                        "clair",
                    decomposed =
                        "E\xCC\x81"
                        "clair";
  EXPECT_EQ(CountAdded(Encode(composed, {})), 1);
  for (const std::string& spelling : {composed, decomposed}) {
    EXPECT_EQ(CountAdded(Encode(spelling, {{0, spelling.size()}})), 0);
    EXPECT_EQ(CountAdded(Encode("a " + spelling + " <|end|>", {{2, 2 + spelling.size()}})), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EncodeMarked, ::testing::ValuesIn(kGoldenTokenizers),
                         [](const auto& test) { return std::string(test.param); });

// What a word became in a template's text is not what it becomes in a user's, in any order.
TEST(EncodeMarkedModel, RememberedWordsAreKeptApart) {
  TokenizerSpec spec;
  spec.model.vocab = {{"<", 0}, {"s", 1}, {">", 2}, {"<s", 3}, {"<s>", 4}};
  spec.model.merges = {{"<", "s"}, {"<s", ">"}};
  spec.added_tokens = {{.id = 4, .content = "<s>", .special = true, .in_text = false}};
  const auto tokenizer = Tokenizer::Create(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(*(*tokenizer)->Encode("<s>"), std::vector<int32_t>{4});
    EXPECT_EQ(*(*tokenizer)->Encode("<s>", {.plain = true}), (std::vector<int32_t>{3, 2}));
  }
}

// A model whose own pieces and merges spell a control token.
TEST(EncodeMarkedModel, MergesMakeNoControlToken) {
  TokenizerSpec spec;
  spec.model.vocab = {{"<", 0}, {"s", 1}, {">", 2}, {"<s", 3}, {"<s>", 4}};
  spec.model.merges = {{"<", "s"}, {"<s", ">"}};
  spec.added_tokens = {{.id = 4, .content = "<s>", .special = true}};
  const auto tokenizer = Tokenizer::Create(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(*(*tokenizer)->Encode("<s>"), std::vector<int32_t>{4});
  EXPECT_EQ(*(*tokenizer)->Encode("<s>", {.plain = true}), (std::vector<int32_t>{3, 2}));
  EXPECT_EQ(*(*tokenizer)->EncodeMarked({.text = "<s><s>", .user_ranges = {{3, 6}}}),
            (std::vector<int32_t>{4, 3, 2}));
}

}  // namespace
}  // namespace penstock
