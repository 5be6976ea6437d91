#pragma once

// One choice of a generation: receives its tokens from the pool and renders them. Belongs to its
// generation; same thread. For generation.cc only.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "router/api/generation.h"

namespace penstock {

class Generation::Choice final : public GenerationSink {
 public:
  Choice(Generation& owner, int32_t index, const PreparedPrompt& prompt, bool shows_prompt_ids);
  ~Choice() override { handle_.reset(); }

  void Submit(GenerationRequest request);
  // Nothing to generate: ends at once.
  void EndWithoutTokens();
  // Renders what waited, until the client is slow again.
  void Resume();
  // Stops the work and leaves the queue. No callback follows.
  void Abandon(std::string_view reason);

  void OnAccepted() override { owner_.ChoiceAccepted(); }
  void OnStarted(const GenerationStart& start) override;
  void OnLogprobs(GenerationLogprobs logprobs) override { logprobs_ = std::move(logprobs); }
  void OnToken(int32_t token_id, int32_t index) override;
  void OnStepEnd() override { owner_.Flush(); }
  void OnFinish(GenerationFinish finish) override;

  bool done() const { return done_; }
  const ChoiceOutput& output() const { return output_; }
  std::optional<int64_t> cached_tokens() const { return cached_tokens_; }
  FinishedChoice TakeFinished();

 private:
  struct Waiting {
    int32_t id = 0;
    int32_t index = 0;
    std::optional<GenerationLogprobs> logprobs;
  };

  void Render(Waiting token);
  void Begin();
  void Emit(const std::string& text);
  void TakeFinish(GenerationFinish finish);
  void EndHere();
  void LeaveQueue(bool began);
  void Record(std::string_view reason);
  Usage ChoiceUsage() const;

  Generation& owner_;
  const PreparedPrompt& prompt_;
  const std::vector<int32_t>* const prompt_ids_;  // to show once, or null
  ChoiceOutput output_;
  ChunkWriter writer_;
  std::unique_ptr<GenerationHandle> handle_;
  std::optional<GenerationLogprobs> logprobs_;  // of the next token
  std::vector<Waiting> waiting_;                // not rendered: the client is slow
  std::optional<GenerationFinish> waiting_finish_;
  std::string text_;  // when not streaming
  std::vector<TokenRecord> records_;
  bool begun_ = false;      // the role event, or the echo, is out
  bool ids_shown_ = false;  // the prompt's ids are out
  bool done_ = false;
  bool queued_ = false;  // counted by admission
  std::optional<int64_t> cached_tokens_;
  double queue_seconds_ = -1;
  double prefill_seconds_ = -1;
  int64_t first_ns_ = 0;
  int64_t last_ns_ = 0;
  TokenGaps gaps_;
};

}  // namespace penstock
