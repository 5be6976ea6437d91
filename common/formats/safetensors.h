#pragma once

// Reader of safetensors: one file, or a folder with model.safetensors or an index of shards.
// Tensors are read in place. Immutable after Open.

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/formats/mapped_file.h"
#include "common/formats/tensor.h"

namespace penstock {

class SafetensorsFile {
 public:
  // Refuses: a header that does not fit the file, unknown types, shapes that disagree with their
  // byte range, ranges that overlap, leave holes or end outside.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  // The same from memory; name is for messages.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> FromMemory(std::string name,
                                                                     std::string bytes);

  const std::string& path() const { return path_; }
  // The F32, F16 and BF16 tensors.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // Name -> type of the others (integer buffers, 8-bit floats): checked, but not readable.
  const std::map<std::string, std::string, std::less<>>& unreadable() const { return unreadable_; }

 private:
  SafetensorsFile() = default;
  absl::Status Parse();
  absl::Status AddTensor(const std::string& name, std::string_view type, std::vector<int64_t> shape,
                         std::span<const std::byte> data);

  std::string path_;
  std::unique_ptr<MappedFile> file_;  // or
  std::string memory_;
  std::span<const std::byte> bytes_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::string, std::less<>> unreadable_;
};

// All tensors of a model folder, over one or many files. As transformers does, model.safetensors
// wins over an index beside it.
class SafetensorsModel {
 public:
  static absl::StatusOr<std::unique_ptr<SafetensorsModel>> Open(const std::string& folder);

  struct Entry {
    const TensorInfo* tensor = nullptr;
    const std::string* file = nullptr;
  };
  // Null tensor when there is none of this name.
  Entry Find(std::string_view name) const;
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  // The files, for messages.
  std::string Description() const;

 private:
  absl::Status AddFile(const std::string& path);
  absl::Status AddShards(const std::string& folder, const std::string& index_path);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace penstock
