#include "common/formats/safetensors.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <optional>

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

// Bits of a value of every other type that the format defines; nullopt for an unknown name.
std::optional<int64_t> OtherTypeBits(std::string_view name) {
  struct Type {
    std::string_view name;
    int64_t bits;
  };
  constexpr Type kTypes[] = {
      {"BOOL", 8}, {"U8", 8},      {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},
      {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16},    {"U16", 16},    {"I32", 32},
      {"U32", 32}, {"I64", 64},    {"U64", 64},    {"F64", 64},    {"C64", 64}};
  for (const Type& type : kTypes) {
    if (type.name == name) return type.bits;
  }
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
  file->path_ = path;
  ASSIGN_OR_RETURN(file->file_, MappedFile::Open(path));
  file->bytes_ = file->file_->bytes();
  RETURN_IF_ERROR(file->Parse());
  return file;
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::FromMemory(std::string name,
                                                                             std::string bytes) {
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile());
  file->path_ = std::move(name);
  file->memory_ = std::move(bytes);
  file->bytes_ = std::as_bytes(std::span(file->memory_));
  RETURN_IF_ERROR(file->Parse());
  return file;
}

absl::Status SafetensorsFile::Parse() {
  uint64_t header_size = 0;
  if (bytes_.size() < sizeof(header_size)) {
    return InvalidArgument("%s: %d bytes are no safetensors file", path_, bytes_.size());
  }
  std::memcpy(&header_size, bytes_.data(), sizeof(header_size));
  if (header_size > kMaxHeaderBytes || header_size > bytes_.size() - sizeof(header_size)) {
    return InvalidArgument(
        "%s: truncated, damaged or no safetensors file: its header claims %d bytes, the file has "
        "%d",
        path_, header_size, bytes_.size());
  }
  const auto header = bytes_.subspan(sizeof(header_size), header_size);
  absl::StatusOr<Json> parsed =
      Json::Parse({reinterpret_cast<const char*>(header.data()), header.size()},
                  {.max_depth = 8, .reject_duplicate_keys = true});
  if (!parsed.ok()) return InvalidArgument("%s: header: %s", path_, parsed.status().message());
  if (!parsed->is_object()) return InvalidArgument("%s: its header is not a JSON object", path_);
  const std::span<const std::byte> data = bytes_.subspan(sizeof(header_size) + header_size);

  std::vector<Range> ranges;
  for (const JsonMember& member : parsed->as_object()) {
    if (member.key == "__metadata__") continue;
    ASSIGN_OR_RETURN(Range range, ParseRange(member.value, member.key, data.size(), path_));
    ASSIGN_OR_RETURN(std::vector<int64_t> shape, ParseShape(member.value, member.key, path_));
    const Json* type = member.value.Find("dtype");
    if (type == nullptr || !type->is_string()) {
      return InvalidArgument("%s: tensor '%s' has no dtype", path_, member.key);
    }
    RETURN_IF_ERROR(AddTensor(member.key, type->as_string(), std::move(shape),
                              data.subspan(range.begin, range.end - range.begin)));
    ranges.push_back(std::move(range));
  }
  return CheckTiling(std::move(ranges), data.size(), path_);
}

absl::Status SafetensorsFile::AddTensor(const std::string& name, std::string_view type,
                                        std::vector<int64_t> shape,
                                        std::span<const std::byte> data) {
  const std::optional<DType> dtype = WeightType(type);
  const std::optional<int64_t> bits =
      dtype.has_value() ? int64_t{8} * LayoutOf(*dtype).bytes : OtherTypeBits(type);
  if (!bits.has_value()) {
    return InvalidArgument("%s: tensor '%s' has unknown dtype '%s'", path_, name, type);
  }
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  if (empty && dtype.has_value()) {
    return InvalidArgument("%s: tensor '%s' of shape %s has a dimension of size 0", path_, name,
                           ShapeText(shape));
  }
  const std::optional<int64_t> elements = empty ? 0 : CheckedElements(shape);
  int64_t total_bits = 0;
  if (!elements.has_value() || __builtin_mul_overflow(*elements, *bits, &total_bits) ||
      total_bits % 8 != 0) {
    return InvalidArgument("%s: tensor '%s' of type %s cannot have shape %s", path_, name, type,
                           ShapeText(shape));
  }
  if (static_cast<uint64_t>(total_bits / 8) != data.size()) {
    return InvalidArgument("%s: tensor '%s' of type %s and shape %s has %d bytes, expected %d",
                           path_, name, type, ShapeText(shape), data.size(), total_bits / 8);
  }
  if (!dtype.has_value()) {
    unreadable_.emplace(name, type);
    return absl::OkStatus();
  }
  if (shape.empty()) shape.push_back(1);
  tensors_.push_back({.name = name, .dtype = *dtype, .shape = std::move(shape), .data = data});
  return absl::OkStatus();
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

absl::Status SafetensorsModel::AddShards(const std::string& folder, const std::string& index_path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(index_path));
  const absl::StatusOr<Json> index = Json::Parse(text);
  if (!index.ok()) return InvalidArgument("%s: %s", index_path, index.status().message());
  const Json* map = index->Find("weight_map");
  if (map == nullptr || !map->is_object()) {
    return InvalidArgument("%s has no weight_map object", index_path);
  }
  std::map<std::string, std::vector<std::string>> shards;  // file -> its tensors
  for (const JsonMember& member : map->as_object()) {
    if (!member.value.is_string() || member.value.as_string().find('/') != std::string::npos) {
      return InvalidArgument("%s: weight_map['%s'] is no file name", index_path, member.key);
    }
    shards[member.value.as_string()].push_back(member.key);
  }
  if (shards.empty()) return InvalidArgument("%s: weight_map is empty", index_path);
  for (const auto& [shard, names] : shards) {
    const std::string path = folder + "/" + shard;
    if (!IsFile(path)) {
      return NotFound(
          "%s names shard %s, which is not there: an interrupted download? (%d shards in all)",
          index_path, path, shards.size());
    }
    RETURN_IF_ERROR(AddFile(path));
    for (const std::string& name : names) {
      const Entry entry = Find(name);
      if (entry.tensor == nullptr ? !files_.back()->unreadable().contains(name)
                                  : *entry.file != path) {
        return InvalidArgument("%s puts tensor '%s' into %s, which does not hold it", index_path,
                               name, path);
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SafetensorsModel>> SafetensorsModel::Open(
    const std::string& folder) {
  auto model = std::make_unique<SafetensorsModel>();
  const std::string single = folder + "/model.safetensors";
  const std::string index_path = folder + "/model.safetensors.index.json";
  if (IsFile(single) || !IsFile(index_path)) {
    RETURN_IF_ERROR(model->AddFile(single));
  } else {
    RETURN_IF_ERROR(model->AddShards(folder, index_path));
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
