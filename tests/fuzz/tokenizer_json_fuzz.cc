// tokenizer.json from untrusted bytes: refused, or a tokenizer that keeps its promises on any text.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "common/text/stream_decoder.h"
#include "common/text/tokenizer.h"
#include "common/text/tokenizer_json.h"
#include "common/text/utf8.h"

namespace {

using namespace penstock;

void Use(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool plain : {false, true}) {
    const auto ids = tokenizer.Encode(text, {.add_special = !plain, .plain = plain});
    if (!ids.ok()) continue;  // a pattern that gives up, a word without an unknown token
    CHECK(IsValidUtf8(tokenizer.Decode(*ids)));
    StreamDecoder stream(tokenizer);
    for (const int32_t id : *ids) {
      // The post-processor may name ids that no token has; the model may not.
      if (plain) CHECK(id >= 0 && id < tokenizer.vocab_size());
      CHECK(IsValidUtf8(stream.Push(id)));
    }
    CHECK(IsValidUtf8(stream.Flush()));
    // As much as a request's text can hold (context length times this) is never too little.
    if (plain && tokenizer.max_token_bytes() > 0) {
      CHECK(ids->size() * static_cast<size_t>(tokenizer.max_token_bytes()) >= text.size());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 64 * 1024) return 0;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  auto spec = SpecFromTokenizerJson(json, "fuzz");
  if (!spec.ok()) return 0;
  const auto tokenizer = Tokenizer::Create(*std::move(spec));
  if (!tokenizer.ok()) return 0;
  for (const AddedToken& token : (*tokenizer)->added_tokens()) {
    CHECK(token.id >= 0 && token.id < (*tokenizer)->vocab_size());
  }
  Use(**tokenizer, "");
  Use(**tokenizer,
      "Hello wörld, don't <s>[MASK]</s>\n\t 12345 \xE2\x96\x81x 日本 \xF0\x9F\xA6\x99 e\xCC\x81");
  Use(**tokenizer, std::string(300, 'a') + "\x00\xFF broken \xE2\x82");
  return 0;
}
