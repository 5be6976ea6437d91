#include "router/api/logprobs_json.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "absl/strings/str_format.h"
#include "common/json/json_writer.h"

namespace penstock {
namespace {

// OpenAI's value for "practically impossible"; -inf is no JSON.
constexpr double kImpossible = -9999.0;

// Written so that NaN, which the worker ends a request for, could not get out either.
double Finite(float logprob) {
  return std::isfinite(logprob) && logprob > kImpossible ? logprob : kImpossible;
}

std::string TokenText(int32_t id, const ServedText& text, const LogprobStyle& style) {
  return style.tokens_as_ids ? absl::StrFormat("token_id:%d", id) : text.TokenBytes(id);
}

// The best ones, the sampled token among them where it belongs: the worker sends it first and may
// send it again in its place.
std::vector<GenerationLogprob> Best(const GenerationLogprobs& logprobs, int32_t count) {
  std::vector<GenerationLogprob> best;
  std::unordered_set<int32_t> seen;
  for (const GenerationLogprob& entry : logprobs.top) {
    if (seen.insert(entry.token_id).second) best.push_back(entry);
  }
  std::stable_sort(best.begin(), best.end(),
                   [](const auto& a, const auto& b) { return a.logprob > b.logprob; });
  if (static_cast<int32_t>(best.size()) > count) best.resize(static_cast<size_t>(count));
  return best;
}

void WriteToken(JsonWriter& json, const GenerationLogprob& entry, const ServedText& text,
                const LogprobStyle& style) {
  json.Key("token").String(TokenText(entry.token_id, text, style));
  json.Key("logprob").Double(Finite(entry.logprob));
  json.Key("bytes").BeginArray();
  for (const char byte : text.TokenBytes(entry.token_id))
    json.Int(static_cast<unsigned char>(byte));
  json.EndArray();
}

// What was sampled; a worker that sent nothing for it counts as impossible, never as absent.
GenerationLogprob Sampled(const TokenRecord& record) {
  if (record.logprobs.has_value() && !record.logprobs->top.empty()) {
    return record.logprobs->top.front();
  }
  return {record.id, static_cast<float>(kImpossible)};
}

void WriteTopObject(JsonWriter& json, const TokenRecord& record, const ServedText& text,
                    const LogprobStyle& style) {
  const GenerationLogprob sampled = Sampled(record);
  std::vector<GenerationLogprob> entries;
  if (record.logprobs.has_value()) entries = Best(*record.logprobs, style.top);
  // The sampled token is always there, as in OpenAI's legacy API.
  if (std::none_of(entries.begin(), entries.end(),
                   [&](const auto& e) { return e.token_id == sampled.token_id; })) {
    entries.push_back(sampled);
  }
  json.BeginObject();
  std::unordered_set<std::string> names;  // different tokens may print alike: the best one stays
  for (const GenerationLogprob& entry : entries) {
    std::string name = TokenText(entry.token_id, text, style);
    std::string printed;
    AppendJsonEscaped(&printed, name);
    if (!names.insert(printed).second) continue;
    json.Key(name).Double(Finite(entry.logprob));
  }
  json.EndObject();
}

}  // namespace

void AppendChatLogprobs(const std::vector<TokenRecord>& records, const ServedText& text,
                        const LogprobStyle& style, std::string* out) {
  JsonWriter json(out);
  json.BeginObject().Key("content").BeginArray();
  for (const TokenRecord& record : records) {
    json.BeginObject();
    WriteToken(json, Sampled(record), text, style);
    json.Key("top_logprobs").BeginArray();
    if (record.logprobs.has_value()) {
      for (const GenerationLogprob& entry : Best(*record.logprobs, style.top)) {
        json.BeginObject();
        WriteToken(json, entry, text, style);
        json.EndObject();
      }
    }
    json.EndArray().EndObject();
  }
  json.EndArray().EndObject();
}

void AppendCompletionLogprobs(const std::vector<TokenRecord>& records, const ServedText& text,
                              const LogprobStyle& style, int32_t first_offset, std::string* out) {
  JsonWriter json(out);
  json.BeginObject().Key("text_offset").BeginArray();
  for (const TokenRecord& record : records) json.Int(first_offset + record.text_offset);
  json.EndArray().Key("token_logprobs").BeginArray();
  for (const TokenRecord& record : records) json.Double(Finite(Sampled(record).logprob));
  json.EndArray().Key("tokens").BeginArray();
  for (const TokenRecord& record : records) json.String(TokenText(record.id, text, style));
  json.EndArray().Key("top_logprobs").BeginArray();
  for (const TokenRecord& record : records) WriteTopObject(json, record, text, style);
  json.EndArray().EndObject();
}

void AppendIds(const std::vector<TokenRecord>& records, std::string* out) {
  JsonWriter json(out);
  json.BeginArray();
  for (const TokenRecord& record : records) json.Int(record.id);
  json.EndArray();
}

}  // namespace penstock
