#include "router/api/response_body.h"

#include "absl/strings/str_format.h"
#include "common/json/json_writer.h"

namespace penstock {
namespace {

constexpr std::string_view kEventEnd = "}\n\n";

void WriteUsage(const Usage& usage, JsonWriter& json) {
  json.BeginObject();
  json.Key("prompt_tokens").Int(usage.prompt_tokens);
  json.Key("completion_tokens").Int(usage.completion_tokens);
  json.Key("total_tokens").Int(usage.prompt_tokens + usage.completion_tokens);
  json.Key("prompt_tokens_details");
  if (usage.cached_tokens.has_value()) {
    json.BeginObject().Key("cached_tokens").Int(*usage.cached_tokens).EndObject();
  } else {
    json.Null();
  }
  json.EndObject();
}

void WriteInfo(const AnswerInfo& info, std::string_view object, JsonWriter& json) {
  json.Key("id").String(info.id);
  json.Key("object").String(object);
  json.Key("created").Int(info.created);
  json.Key("model").String(info.model);
  json.Key("system_fingerprint").String(info.fingerprint);
}

std::string_view ChunkObject(const AnswerInfo& info) {
  return info.chat ? "chat.completion.chunk" : "text_completion";
}

void WriteIds(const std::vector<int32_t>& ids, JsonWriter& json) {
  json.BeginArray();
  for (const int32_t id : ids) json.Int(id);
  json.EndArray();
}

void AppendStopReason(const ChoiceEnd& end, std::string* out) {
  JsonWriter json(out);
  if (end.stop_id.has_value()) {
    json.Int(*end.stop_id);
  } else if (end.stop_string.has_value()) {
    json.String(*end.stop_string);
  } else {
    json.Null();
  }
}

void AppendLogprobs(const AnswerInfo& info, const std::vector<TokenRecord>& records,
                    const ServedText& text, int32_t first_offset, std::string* out) {
  if (!info.logprobs) {
    out->append("null");
  } else if (info.chat) {
    AppendChatLogprobs(records, text, info.style, out);
  } else {
    AppendCompletionLogprobs(records, text, info.style, first_offset, out);
  }
}

void AppendChoice(const AnswerInfo& info, const FinishedChoice& choice, size_t index,
                  const ServedText& text, std::string* out) {
  out->append(absl::StrFormat("{\"index\":%d,", index));
  out->append(info.chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
  AppendJsonString(out, choice.text);
  if (info.chat) out->append(",\"refusal\":null}");
  out->append(",\"logprobs\":");
  AppendLogprobs(info, choice.records, text, choice.first_offset, out);
  out->append(",\"finish_reason\":");
  AppendJsonString(out, choice.end.finish_reason);
  out->append(",\"stop_reason\":");
  AppendStopReason(choice.end, out);
  if (info.return_token_ids) {
    out->append(",\"token_ids\":");
    AppendIds(choice.records, out);
    if (!info.chat && choice.prompt_ids != nullptr) {
      out->append(",\"prompt_token_ids\":");
      JsonWriter json(out);
      WriteIds(*choice.prompt_ids, json);
    }
  }
  out->push_back('}');
}

}  // namespace

ChunkWriter::ChunkWriter(const AnswerInfo& info, const ServedText& text, int32_t index,
                         int32_t first_offset)
    : info_(info), text_(text), first_offset_(first_offset) {
  open_ = "data: ";
  JsonWriter json(&open_);
  json.BeginObject();
  WriteInfo(info, ChunkObject(info), json);
  json.Key("choices").BeginArray().BeginObject().Key("index").Int(index);
  before_ = open_ + (info.chat ? ",\"delta\":{\"content\":\"" : ",\"text\":\"");
  after_ = info.chat ? "\"}" : "\"";
  after_ += ",\"logprobs\":null,\"finish_reason\":null}]";
}

// From behind "choices":[...] to the end of the event.
void ChunkWriter::AppendTail(const Usage& usage, std::string* out) const {
  if (info_.continuous_usage) {
    out->append(",\"usage\":");
    JsonWriter json(out);
    WriteUsage(usage, json);
  } else if (info_.include_usage) {
    out->append(",\"usage\":null");
  }
  out->append(kEventEnd);
}

void ChunkWriter::AppendRole(const std::vector<int32_t>* prompt_ids, const Usage& usage,
                             std::string* out) {
  out->append(open_);
  out->append(
      ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
      "\"finish_reason\":null}]");
  if (prompt_ids != nullptr) {
    out->append(",\"prompt_token_ids\":");
    JsonWriter json(out);
    WriteIds(*prompt_ids, json);
  }
  AppendTail(usage, out);
}

void ChunkWriter::AppendText(std::string_view delta, const Usage& usage, std::string* out) const {
  out->append(before_);
  AppendJsonEscaped(out, delta);
  out->append(after_);
  AppendTail(usage, out);
}

void ChunkWriter::AppendRecords(std::string_view delta, const std::vector<TokenRecord>& records,
                                const std::vector<int32_t>* prompt_ids, const Usage& usage,
                                std::string* out) const {
  out->append(before_);
  AppendJsonEscaped(out, delta);
  out->append(info_.chat ? "\"},\"logprobs\":" : "\",\"logprobs\":");
  AppendLogprobs(info_, records, text_, first_offset_, out);
  out->append(",\"finish_reason\":null");
  if (info_.return_token_ids) {
    out->append(",\"token_ids\":");
    AppendIds(records, out);
    if (prompt_ids != nullptr) {
      out->append(",\"prompt_token_ids\":");
      JsonWriter json(out);
      WriteIds(*prompt_ids, json);
    }
  }
  out->append("}]");
  AppendTail(usage, out);
}

void ChunkWriter::AppendEnd(const ChoiceEnd& end, const Usage& usage, std::string* out) const {
  out->append(open_);
  out->append(info_.chat ? ",\"delta\":{}" : ",\"text\":\"\"");
  out->append(",\"logprobs\":null,\"finish_reason\":");
  AppendJsonString(out, end.finish_reason);
  out->append(",\"stop_reason\":");
  AppendStopReason(end, out);
  out->append("}]");
  AppendTail(usage, out);
}

void AppendUsageEvent(const AnswerInfo& info, const Usage& usage, std::string* out) {
  out->append("data: ");
  JsonWriter json(out);
  json.BeginObject();
  WriteInfo(info, ChunkObject(info), json);
  json.Key("choices").BeginArray().EndArray().Key("usage");
  WriteUsage(usage, json);
  out->append(kEventEnd);
}

std::string RenderAnswer(const AnswerInfo& info, const std::vector<FinishedChoice>& choices,
                         const Usage& usage, const ServedText& text) {
  std::string body;
  JsonWriter json(&body);
  json.BeginObject();
  WriteInfo(info, info.chat ? "chat.completion" : "text_completion", json);
  body.append(",\"choices\":[");
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) body.push_back(',');
    AppendChoice(info, choices[i], i, text, &body);
  }
  body.push_back(']');
  if (info.chat && info.return_token_ids && !choices.empty() &&
      choices.front().prompt_ids != nullptr) {
    json.Key("prompt_token_ids");
    WriteIds(*choices.front().prompt_ids, json);
  }
  json.Key("usage");
  WriteUsage(usage, json);
  json.EndObject();
  return body;
}

}  // namespace penstock
