#include "worker/service/output_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/v1/worker.pb.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;

// Each id prints its piece; the last one may come only with the flush.
class PieceStream final : public TextStream {
 public:
  explicit PieceStream(std::vector<std::string> pieces, std::string tail = "")
      : pieces_(std::move(pieces)), tail_(std::move(tail)) {}
  std::string Append(int32_t id) override { return pieces_[id]; }
  std::string Flush() override { return tail_; }

 private:
  const std::vector<std::string> pieces_;
  const std::string tail_;
};

StepEvents Tokens(int32_t first, int32_t last) {
  StepEvents events;
  for (int32_t i = first; i <= last; ++i) events.tokens.push_back({RequestId{1}, i, i});
  return events;
}

FinishEvent End(FinishReason reason, int32_t completion_tokens) {
  return {.id = RequestId{1}, .reason = reason, .completion_tokens = completion_tokens};
}

TEST(OutputTextTest, TextEndsBeforeTheStopAndCountsUpToItsToken) {
  OutputText output(
      std::make_unique<PieceStream>(std::vector<std::string>{"A", "BC", "DEF", "G", "HI", "J!"}),
      {.stops = {"DEFG"}}, true);
  v1::GenerateResponse first;
  output.Add(Tokens(0, 2), &first);
  EXPECT_EQ(first.text(), "ABC");
  EXPECT_THAT(first.token_ids(), ElementsAre(0, 1, 2));
  v1::GenerateResponse second;
  StepEvents events = Tokens(3, 5);
  for (const int32_t index : {3, 4, 5}) events.logprobs.push_back({RequestId{1}, index});
  output.Add(events, &second);
  EXPECT_TRUE(output.stopped());
  EXPECT_EQ(second.text(), "");
  EXPECT_THAT(second.token_ids(), ElementsAre(3));
  EXPECT_EQ(second.logprobs_size(), 1) << "exactly the tokens that count";
  // The engine ran past it, to the length.
  v1::GenerateResponse last;
  StepEvents end = Tokens(6, 6);
  end.finished.push_back(End(FinishReason::kLength, 7));
  output.Add(end, &last);
  EXPECT_TRUE(output.finished());
  EXPECT_EQ(last.finish_reason(), "stop");
  EXPECT_EQ(last.stop_string(), "DEFG");
  EXPECT_EQ(last.finish().reason(), v1::FINISH_REASON_STOP_STRING);
  EXPECT_EQ(last.finish().completion_tokens(), 4);
  EXPECT_EQ(last.token_ids_size(), 0);
  EXPECT_TRUE(output.status().ok());
}

// As a decoder that skips special tokens: id 1 is one.
class SpecialStream final : public TextStream {
 public:
  std::string Append(int32_t id) override { return id == 1 ? "" : "text"; }
  std::string Hidden(int32_t id) override { return id == 1 ? "<|im_end|>" : ""; }
  std::string Flush() override { return ""; }
};

TEST(OutputTextTest, ASpecialTokenMatchesAStopStringAndIsNeverPrinted) {
  OutputText output(std::make_unique<SpecialStream>(), {.stops = {"<|im_end|>"}}, true);
  v1::GenerateResponse response;
  output.Add(Tokens(0, 3), &response);
  EXPECT_TRUE(output.stopped());
  EXPECT_EQ(response.text(), "text");
  EXPECT_THAT(response.token_ids(), ElementsAre(0, 1));
  OutputText other(std::make_unique<SpecialStream>(), {.stops = {"none"}}, true);
  v1::GenerateResponse shown;
  other.Add(Tokens(0, 2), &shown);
  EXPECT_EQ(shown.text(), "texttext");
}

TEST(OutputTextTest, HeldTextComesWithTheFinish) {
  OutputText output(std::make_unique<PieceStream>(std::vector<std::string>{"a <"}, "/"),
                    {.stops = {"</s>"}}, true);
  v1::GenerateResponse response;
  StepEvents events = Tokens(0, 0);
  events.finished.push_back(End(FinishReason::kEos, 1));
  output.Add(events, &response);
  EXPECT_EQ(response.text(), "a </");
  EXPECT_EQ(response.finish_reason(), "stop");
}

TEST(OutputTextTest, TheFlushMayCompleteAStop) {
  OutputText output(std::make_unique<PieceStream>(std::vector<std::string>{"a<"}, ">"),
                    {.stops = {"<>"}}, true);
  v1::GenerateResponse response;
  StepEvents events = Tokens(0, 0);
  events.finished.push_back(End(FinishReason::kLength, 1));
  output.Add(events, &response);
  EXPECT_EQ(response.text(), "a");
  EXPECT_EQ(response.finish_reason(), "stop");
}

TEST(OutputTextTest, ReasonsAndErrors) {
  const std::vector<std::pair<FinishReason, std::string>> reasons = {
      {FinishReason::kEos, "stop"},       {FinishReason::kStopId, "stop"},
      {FinishReason::kLength, "length"},  {FinishReason::kCancelled, "abort"},
      {FinishReason::kDeadline, "abort"}, {FinishReason::kError, "error"}};
  for (const auto& [reason, word] : reasons) {
    OutputText output(nullptr, {}, false);
    v1::GenerateResponse response;
    StepEvents events;
    events.finished.push_back(End(reason, 0));
    events.finished[0].status = absl::InternalError("broken");
    output.Add(events, &response);
    EXPECT_EQ(response.finish_reason(), word);
    EXPECT_EQ(output.status().ok(),
              reason != FinishReason::kError && reason != FinishReason::kDeadline);
  }
}

}  // namespace
}  // namespace penstock
