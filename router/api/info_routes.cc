// The endpoints that tell about the server: health, readiness, version, metrics, models.

#include <utility>

#include "absl/strings/str_format.h"
#include "common/json/json_writer.h"
#include "router/api/api_call.h"
#include "router/api/api_server.h"

namespace penstock {
namespace {

void WriteModel(const std::string& name, const ServedModel& model, JsonWriter& json) {
  json.BeginObject();
  json.Key("id").String(name);
  json.Key("object").String("model");
  json.Key("created").Int(model.created);
  json.Key("owned_by").String("penstock");
  json.Key("root").String(model.name);
  json.Key("parent").Null();
  json.Key("max_model_len").Int(model.max_model_len);
  json.Key("permission").BeginArray().EndArray();
  json.EndObject();
}

}  // namespace

// Alive: 200 while loading and while draining. Not so when workers were there and all of them are
// gone: an orchestrator that looks at nothing else must see that.
void ApiServer::Health(const CallPtr& call) {
  if (pool_.ready() || !pool_.was_ready() || draining_) {
    return Reply(*call, {.body = R"({"status":"ok"})"});
  }
  ReplyError(*call, {.status = 503, .message = NotReadyReason(), .code = "not_ready"});
}

void ApiServer::Ready(const CallPtr& call) {
  if (draining_) {
    return ReplyError(*call, {.status = 503, .message = "shutting down", .code = "draining"});
  }
  if (model() == nullptr || !pool_.ready()) {
    return ReplyError(*call, {.status = 503, .message = NotReadyReason(), .code = "not_ready"});
  }
  Reply(*call, {.body = R"({"status":"ready"})"});
}

void ApiServer::Version(const CallPtr& call) {
  std::string body;
  JsonWriter(&body).BeginObject().Key("version").String(options_.version).EndObject();
  Reply(*call, {.body = std::move(body)});
}

void ApiServer::RenderMetrics(const CallPtr& call) {
  Reply(*call, {.content_type = "text/plain; version=0.0.4; charset=utf-8",
                .body = metrics_.Render(pool_.workers(), admission_, registry_.size())});
}

void ApiServer::ListModels(const CallPtr& call) {
  const std::shared_ptr<const LoadedModel> loaded = ModelFor(call);
  if (loaded == nullptr) return;
  std::string body;
  JsonWriter json(&body);
  json.BeginObject().Key("object").String("list").Key("data").BeginArray();
  for (const std::string& name : ServedNames(options_, *loaded->served)) {
    WriteModel(name, *loaded->served, json);
  }
  json.EndArray().EndObject();
  Reply(*call, {.body = std::move(body)});
}

void ApiServer::GetModel(const CallPtr& call) {
  const std::shared_ptr<const LoadedModel> loaded = ModelFor(call);
  if (loaded == nullptr) return;
  const std::string name = call->path.substr(std::string_view("/v1/models/").size());
  if (auto error = CheckModelName(name, options_, *loaded->served)) {
    return ReplyError(*call, *error);
  }
  std::string body;
  JsonWriter json(&body);
  WriteModel(name, *loaded->served, json);
  Reply(*call, {.body = std::move(body)});
}

}  // namespace penstock
