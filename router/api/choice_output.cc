#include "router/api/choice_output.h"

#include <algorithm>

namespace penstock {
namespace {

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

int32_t CountChars(std::string_view text) {
  return static_cast<int32_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

ChoiceOutput::ChoiceOutput(std::shared_ptr<const ServedText> text, Options options)
    : text_(std::move(text)),
      options_(std::move(options)),
      stream_(text_->NewStream(options_.skip_special)),
      matcher_({.stops = options_.stops,
                .include_stop = options_.include_stop,
                .min_tokens = options_.min_tokens}),
      match_(!options_.stops.empty()) {}

bool ChoiceOutput::IsStopToken(int32_t id, int32_t index) const {
  if (index < options_.min_tokens) return false;
  return Contains(options_.eos_ids, id) || Contains(options_.stop_token_ids, id);
}

std::string ChoiceOutput::Show(std::string text, int32_t index, bool visible) {
  if (!match_) return visible ? std::move(text) : std::string();
  std::string shown = matcher_.Append(text, index, visible);
  if (matcher_.matched()) EndAtStop();
  return shown;
}

void ChoiceOutput::EndAtStop() {
  end_ = ChoiceEnd{.finish_reason = "stop", .stop_string = matcher_.matched_text()};
}

std::string ChoiceOutput::Push(int32_t id, int32_t index,
                               std::optional<GenerationLogprobs> logprobs) {
  if (end_.has_value()) return {};
  ++tokens_;
  if (options_.keep_records) records_.push_back({id, decoded_chars_, std::move(logprobs)});
  const bool special = options_.skip_special && text_->IsSpecial(id);
  if (IsStopToken(id, index)) {
    // It prints nothing, unless asked for; a stop string never completes in it.
    if (!options_.include_stop || special) return {};
    return Show(stream_->Push(id), index, true);
  }
  std::string delta = stream_->Push(id);
  if (options_.keep_records) decoded_chars_ += CountChars(delta);
  std::string shown;
  if (!delta.empty()) shown = Show(std::move(delta), index, true);
  // A special token that is not printed can still be, or complete, a stop string.
  if (match_ && special && !end_.has_value()) shown += Show(text_->TokenPiece(id), index, false);
  return shown;
}

std::string ChoiceOutput::Finish(const GenerationFinish& finish) {
  if (end_.has_value()) return {};
  std::string rest = stream_->Flush();
  std::string shown;
  if (!rest.empty()) shown = Show(std::move(rest), tokens_ - 1, true);
  if (match_ && !end_.has_value()) shown += matcher_.Flush();
  if (end_.has_value()) return shown;
  ChoiceEnd end;
  if (finish.reason == GenerationEnd::kLength) end.finish_reason = "length";
  if (finish.reason == GenerationEnd::kStopId) {
    end.stop_id = finish.stop_id;
    for (const auto& [id, text] : options_.stop_string_ids) {
      if (id == finish.stop_id) end = {.finish_reason = "stop", .stop_string = text};
    }
  }
  end_ = end;
  return shown;
}

}  // namespace penstock
