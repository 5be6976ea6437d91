#include "common/formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "common/base/status.h"

namespace penstock {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint32_t kMaxDims = 4;
constexpr int64_t kDefaultAlignment = 32;
constexpr uint64_t kMinTensorRecord = 8 + 4 + 8 + 4 + 8;  // empty name, one dimension
constexpr uint64_t kMinMetadataRecord = 8 + 4 + 1;

// Size of a scalar on disk; 0 for strings, arrays and unknown types.
size_t ScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

std::optional<DType> TensorType(uint32_t ggml_type) {
  switch (ggml_type) {
    case 0:
      return DType::kF32;
    case 1:
      return DType::kF16;
    case 2:
      return DType::kQ4_0;
    case 3:
      return DType::kQ4_1;
    case 6:
      return DType::kQ5_0;
    case 7:
      return DType::kQ5_1;
    case 8:
      return DType::kQ8_0;
    case 12:
      return DType::kQ4_K;
    case 13:
      return DType::kQ5_K;
    case 14:
      return DType::kQ6_K;
    case 30:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

template <typename T>
T LoadAs(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

GgufValue LoadScalar(GgufType type, const std::byte* from) {
  switch (type) {
    case GgufType::kUint8:
      return uint64_t{LoadAs<uint8_t>(from)};
    case GgufType::kInt8:
      return int64_t{LoadAs<int8_t>(from)};
    case GgufType::kUint16:
      return uint64_t{LoadAs<uint16_t>(from)};
    case GgufType::kInt16:
      return int64_t{LoadAs<int16_t>(from)};
    case GgufType::kUint32:
      return uint64_t{LoadAs<uint32_t>(from)};
    case GgufType::kInt32:
      return int64_t{LoadAs<int32_t>(from)};
    case GgufType::kFloat32:
      return double{LoadAs<float>(from)};
    case GgufType::kBool:
      return LoadAs<uint8_t>(from) != 0;
    case GgufType::kUint64:
      return LoadAs<uint64_t>(from);
    case GgufType::kInt64:
      return LoadAs<int64_t>(from);
    default:
      return LoadAs<double>(from);
  }
}

std::optional<int64_t> AsInt(const GgufValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return *i;
  if (const auto* u = std::get_if<uint64_t>(&value)) {
    if (*u <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return static_cast<int64_t>(*u);
    }
  }
  return std::nullopt;
}

// Reads little-endian fields, never past the end.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }

  template <typename T>
  absl::StatusOr<T> Read(std::string_view what) {
    RETURN_IF_ERROR(Need(sizeof(T), what));
    const T value = LoadAs<T>(bytes_.data() + position_);
    position_ += sizeof(T);
    return value;
  }
  absl::StatusOr<std::span<const std::byte>> Take(uint64_t size, std::string_view what) {
    RETURN_IF_ERROR(Need(size, what));
    const auto taken = bytes_.subspan(position_, size);
    position_ += size;
    return taken;
  }
  absl::StatusOr<std::string_view> String(uint64_t max_bytes, std::string_view what) {
    ASSIGN_OR_RETURN(const uint64_t size, Read<uint64_t>(what));
    if (size > max_bytes) {
      return InvalidArgument("%s: %s is %d bytes long at offset %d, at most %d are possible", file_,
                             what, size, position_, max_bytes);
    }
    ASSIGN_OR_RETURN(const auto taken, Take(size, what));
    return std::string_view(reinterpret_cast<const char*>(taken.data()), taken.size());
  }
  absl::Status Need(uint64_t size, std::string_view what) const {
    if (size <= left()) return absl::OkStatus();
    return InvalidArgument(
        "%s: truncated or damaged: %s at offset %d needs %d bytes, the file has %d left", file_,
        what, position_, size, left());
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& file_;
  uint64_t position_ = 0;
};

absl::StatusOr<GgufValue> ReadArray(Cursor& cursor, const std::string& file, std::string_view key) {
  ASSIGN_OR_RETURN(const uint32_t type_code, cursor.Read<uint32_t>("an array's type"));
  ASSIGN_OR_RETURN(const uint64_t count, cursor.Read<uint64_t>("an array's length"));
  GgufArray array;
  array.type = static_cast<GgufType>(type_code);
  array.count = count;
  if (array.type == GgufType::kString) {
    if (count > cursor.left() / 8) {
      return InvalidArgument("%s: key '%s' claims %d strings, only %d bytes follow", file, key,
                             count, cursor.left());
    }
    array.strings.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(const std::string_view text, cursor.String(cursor.left(), key));
      array.strings.push_back(text);
    }
    return GgufValue(std::move(array));
  }
  const size_t scalar = ScalarBytes(array.type);
  if (scalar == 0) {
    return InvalidArgument("%s: key '%s' is an array of unsupported type %d", file, key, type_code);
  }
  if (count > cursor.left() / scalar) {
    return InvalidArgument("%s: key '%s' claims %d values of %d bytes, only %d bytes follow", file,
                           key, count, scalar, cursor.left());
  }
  ASSIGN_OR_RETURN(array.raw, cursor.Take(count * scalar, key));
  return GgufValue(std::move(array));
}

absl::StatusOr<GgufValue> ReadValue(Cursor& cursor, const std::string& file, std::string_view key) {
  ASSIGN_OR_RETURN(const uint32_t type_code, cursor.Read<uint32_t>("a value's type"));
  const auto type = static_cast<GgufType>(type_code);
  if (type == GgufType::kString) {
    ASSIGN_OR_RETURN(const std::string_view text, cursor.String(cursor.left(), key));
    return GgufValue(text);
  }
  if (type == GgufType::kArray) return ReadArray(cursor, file, key);
  const size_t scalar = ScalarBytes(type);
  if (scalar == 0) {
    return InvalidArgument("%s: key '%s' has unknown type %d", file, key, type_code);
  }
  ASSIGN_OR_RETURN(const auto raw, cursor.Take(scalar, key));
  return LoadScalar(type, raw.data());
}

struct TensorRecord {
  TensorInfo info;
  uint64_t offset = 0;  // in the data section
  int64_t bytes = 0;
};

absl::StatusOr<TensorRecord> ReadTensorRecord(Cursor& cursor, const std::string& file) {
  TensorRecord record;
  ASSIGN_OR_RETURN(const std::string_view name, cursor.String(kMaxKeyBytes, "a tensor's name"));
  record.info.name = std::string(name);
  ASSIGN_OR_RETURN(const uint32_t dims, cursor.Read<uint32_t>("a tensor's dimensions"));
  if (dims < 1 || dims > kMaxDims) {
    return InvalidArgument("%s: tensor '%s' has %d dimensions, 1 to %d are possible", file, name,
                           dims, kMaxDims);
  }
  for (uint32_t i = 0; i < dims; ++i) {
    ASSIGN_OR_RETURN(const uint64_t size, cursor.Read<uint64_t>("a tensor's shape"));
    if (size == 0 || size > (uint64_t{1} << 62)) {
      return InvalidArgument("%s: tensor '%s' has dimension %d of size %d", file, name, i, size);
    }
    record.info.shape.push_back(static_cast<int64_t>(size));
  }
  // GGUF names the fastest dimension first.
  std::reverse(record.info.shape.begin(), record.info.shape.end());
  ASSIGN_OR_RETURN(const uint32_t type, cursor.Read<uint32_t>("a tensor's type"));
  const std::optional<DType> dtype = TensorType(type);
  if (!dtype.has_value()) {
    return InvalidArgument(
        "%s: tensor '%s' has GGML type %d, which is not supported (supported: F32 F16 BF16 Q8_0 "
        "Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K)",
        file, name, type);
  }
  record.info.dtype = *dtype;
  const std::optional<int64_t> bytes = CheckedBytes(*dtype, record.info.shape);
  if (!bytes.has_value()) {
    return InvalidArgument("%s: tensor '%s' of type %s cannot have shape %s", file, name,
                           DTypeName(*dtype), ShapeText(record.info.shape));
  }
  record.bytes = *bytes;
  ASSIGN_OR_RETURN(record.offset, cursor.Read<uint64_t>("a tensor's offset"));
  return record;
}

// Points every record at its bytes; refuses offsets outside, misaligned or overlapping.
absl::Status PlaceTensors(std::vector<TensorRecord>& records, std::span<const std::byte> data,
                          uint64_t alignment, const std::string& file) {
  std::vector<const TensorRecord*> by_offset;
  for (TensorRecord& record : records) {
    const auto size = static_cast<uint64_t>(record.bytes);
    if (record.offset % alignment != 0) {
      return InvalidArgument(
          "%s: tensor '%s' starts at offset %d, not a multiple of the alignment %d", file,
          record.info.name, record.offset, alignment);
    }
    if (record.offset > data.size() || size > data.size() - record.offset) {
      return InvalidArgument(
          "%s: truncated or damaged: tensor '%s' needs bytes %d to %d of the data section, the "
          "file has %d",
          file, record.info.name, record.offset, record.offset + size, data.size());
    }
    record.info.data = data.subspan(record.offset, size);
    by_offset.push_back(&record);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const TensorRecord& previous = *by_offset[i - 1];
    if (previous.offset + static_cast<uint64_t>(previous.bytes) > by_offset[i]->offset) {
      return InvalidArgument("%s: tensors '%s' and '%s' overlap", file, previous.info.name,
                             by_offset[i]->info.name);
    }
  }
  return absl::OkStatus();
}

template <typename T>
void Append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(T));
}

}  // namespace

