#pragma once

// Reader of safetensors: one file, or a folder with model.safetensors or an index of shards.
// Tensors are read in place. Immutable after Open.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/formats/mapped_file.h"
#include "common/formats/tensor.h"

namespace penstock {

class SafetensorsFile {
 public:
  // Refuses: a header that does not fit the file, unknown types among F32, F16 and BF16 weights,
  // shapes that disagree with their byte range, ranges that overlap, leave holes or end outside.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);

  const std::string& path() const { return file_->path(); }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

 private:
  SafetensorsFile() = default;
  absl::Status Parse();

  std::unique_ptr<MappedFile> file_;
  std::vector<TensorInfo> tensors_;
};

// All tensors of a model folder, over one or many files.
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

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace penstock
