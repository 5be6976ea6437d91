#pragma once

// One Generate call's output: engine events in, response messages out, with text, stop strings and
// the counts that belong to them. Used by one thread at a time.

#include <cstdint>
#include <memory>

#include "common/text/stop_matcher.h"
#include "worker/engine/request.h"
#include "worker/service/text_model.h"

namespace penstock {

namespace v1 {
class GenerateResponse;
}

class OutputText {
 public:
  // text may be null: ids only, and no stop strings then.
  OutputText(std::unique_ptr<TextStream> text, StopMatcher::Options stops, bool return_text)
      : text_(std::move(text)), stops_(std::move(stops)), return_text_(return_text) {}

  // Adds a batch to the response. What comes after a stop string's match is dropped.
  void Add(const StepEvents& events, v1::GenerateResponse* out);

  // A stop string matched: cancel the request, its Finish comes all the same.
  bool stopped() const { return stops_.matched(); }
  bool finished() const { return finished_; }
  // Non-OK when the request ended in an error or at its deadline.
  const absl::Status& status() const { return status_; }

 private:
  void AddToken(const TokenEvent& token, v1::GenerateResponse* out);
  void AddFinish(const FinishEvent& finish, v1::GenerateResponse* out);
  void Show(std::string text, v1::GenerateResponse* out);

  std::unique_ptr<TextStream> text_;
  StopMatcher stops_;
  const bool return_text_;
  int32_t tokens_ = 0;       // that count: up to the one that completed a stop string
  int32_t last_index_ = -1;  // of the last token that counts
  bool finished_ = false;
  absl::Status status_;
};

}  // namespace penstock