std::optional<int64_t> GgufArray::IntAt(uint64_t i) const {
  const size_t size = ScalarBytes(type);
  if (size == 0 || i >= count) return std::nullopt;
  return AsInt(LoadScalar(type, raw.data() + i * size));
}

std::optional<double> GgufArray::FloatAt(uint64_t i) const {
  const size_t size = ScalarBytes(type);
  if (size == 0 || i >= count) return std::nullopt;
  const GgufValue value = LoadScalar(type, raw.data() + i * size);
  if (const auto* d = std::get_if<double>(&value)) return *d;
  const std::optional<int64_t> integer = AsInt(value);
  return integer.has_value() ? std::optional<double>(static_cast<double>(*integer)) : std::nullopt;
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  std::unique_ptr<GgufFile> gguf(new GgufFile());
  gguf->name_ = path;
  ASSIGN_OR_RETURN(gguf->file_, MappedFile::Open(path));
  gguf->bytes_ = gguf->file_->bytes();
  RETURN_IF_ERROR(gguf->Parse());
  return gguf;
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::FromMemory(std::string name,
                                                               std::string bytes) {
  std::unique_ptr<GgufFile> gguf(new GgufFile());
  gguf->name_ = std::move(name);
  gguf->memory_ = std::move(bytes);
  gguf->bytes_ = std::as_bytes(std::span(gguf->memory_));
  RETURN_IF_ERROR(gguf->Parse());
  return gguf;
}

absl::Status GgufFile::Parse() {
  Cursor cursor(bytes_, name_);
  ASSIGN_OR_RETURN(const uint32_t magic, cursor.Read<uint32_t>("the magic number"));
  if (magic != kMagic) return InvalidArgument("%s is not a GGUF file", name_);
  ASSIGN_OR_RETURN(const uint32_t version, cursor.Read<uint32_t>("the version"));
  if (version != 2 && version != 3) {
    return InvalidArgument("%s: GGUF version %d is not supported (2 and 3 are)%s", name_, version,
                           __builtin_bswap32(version) <= 3 ? ": the file is big-endian" : "");
  }
  ASSIGN_OR_RETURN(const uint64_t num_tensors, cursor.Read<uint64_t>("the number of tensors"));
  ASSIGN_OR_RETURN(metadata_count_, cursor.Read<uint64_t>("the number of keys"));
  if (num_tensors > cursor.left() / kMinTensorRecord ||
      metadata_count_ > cursor.left() / kMinMetadataRecord) {
    return InvalidArgument("%s: claims %d tensors and %d keys in %d bytes", name_, num_tensors,
                           metadata_count_, bytes_.size());
  }
  const uint64_t metadata_begin = cursor.position();
  for (uint64_t i = 0; i < metadata_count_; ++i) {
    ASSIGN_OR_RETURN(const std::string_view key, cursor.String(kMaxKeyBytes, "a key"));
    ASSIGN_OR_RETURN(GgufValue value, ReadValue(cursor, name_, key));
    if (!metadata_.emplace(std::string(key), std::move(value)).second) {
      return InvalidArgument("%s: key '%s' is there twice", name_, key);
    }
  }
  metadata_bytes_ = bytes_.subspan(metadata_begin, cursor.position() - metadata_begin);

  std::vector<TensorRecord> records;
  records.reserve(num_tensors);
  for (uint64_t i = 0; i < num_tensors; ++i) {
    ASSIGN_OR_RETURN(TensorRecord record, ReadTensorRecord(cursor, name_));
    if (!tensor_index_.emplace(record.info.name, i).second) {
      return InvalidArgument("%s: tensor '%s' is there twice", name_, record.info.name);
    }
    records.push_back(std::move(record));
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> alignment_key, Int("general.alignment"));
  const int64_t alignment = alignment_key.value_or(kDefaultAlignment);
  if (alignment < 1 || alignment > (1 << 20) || (alignment & (alignment - 1)) != 0) {
    return InvalidArgument("%s: general.alignment is %d, not a power of two up to 1048576", name_,
                           alignment);
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> parts, Int("split.count"));
  if (parts.value_or(1) > 1) {
    return Unimplemented(
        "%s is one of %d parts of a split GGUF, which is not supported: merge them", name_, *parts);
  }
  if (records.empty()) return absl::OkStatus();
  const uint64_t padding = (alignment - cursor.position() % alignment) % alignment;
  RETURN_IF_ERROR(cursor.Take(padding, "the padding before the data").status());
  RETURN_IF_ERROR(PlaceTensors(records, bytes_.subspan(cursor.position()),
                               static_cast<uint64_t>(alignment), name_));
  for (TensorRecord& record : records) tensors_.push_back(std::move(record.info));
  return absl::OkStatus();
}

const TensorInfo* GgufFile::FindTensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

absl::StatusOr<std::optional<int64_t>> GgufFile::Int(std::string_view key) const {
  const auto it = metadata_.find(key);
  if (it == metadata_.end()) return std::optional<int64_t>();
  const std::optional<int64_t> value = AsInt(it->second);
  if (!value.has_value()) return InvalidArgument("%s: key '%s' is not an integer", name_, key);
  return value;
}

absl::StatusOr<std::optional<double>> GgufFile::Float(std::string_view key) const {
  const auto it = metadata_.find(key);
  if (it == metadata_.end()) return std::optional<double>();
  if (const auto* value = std::get_if<double>(&it->second)) return std::optional<double>(*value);
  const std::optional<int64_t> integer = AsInt(it->second);
  if (!integer.has_value()) return InvalidArgument("%s: key '%s' is not a number", name_, key);
  return std::optional<double>(static_cast<double>(*integer));
}

absl::StatusOr<std::optional<bool>> GgufFile::Bool(std::string_view key) const {
  const auto it = metadata_.find(key);
  if (it == metadata_.end()) return std::optional<bool>();
  const auto* value = std::get_if<bool>(&it->second);
  if (value == nullptr) return InvalidArgument("%s: key '%s' is not a boolean", name_, key);
  return std::optional<bool>(*value);
}

absl::StatusOr<std::optional<std::string_view>> GgufFile::String(std::string_view key) const {
  const auto it = metadata_.find(key);
  if (it == metadata_.end()) return std::optional<std::string_view>();
  const auto* value = std::get_if<std::string_view>(&it->second);
  if (value == nullptr) return InvalidArgument("%s: key '%s' is not a string", name_, key);
  return std::optional<std::string_view>(*value);
}

absl::StatusOr<const GgufArray*> GgufFile::Array(std::string_view key) const {
  const auto it = metadata_.find(key);
  if (it == metadata_.end()) return static_cast<const GgufArray*>(nullptr);
  const auto* value = std::get_if<GgufArray>(&it->second);
  if (value == nullptr) return InvalidArgument("%s: key '%s' is not an array", name_, key);
  return value;
}

std::string GgufFile::MetadataOnly() const {
  std::string out;
  out.reserve(metadata_bytes_.size() + 24);
  Append(&out, kMagic);
  Append(&out, uint32_t{3});
  Append(&out, uint64_t{0});
  Append(&out, metadata_count_);
  out.append(reinterpret_cast<const char*>(metadata_bytes_.data()), metadata_bytes_.size());
  return out;
}

}  // namespace penstock
