#include "common/formats/safetensors.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "common/base/status.h"
#include "common/json/json.h"

namespace penstock {
namespace {

// The format's own bound on its header.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

std::optional<DType> WeightType(std::string_view name) {
  if (name == "F32") return DType::kF32;
  if (name == "F16") return DType::kF16;
  if (name == "BF16") return DType::kBF16;
  return std::nullopt;
}

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::string name;
};

absl::StatusOr<Range> ParseRange(const Json& entry, const std::string& name, uint64_t data_size,
                                 const std::string& path) {
  const Json* offsets = entry.Find("data_offsets");
  if (offsets == nullptr || !offsets->is_array() || offsets->as_array().size() != 2) {
    return InvalidArgument("%s: tensor '%s' has no data_offsets pair", path, name);
  }
  const std::optional<int64_t> begin = offsets->as_array()[0].ToInt64();
  const std::optional<int64_t> end = offsets->as_array()[1].ToInt64();
  if (!begin.has_value() || !end.has_value() || *begin < 0 || *end < *begin ||
      static_cast<uint64_t>(*end) > data_size) {
    return InvalidArgument(
        "%s: truncated or damaged: tensor '%s' is at bytes %s of the data section, which has %d",
        path, name, offsets->Dump(), data_size);
  }
  return Range{static_cast<uint64_t>(*begin), static_cast<uint64_t>(*end), name};
}

absl::StatusOr<std::vector<int64_t>> ParseShape(const Json& entry, const std::string& name,
                                                const std::string& path) {
  const Json* shape = entry.Find("shape");
  if (shape == nullptr || !shape->is_array()) {
    return InvalidArgument("%s: tensor '%s' has no shape", path, name);
  }
  std::vector<int64_t> result;
  for (const Json& dimension : shape->as_array()) {
    const std::optional<int64_t> size = dimension.ToInt64();
    if (!size.has_value() || *size < 0) {
      return InvalidArgument("%s: tensor '%s' has shape %s", path, name, shape->Dump());
    }
    result.push_back(*size);
  }
  return result;
}

// The ranges must tile the data section: the format allows neither holes nor overlaps.
absl::Status CheckTiling(std::vector<Range> ranges, uint64_t data_size, const std::string& path) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const Range& range : ranges) {
    if (range.begin != at) {
      return InvalidArgument(
          "%s: tensor '%s' starts at byte %d of the data section, expected %d (%s)", path,
          range.name, range.begin, at, range.begin < at ? "tensors overlap" : "a hole");
    }
    at = range.end;
  }
  if (at != data_size) {
    return InvalidArgument("%s: the tensors end at byte %d of the data section, the file has %d",
                           path, at, data_size);
  }
  return absl::OkStatus();
}

bool IsFile(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile());
  ASSIGN_OR_RETURN(file->file_, MappedFile::Open(path));
  RETURN_IF_ERROR(file->Parse());
  return file;
}

