#include "common/text/stop_matcher.h"

#include <optional>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;

StopMatcher Make(std::vector<std::string> stops, bool include = false, int32_t min_tokens = 0) {
  return StopMatcher(
      {.stops = std::move(stops), .include_stop = include, .min_tokens = min_tokens});
}

// What each piece lets out, then the flush (when nothing matched).
std::vector<std::string> Feed(StopMatcher matcher, const std::vector<std::string>& pieces) {
  std::vector<std::string> out;
  for (size_t i = 0; i < pieces.size(); ++i) {
    out.push_back(matcher.Append(pieces[i], static_cast<int32_t>(i)));
    if (matcher.matched()) return out;
  }
  out.push_back(matcher.Flush());
  return out;
}

TEST(StopMatcherTest, StopOverSeveralTokensShowsNothingOfItself) {
  EXPECT_THAT(Feed(Make({"DEFGHIJ"}), {"A", "BC", "DEF", "G", "HI", "J!"}),
              ElementsAre("A", "BC", "", "", "", ""));
}

TEST(StopMatcherTest, NearMissIsLetOutAsSoonAsItCannotMatch) {
  EXPECT_THAT(Feed(Make({"DEFX"}), {"A", "BC", "DEF", "G", "HI", "J!"}),
              ElementsAre("A", "BC", "", "DEFG", "HI", "J!", ""));
}

TEST(StopMatcherTest, StopInsideOnePieceEndsTheText) {
  EXPECT_THAT(Feed(Make({"stop!"}), {"one stop! two", "three"}), ElementsAre("one "));
}

TEST(StopMatcherTest, TheStopThatOccursFirstWinsWhateverTheListsOrder) {
  StopMatcher matcher = Make({"late", "early"});
  EXPECT_EQ(matcher.Append("xx early and late", 0), "xx ");
  EXPECT_EQ(matcher.matched_stop(), 1);
  EXPECT_EQ(matcher.matched_text(), "early");
}

TEST(StopMatcherTest, OfStopsEndingTogetherTheLongestWins) {
  StopMatcher matcher = Make({"c", "abc", "bc"});
  EXPECT_EQ(matcher.Append("xabc", 0), "x");
  EXPECT_EQ(matcher.matched_stop(), 1);
}

