#pragma once

// Reader of GGUF files, version 2 and 3: typed metadata and tensors, read in place from the
// mapping. Nothing is allocated before its size was checked against the file. Immutable after Open.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/formats/mapped_file.h"
#include "common/formats/tensor.h"

namespace penstock {

enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// An array of one scalar or string type; arrays of arrays are refused.
struct GgufArray {
  GgufType type = GgufType::kUint8;
  uint64_t count = 0;
  std::span<const std::byte> raw;         // of scalar arrays, little-endian, unaligned
  std::vector<std::string_view> strings;  // of string arrays

  // Any integer type widened; floats and strings give nullopt.
  std::optional<int64_t> IntAt(uint64_t i) const;
  std::optional<double> FloatAt(uint64_t i) const;
};

// Scalars widened to 64 bits; strings are views into the file's bytes.
using GgufValue = std::variant<bool, int64_t, uint64_t, double, std::string_view, GgufArray>;

class GgufFile {
 public:
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);
  // Metadata-only bytes from memory (what MetadataOnly wrote); name is for messages.
  static absl::StatusOr<std::unique_ptr<GgufFile>> FromMemory(std::string name, std::string bytes);

  const std::string& name() const { return name_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* FindTensor(std::string_view name) const;

  // nullopt when absent; an error when there with another type or out of range.
  absl::StatusOr<std::optional<int64_t>> Int(std::string_view key) const;
  absl::StatusOr<std::optional<double>> Float(std::string_view key) const;
  absl::StatusOr<std::optional<bool>> Bool(std::string_view key) const;
  absl::StatusOr<std::optional<std::string_view>> String(std::string_view key) const;
  // Null when absent.
  absl::StatusOr<const GgufArray*> Array(std::string_view key) const;

  // The same metadata as a GGUF without tensors: what a router needs of this file.
  std::string MetadataOnly() const;

 private:
  GgufFile() = default;
  absl::Status Parse();

  std::string name_;
  std::unique_ptr<MappedFile> file_;  // or
  std::string memory_;
  std::span<const std::byte> bytes_;
  std::span<const std::byte> metadata_bytes_;  // the key/value section as it lies in the file
  uint64_t metadata_count_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t, std::less<>> tensor_index_;
};

}  // namespace penstock
