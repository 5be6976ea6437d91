#include "common/text/text_jsonl.h"

#include <istream>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/json/json_writer.h"
#include "common/text/load_tokenizer.h"
#include "common/text/stream_decoder.h"

namespace penstock {
namespace {

Json Answer(std::string_view key, Json value) {
  Json answer;
  answer.Set(key, std::move(value));
  return answer;
}

absl::StatusOr<std::string> String(const Json& request, std::string_view key) {
  const Json* value = request.Find(key);
  if (value == nullptr || !value->is_string()) {
    return InvalidArgument("'%s' must be a string", key);
  }
  return value->as_string();
}

absl::StatusOr<bool> Bool(const Json& request, std::string_view key, bool fallback) {
  const Json* value = request.Find(key);
  if (value == nullptr || value->is_null()) return fallback;
  if (!value->is_bool()) return InvalidArgument("'%s' must be true or false", key);
  return value->as_bool();
}

absl::StatusOr<std::vector<int32_t>> Ids(const Json& request) {
  const Json* value = request.Find("ids");
  if (value == nullptr || !value->is_array()) return InvalidArgument("'ids' must be an array");
  std::vector<int32_t> ids;
  for (const Json& id : value->as_array()) {
    const std::optional<int64_t> number = id.ToInt64();
    if (!number.has_value() || *number < 0 || *number > INT32_MAX) {
      return InvalidArgument("ids[%d] must be an id (0 to 2^31 - 1)", ids.size());
    }
    ids.push_back(static_cast<int32_t>(*number));
  }
  return ids;
}

class Filter {
 public:
  explicit Filter(const TemplateOp& template_op) : template_op_(template_op) {}

  Json Run(std::string_view line) {
    absl::StatusOr<Json> answer = Dispatch(line);
    if (answer.ok()) return *std::move(answer);
    return Answer("error", std::string(answer.status().message()));
  }

 private:
  absl::StatusOr<Json> Dispatch(std::string_view line) {
    ASSIGN_OR_RETURN(const Json request, Json::Parse(line));
    if (!request.is_object()) return InvalidArgument("a line must be a JSON object");
    if (request.Find("template") != nullptr) {
      if (template_op_ == nullptr) return Unimplemented("templates are not supported here");
      return template_op_(request);
    }
    ASSIGN_OR_RETURN(const std::string op, String(request, "op"));
    if (op == "load") return Load(request);
    if (op != "encode" && op != "decode" && op != "stream") {
      return InvalidArgument("unknown op '%s': load, encode, decode or stream", op);
    }
    if (tokenizer_ == nullptr) return FailedPrecondition("no tokenizer is loaded: op 'load' first");
    if (op == "encode") return Encode(request);
    if (op == "decode") return Decode(request);
    return Stream(request);
  }

  absl::StatusOr<Json> Load(const Json& request) {
    ASSIGN_OR_RETURN(const std::string path, String(request, "path"));
    tokenizer_ = nullptr;
    ASSIGN_OR_RETURN(tokenizer_, LoadTokenizer(path));
    return Answer("ok", true);
  }

  absl::StatusOr<Json> Encode(const Json& request) const {
    ASSIGN_OR_RETURN(const std::string text, String(request, "text"));
    EncodeOptions options;
    ASSIGN_OR_RETURN(options.add_special, Bool(request, "add_special", false));
    ASSIGN_OR_RETURN(options.plain, Bool(request, "plain", false));
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer_->Encode(text, options));
    Json::Array array;
    array.reserve(ids.size());
    for (const int32_t id : ids) array.emplace_back(id);
    return Answer("ids", std::move(array));
  }

  absl::StatusOr<Json> Decode(const Json& request) const {
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, Ids(request));
    ASSIGN_OR_RETURN(const bool skip_special, Bool(request, "skip_special", true));
    return Answer("text", tokenizer_->Decode(ids, skip_special));
  }

  absl::StatusOr<Json> Stream(const Json& request) const {
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, Ids(request));
    ASSIGN_OR_RETURN(const bool skip_special, Bool(request, "skip_special", true));
    StreamDecoder decoder(*tokenizer_, skip_special);
    Json::Array deltas;
    deltas.reserve(ids.size() + 1);
    for (const int32_t id : ids) deltas.emplace_back(decoder.Push(id));
    deltas.emplace_back(decoder.Flush());
    return Answer("deltas", std::move(deltas));
  }

  const TemplateOp& template_op_;
  std::unique_ptr<const Tokenizer> tokenizer_;
};

}  // namespace

void RunTextJsonl(std::istream& in, std::ostream& out, const TemplateOp& template_op) {
  Filter filter(template_op);
  std::string line, answer;
  while (std::getline(in, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    answer.clear();
    AppendJson(&answer, filter.Run(line));
    answer += '\n';
    out << answer << std::flush;
  }
}

}  // namespace penstock