absl::Status SafetensorsFile::Parse() {
  const std::string& path = file_->path();
  const std::span<const std::byte> bytes = file_->bytes();
  uint64_t header_size = 0;
  if (bytes.size() < sizeof(header_size)) {
    return InvalidArgument("%s: %d bytes are no safetensors file", path, bytes.size());
  }
  std::memcpy(&header_size, bytes.data(), sizeof(header_size));
  if (header_size > kMaxHeaderBytes || header_size > bytes.size() - sizeof(header_size)) {
    return InvalidArgument(
        "%s: truncated, damaged or no safetensors file: its header claims %d bytes, the file has "
        "%d",
        path, header_size, bytes.size());
  }
  const std::string_view header = file_->text().substr(sizeof(header_size), header_size);
  absl::StatusOr<Json> parsed =
      Json::Parse(header, {.max_depth = 8, .reject_duplicate_keys = true});
  if (!parsed.ok()) return InvalidArgument("%s: header: %s", path, parsed.status().message());
  if (!parsed->is_object()) return InvalidArgument("%s: its header is not a JSON object", path);
  const std::span<const std::byte> data = bytes.subspan(sizeof(header_size) + header_size);

  std::vector<Range> ranges;
  for (const JsonMember& member : parsed->as_object()) {
    if (member.key == "__metadata__") continue;
    ASSIGN_OR_RETURN(Range range, ParseRange(member.value, member.key, data.size(), path));
    ASSIGN_OR_RETURN(std::vector<int64_t> shape, ParseShape(member.value, member.key, path));
    const Json* type_name = member.value.Find("dtype");
    if (type_name == nullptr || !type_name->is_string()) {
      return InvalidArgument("%s: tensor '%s' has no dtype", path, member.key);
    }
    const uint64_t size = range.end - range.begin;
    ranges.push_back(std::move(range));
    const std::optional<DType> dtype = WeightType(type_name->as_string());
    // Integer buffers (position ids, masks) lie in some files and are no weights: only not
    // readable.
    if (!dtype.has_value()) continue;
    if (shape.empty()) shape.push_back(1);
    const std::optional<int64_t> expected = CheckedBytes(*dtype, shape);
    if (!expected.has_value() || static_cast<uint64_t>(*expected) != size) {
      return InvalidArgument("%s: tensor '%s' of type %s and shape %s has %d bytes, expected %d",
                             path, member.key, DTypeName(*dtype), ShapeText(shape), size,
                             expected.value_or(-1));
    }
    tensors_.push_back({.name = member.key,
                        .dtype = *dtype,
                        .shape = std::move(shape),
                        .data = data.subspan(ranges.back().begin, size)});
  }
  return CheckTiling(std::move(ranges), data.size(), path);
}

absl::Status SafetensorsModel::AddFile(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
  for (const TensorInfo& tensor : file->tensors()) {
    const auto [it, added] = entries_.emplace(tensor.name, Entry{&tensor, &file->path()});
    if (!added) {
      return InvalidArgument("tensor '%s' is in two files: %s and %s", tensor.name,
                             *it->second.file, path);
    }
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SafetensorsModel>> SafetensorsModel::Open(
    const std::string& folder) {
  auto model = std::make_unique<SafetensorsModel>();
  const std::string single = folder + "/model.safetensors";
  const std::string index_path = folder + "/model.safetensors.index.json";
  if (!IsFile(index_path)) {
    RETURN_IF_ERROR(model->AddFile(single));
    return model;
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(index_path));
  const absl::StatusOr<Json> index = Json::Parse(text);
  if (!index.ok()) return InvalidArgument("%s: %s", index_path, index.status().message());
  const Json* map = index->Find("weight_map");
  if (map == nullptr || !map->is_object()) {
    return InvalidArgument("%s has no weight_map object", index_path);
  }
  std::set<std::string> shards;
  for (const JsonMember& member : map->as_object()) {
    if (!member.value.is_string() || member.value.as_string().find('/') != std::string::npos) {
      return InvalidArgument("%s: weight_map['%s'] is no file name", index_path, member.key);
    }
    shards.insert(member.value.as_string());
  }
  for (const std::string& shard : shards) {
    const std::string path = folder + "/" + shard;
    if (!IsFile(path)) {
      return NotFound(
          "%s names shard %s, which is not there: an interrupted download? (%d shards in all)",
          index_path, path, shards.size());
    }
    RETURN_IF_ERROR(model->AddFile(path));
  }
  for (const JsonMember& member : map->as_object()) {
    const Entry entry = model->Find(member.key);
    if (entry.tensor != nullptr && !entry.file->ends_with("/" + member.value.as_string())) {
      return InvalidArgument("%s puts tensor '%s' into %s, but it is in %s", index_path, member.key,
                             member.value.as_string(), *entry.file);
    }
  }
  return model;
}

SafetensorsModel::Entry SafetensorsModel::Find(std::string_view name) const {
  const auto it = entries_.find(name);
  return it == entries_.end() ? Entry{} : it->second;
}

std::string SafetensorsModel::Description() const {
  if (files_.size() == 1) return files_[0]->path();
  return absl::StrFormat("%s and %d more files", files_[0]->path(), files_.size() - 1);
}

}  // namespace penstock
