// Request bodies of every endpoint: never a crash, and every refusal has a message and is itself
// valid JSON.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "common/json/json.h"
#include "router/api/requests.h"

namespace {

template <typename T>
void Check(const penstock::ApiOr<T>& parsed) {
  if (parsed.ok()) return;
  CHECK(!parsed.error().message.empty());
  CHECK(parsed.error().status >= 400 && parsed.error().status < 500);
  CHECK(penstock::Json::Parse(penstock::RenderErrorBody(parsed.error())).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const penstock::ApiOr<penstock::Json> body = penstock::ParseBody(text);
  Check(body);
  if (!body.ok()) return 0;
  const penstock::FieldLimits limits = {.vocab_size = 1000};
  Check(penstock::ParseChatRequest(body.value(), limits));
  Check(penstock::ParseCompletionRequest(body.value(), limits));
  Check(penstock::ParseTokenizeRequest(body.value()));
  Check(penstock::ParseDetokenizeRequest(body.value()));
  return 0;
}
