// Safetensors from untrusted bytes: never reads outside, and what it accepts is whole.

#include <string>

#include "common/base/check.h"
#include "common/formats/dequantize.h"
#include "common/formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock;
  const auto file =
      SafetensorsFile::FromMemory("fuzz", std::string(reinterpret_cast<const char*>(data), size));
  if (!file.ok()) return 0;
  for (const TensorInfo& tensor : (*file)->tensors()) {
    CHECK(static_cast<size_t>(CheckedBytes(tensor.dtype, tensor.shape).value()) ==
          tensor.data.size());
    std::vector<float> values(static_cast<size_t>(CheckedElements(tensor.shape).value()));
    Dequantize(tensor.dtype, tensor.data, values);
  }
  return 0;
}