TEST(StopMatcherTest, HeldTextIsFlushedAtTheEnd) {
  StopMatcher matcher = Make({"</s>"});
  EXPECT_EQ(matcher.Append("a </", 0), "a ");
  EXPECT_EQ(matcher.Flush(), "</");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcherTest, AfterAMatchNothingComesOut) {
  StopMatcher matcher = Make({"x"});
  EXPECT_EQ(matcher.Append("ax", 0), "a");
  EXPECT_EQ(matcher.Append("more", 1), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcherTest, IncludedStopIsShownWhole) {
  EXPECT_THAT(Feed(Make({"END"}, true), {"abE", "N", "D tail"}), ElementsAre("ab", "", "END"));
}

TEST(StopMatcherTest, MatchesThatEndBeforeMinTokensDoNotCount) {
  StopMatcher matcher = Make({"no"}, false, 2);
  EXPECT_EQ(matcher.Append("no", 0), "no");
  EXPECT_EQ(matcher.Append("no n", 1), "no ");
  EXPECT_EQ(matcher.Append("o more", 2), "");
  EXPECT_TRUE(matcher.matched());
}

TEST(StopMatcherTest, AnIgnoredMatchStillHoldsBackALongerStop) {
  StopMatcher matcher = Make({"ab", "abc"}, false, 1);
  EXPECT_EQ(matcher.Append("ab", 0), "");
  EXPECT_EQ(matcher.Append("c", 1), "");
  EXPECT_EQ(matcher.matched_stop(), 1);
}

TEST(StopMatcherTest, HiddenTextMatchesButIsNeverShown) {
  StopMatcher matcher = Make({"<|im_end|>"});
  EXPECT_EQ(matcher.Append("<|other|>", 0, false), "");
  EXPECT_EQ(matcher.Append("hi", 1), "hi");
  EXPECT_EQ(matcher.Append("<|im_end|>", 2, false), "");
  EXPECT_TRUE(matcher.matched());
}

TEST(StopMatcherTest, OverlappingPrefixesFallBackCorrectly) {
  EXPECT_THAT(Feed(Make({"aab"}), {"a", "a", "a", "a", "b"}), ElementsAre("", "", "a", "a", ""));
  EXPECT_THAT(Feed(Make({"abab", "bb"}), {"abab"}), ElementsAre(""));
}

TEST(StopMatcherTest, WithoutStopsTextPassesAndEmptyStopsNeverMatch) {
  EXPECT_THAT(Feed(Make({}), {"a", "b"}), ElementsAre("a", "b", ""));
  EXPECT_THAT(Feed(Make({""}), {"a", "b"}), ElementsAre("a", "b", ""));
}

TEST(StopMatcherTest, NonAsciiStopsMatchWholeCharacters) {
  EXPECT_THAT(Feed(Make({"。終"}), {"東京。", "あ。", "終り"}), ElementsAre("東京", "。あ", ""));
}

// The definition, on the whole text: the smallest end, then the smallest start.
struct Expected {
  std::string text;
  int stop = -1;
};
Expected Search(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (stops[i].size() > end || text.compare(end - stops[i].size(), stops[i].size(), stops[i])) {
        continue;
      }
      if (!best || stops[i].size() > stops[*best].size()) best = i;
    }
    if (best) return {text.substr(0, end - stops[*best].size()), static_cast<int>(*best)};
  }
  return {text, -1};
}

TEST(StopMatcherTest, RandomTextAgreesWithThePlainSearchHoweverItIsCut) {
  std::mt19937 random(7);
  const auto word = [&random](size_t length, int letters) {
    std::string w;
    for (size_t i = 0; i < length; ++i) w.push_back(static_cast<char>('a' + random() % letters));
    return w;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops(1 + random() % 4);
    for (std::string& stop : stops) stop = word(1 + random() % 5, 2 + round % 2);
    const std::string text = word(random() % 30, 2 + round % 2);
    const Expected expected = Search(text, stops);
    StopMatcher matcher = Make(stops);
    std::string shown;
    for (size_t at = 0; at < text.size() && !matcher.matched();) {
      const size_t length = 1 + random() % 4;
      shown += matcher.Append(std::string_view(text).substr(at, length), 0);
      at += length;
      // Never held: text that cannot begin a stop.
      const std::string_view seen = std::string_view(text).substr(0, at);
      if (matcher.matched()) break;
      const std::string_view held = seen.substr(shown.size());
      bool could_match = held.empty();
      for (const std::string& stop : stops) {
        could_match |= held.size() < stop.size() && stop.compare(0, held.size(), held) == 0;
      }
      ASSERT_TRUE(could_match) << text << " held " << held;
    }
    shown += matcher.Flush();
    ASSERT_EQ(shown, expected.text) << text;
    if (expected.stop >= 0) {
      ASSERT_EQ(matcher.matched_text(), stops[expected.stop]) << text;
    } else {
      ASSERT_FALSE(matcher.matched()) << text;
    }
  }
}

TEST(StopMatcherTest, HostileRepetitionStaysLinear) {
  // A quadratic matcher takes 10^11 steps here; the deadline of the test binary would end it.
  StopMatcher matcher = Make({std::string(100'000, 'a') + "b"});
  size_t shown = 0;
  for (int i = 0; i < 1'000'000; ++i) shown += matcher.Append("a", i).size();
  shown += matcher.Flush().size();
  EXPECT_EQ(shown, 1'000'000u);
}

}  // namespace
}  // namespace penstock
