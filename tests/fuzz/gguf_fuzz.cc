// GGUF from untrusted bytes: never reads outside, and what it accepts is whole.

#include <cstdlib>
#include <string>

#include "common/base/check.h"
#include "common/formats/dequantize.h"
#include "common/formats/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock;
  const auto file =
      GgufFile::FromMemory("fuzz", std::string(reinterpret_cast<const char*>(data), size));
  if (!file.ok()) return 0;
  for (const TensorInfo& tensor : (*file)->tensors()) {
    const int64_t elements = CheckedElements(tensor.shape).value();
    std::vector<float> values(static_cast<size_t>(elements));
    Dequantize(tensor.dtype, tensor.data, values);
  }
  for (const auto& [key, value] : (*file)->metadata()) {
    const auto* array = std::get_if<GgufArray>(&value);
    if (array == nullptr) continue;
    for (uint64_t i = 0; i < array->count; ++i) (void)array->FloatAt(i);
  }
  const std::string metadata = (*file)->MetadataOnly();
  const auto copy = GgufFile::FromMemory("copy", metadata);
  CHECK(copy.ok());
  CHECK((*copy)->metadata().size() == (*file)->metadata().size());
  CHECK((*copy)->MetadataOnly() == metadata);
  return 0;
}
