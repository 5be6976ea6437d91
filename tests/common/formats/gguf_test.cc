#include "common/formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/formats/mapped_file.h"
#include "common/json/json.h"
#include "tests/common/formats/bytes.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kU32 = 4;
constexpr uint32_t kString = 8;
constexpr uint32_t kArray = 9;

Bytes Head(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
  Bytes bytes;
  bytes.Raw("GGUF").Put(version).Put(tensors).Put(keys);
  return bytes;
}

struct Tensor {
  std::string name = "t";
  std::vector<uint64_t> dims = {32};  // fastest first, as in the file
  uint32_t type = 0;                  // F32
  uint64_t offset = 0;
};

Bytes& Put(Bytes& bytes, const Tensor& tensor) {
  bytes.String(tensor.name).Put(static_cast<uint32_t>(tensor.dims.size()));
  for (const uint64_t dim : tensor.dims) bytes.Put(dim);
  return bytes.Put(tensor.type).Put(tensor.offset);
}

// A file of these tensors and `data` bytes.
std::string FileOf(const std::vector<Tensor>& tensors, size_t data) {
  Bytes bytes = Head(tensors.size(), 0);
  for (const Tensor& tensor : tensors) Put(bytes, tensor);
  return bytes.PadTo(32).Fill(data).str();
}

std::string ErrorOf(std::string bytes) {
  const auto file = GgufFile::FromMemory("x.gguf", std::move(bytes));
  return file.ok() ? "accepted" : std::string(file.status().message());
}

#define EXPECT_REFUSED(bytes, ...)                                     \
  do {                                                                 \
    const std::string refusal = ErrorOf(bytes);                        \
    EXPECT_THAT(refusal, ::testing::StartsWith("x.gguf"));             \
    EXPECT_THAT(refusal, ::testing::AllOfArray(Parts({__VA_ARGS__}))); \
  } while (0)

std::vector<::testing::Matcher<std::string>> Parts(std::vector<std::string> parts) {
  std::vector<::testing::Matcher<std::string>> matchers;
  for (std::string& part : parts) matchers.push_back(HasSubstr(std::move(part)));
  return matchers;
}

TEST(Gguf, ReadsTensorsOuterDimensionFirst) {
  const std::string bytes = FileOf(
      {{.name = "a", .dims = {32, 3}, .type = 8}, {.name = "b", .dims = {5}, .offset = 128}}, 160);
  const auto file = GgufFile::FromMemory("x.gguf", bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  const TensorInfo* a = (*file)->FindTensor("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::kQ8_0);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{3, 32}));
  EXPECT_EQ(a->data.size(), 3u * 34);
  const TensorInfo* b = (*file)->FindTensor("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->data.data() - a->data.data(), 128);
  EXPECT_EQ(b->data.size(), 20u);
  EXPECT_EQ((*file)->FindTensor("c"), nullptr);
}

TEST(Gguf, VersionTwoReadsTheSame) {
  Bytes bytes = Head(0, 1, 2);
  bytes.String("k").Put(kU32).Put(uint32_t{7});
  const auto file = GgufFile::FromMemory("x.gguf", bytes.str());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*(*file)->Int("k"), 7);
}

TEST(Gguf, TypedAccessNamesKeyAndType) {
  Bytes bytes = Head(0, 2);
  bytes.String("number").Put(kU32).Put(uint32_t{7});
  bytes.String("text").Put(kString).String("seven");
  const auto file = GgufFile::FromMemory("x.gguf", bytes.str());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*(*file)->Float("number"), 7.0);
  EXPECT_EQ(*(*file)->Int("absent"), std::nullopt);
  EXPECT_EQ(**(*file)->String("text"), "seven");
  EXPECT_THAT(std::string((*file)->Int("text").status().message()), HasSubstr("'text'"));
  EXPECT_FALSE((*file)->String("number").ok());
  EXPECT_FALSE((*file)->Bool("number").ok());
  EXPECT_FALSE((*file)->Array("number").ok());
}

TEST(Gguf, EveryTruncationIsRefused) {
  Bytes bytes = Head(2, 3);
  bytes.String("a").Put(kU32).Put(uint32_t{7});
  bytes.String("s").Put(kString).String("seven");
  bytes.String("l").Put(kArray).Put(kString).Put(uint64_t{2}).String("x").String("yy");
  Put(bytes, {.name = "t0"});
  Put(bytes, {.name = "t1", .dims = {32, 2}, .type = 2, .offset = 128});
  const std::string whole = bytes.PadTo(32).Fill(128 + 36).str();
  ASSERT_TRUE(GgufFile::FromMemory("x.gguf", whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(GgufFile::FromMemory("x.gguf", whole.substr(0, size)).ok()) << size;
  }
}

TEST(Gguf, RefusesWhatIsNoGguf) {
  EXPECT_REFUSED("PK\3\4 something else", "not a GGUF");
  EXPECT_REFUSED(Head(0, 0, 1).str(), "version 1");
  EXPECT_REFUSED(Head(0, 0, 0x03000000).str(), "big-endian");
}

TEST(Gguf, RefusesHostileCounts) {
  EXPECT_REFUSED(Head(uint64_t{1} << 60, 0).str(), "1152921504606846976 tensors");
  EXPECT_REFUSED(Head(0, uint64_t{1} << 60).str(), "1152921504606846976 keys");
}

TEST(Gguf, RefusesHostileMetadata) {
  EXPECT_REFUSED(Head(0, 1).Put(uint64_t{1} << 48).Fill(64).str(), "281474976710656");
  EXPECT_REFUSED(Head(0, 1).String("k").Put(kString).Put(uint64_t{1} << 48).Fill(64).str(), "k",
                 "281474976710656");
  EXPECT_REFUSED(Head(0, 1).String("k").Put(uint32_t{77}).Fill(64).str(), "'k'", "77");
  EXPECT_REFUSED(Head(0, 1).String("k").Put(kArray).Put(kU32).Put(uint64_t{1} << 62).Fill(64).str(),
                 "'k'", "4611686018427387904");
  EXPECT_REFUSED(
      Head(0, 1).String("k").Put(kArray).Put(kString).Put(uint64_t{1} << 61).Fill(64).str(), "'k'",
      "2305843009213693952 strings");
  EXPECT_REFUSED(Head(0, 1).String("k").Put(kArray).Put(kArray).Put(uint64_t{1}).Fill(64).str(),
                 "'k'", "array of unsupported type 9");
  // Elements of another type than announced: the strings' lengths make no sense.
  EXPECT_REFUSED(Head(0, 1)
                     .String("k")
                     .Put(kArray)
                     .Put(kString)
                     .Put(uint64_t{2})
                     .Put(int32_t{-1})
                     .Put(int32_t{-1})
                     .Fill(8)
                     .str(),
                 "k");
  Bytes twice = Head(0, 2);
  for (int i = 0; i < 2; ++i) twice.String("k").Put(kU32).Put(uint32_t{1});
  EXPECT_REFUSED(twice.str(), "'k' is there twice");
}

std::string WithAlignment(uint32_t type, uint64_t value, size_t bytes_of_value) {
  Bytes bytes = Head(1, 1);
  bytes.String("general.alignment").Put(type);
  bytes.Raw(std::string_view(reinterpret_cast<const char*>(&value), bytes_of_value));
  Put(bytes, {});
  return bytes.PadTo(64).Fill(128).str();
}

TEST(Gguf, Alignment) {
  EXPECT_EQ(ErrorOf(WithAlignment(kU32, 64, 4)), "accepted");
  EXPECT_REFUSED(WithAlignment(kU32, 0, 4), "general.alignment", "0");
  EXPECT_REFUSED(WithAlignment(kU32, 48, 4), "general.alignment", "48");
  EXPECT_REFUSED(WithAlignment(kU32, 1u << 30, 4), "general.alignment", "1073741824");
  EXPECT_REFUSED(WithAlignment(6, 0x42000000, 4), "general.alignment", "not an integer");
  EXPECT_REFUSED(WithAlignment(kString, 0, 8), "general.alignment", "not an integer");
}

TEST(Gguf, RefusesHostileTensors) {
  EXPECT_REFUSED(FileOf({{.dims = {0}}}, 128), "'t'", "size 0");
  EXPECT_REFUSED(FileOf({{.dims = {32, 0}}}, 128), "'t'", "size 0");
  EXPECT_REFUSED(FileOf({{.dims = {1, 1, 1, 1, 1, 1, 1, 1, 32}}}, 128), "'t'", "9 dimensions");
  EXPECT_REFUSED(FileOf({{.dims = {}}}, 128), "'t'", "0 dimensions");
  EXPECT_REFUSED(FileOf({{.dims = {uint64_t{1} << 33, uint64_t{1} << 33}}}, 128), "'t'",
                 "[8589934592, 8589934592]");
  EXPECT_REFUSED(FileOf({{.dims = {uint64_t{1} << 61, 4}}}, 128), "'t'");
  EXPECT_REFUSED(FileOf({{.dims = {~uint64_t{0}}}}, 128), "'t'");
  EXPECT_REFUSED(FileOf({{.dims = {33}, .type = 8}}, 128), "'t'", "Q8_0", "[33]");
  EXPECT_REFUSED(FileOf({{.dims = {16, 2}, .type = 8}}, 128), "'t'", "Q8_0", "[2, 16]");
  EXPECT_REFUSED(FileOf({{.type = 99}}, 128), "'t'", "type 99");
  EXPECT_REFUSED(FileOf({{.type = 10}}, 128), "'t'", "type 10");  // Q2_K
  EXPECT_REFUSED(FileOf({{.offset = 96}}, 128), "'t'", "96 to 224", "128");
  EXPECT_REFUSED(FileOf({{.offset = uint64_t{1} << 63}}, 128), "'t'");
  EXPECT_REFUSED(FileOf({{.offset = ~uint64_t{31}}}, 128), "'t'");
  EXPECT_REFUSED(FileOf({{.dims = {8}, .offset = 4}}, 128), "'t'", "offset 4", "alignment 32");
  EXPECT_REFUSED(FileOf({{.name = "a"}, {.name = "b", .offset = 96}}, 256), "'a'", "'b'",
                 "overlap");
  EXPECT_REFUSED(FileOf({{.name = "a"}, {.name = "a", .offset = 128}}, 256), "'a' is there twice");
}

TEST(Gguf, RefusesPartsOfASplit) {
  Bytes bytes = Head(0, 1);
  bytes.String("split.count").Put(uint32_t{2}).Put(uint16_t{3});
  EXPECT_REFUSED(bytes.str(), "3 parts");
}

TEST(Gguf, NamesALfsPointerForWhatItIs) {
  const TempFolder folder;
  const std::string path = folder.Write(
      "m.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n");
  const auto file = GgufFile::Open(path);
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("git-lfs pointer"));
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(path));
  EXPECT_EQ(GgufFile::Open(folder.path() + "/absent.gguf").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(GgufFile::Open(folder.path()).ok());
  EXPECT_THAT(std::string(GgufFile::Open(folder.Write("e", "")).status().message()),
              HasSubstr("empty"));
}

// ---- against the gguf package ----

Json ScalarOf(const GgufValue& value) {
  if (const auto* b = std::get_if<bool>(&value)) return Json(*b);
  if (const auto* i = std::get_if<int64_t>(&value)) return Json(*i);
  if (const auto* u = std::get_if<uint64_t>(&value)) return Json(Json::Number{std::to_string(*u)});
  if (const auto* d = std::get_if<double>(&value)) return Json(*d);
  return Json(std::get<std::string_view>(value));
}

// Numbers by value: 1.0 and 1 are the same here.
void ExpectSame(const Json& expected, const Json& got, const std::string& where) {
  if (expected.is_number() && got.is_number()) {
    EXPECT_EQ(expected.ToDouble(), got.ToDouble()) << where;
    EXPECT_EQ(expected.ToInt64(), got.ToInt64()) << where;
    return;
  }
  EXPECT_EQ(expected, got) << where << ": " << expected.Dump() << " " << got.Dump();
}

class GgufOracle : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* data = std::getenv("PENSTOCK_TEST_DATA");
    ASSERT_NE(data, nullptr);
    const std::string folder = std::string(data) + "/formats/";
    auto file = GgufFile::Open(folder + "oracle.gguf");
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    const auto text = ReadFile(folder + "oracle.json");
    ASSERT_TRUE(text.ok()) << text.status();
    auto expected = Json::Parse(*text);
    ASSERT_TRUE(expected.ok()) << expected.status();
    expected_ = *std::move(expected);
  }

  static void ExpectMetadata(const Json& expected, const GgufFile& file) {
    ASSERT_EQ(expected.as_object().size(), file.metadata().size());
    for (const JsonMember& member : expected.as_object()) {
      const auto it = file.metadata().find(member.key);
      ASSERT_NE(it, file.metadata().end()) << member.key;
      const auto* array = std::get_if<GgufArray>(&it->second);
      if (array == nullptr) {
        ExpectSame(member.value, ScalarOf(it->second), member.key);
        continue;
      }
      const Json::Array& values = member.value.as_array();
      ASSERT_EQ(values.size(), array->count) << member.key;
      for (size_t i = 0; i < values.size(); ++i) {
        const std::string where = member.key + "[" + std::to_string(i) + "]";
        if (array->type == GgufType::kString) {
          EXPECT_EQ(values[i].as_string(), array->strings[i]) << where;
        } else if (values[i].is_bool()) {
          EXPECT_EQ(array->raw[i] != std::byte{0}, values[i].as_bool()) << where;
        } else {
          EXPECT_EQ(array->FloatAt(i), values[i].ToDouble()) << where;
          if (values[i].is_integer()) {
            EXPECT_EQ(array->IntAt(i), values[i].ToInt64()) << where;
          }
        }
      }
    }
  }

  std::unique_ptr<GgufFile> file_;
  Json expected_;
};

TEST_F(GgufOracle, ReadsWhatThePackageWrote) {
  ExpectMetadata(*expected_.Find("metadata"), *file_);
  const Json::Array& tensors = expected_.Find("tensors")->as_array();
  ASSERT_EQ(tensors.size(), file_->tensors().size());
  for (const Json& expected : tensors) {
    const std::string& name = expected.Find("name")->as_string();
    const TensorInfo* tensor = file_->FindTensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(DTypeName(tensor->dtype), expected.Find("type")->as_string()) << name;
    EXPECT_EQ(ShapeText(tensor->shape), expected.Find("shape")->as_string()) << name;
    uint64_t sum = 0;  // position-weighted, so that moved bytes show
    for (size_t i = 0; i < tensor->data.size(); ++i) {
      sum += (i + 1) * std::to_integer<uint64_t>(tensor->data[i]);
    }
    EXPECT_EQ(static_cast<int64_t>(sum), expected.Find("checksum")->ToInt64()) << name;
  }
}

TEST_F(GgufOracle, MetadataOnlyKeepsTheMetadata) {
  const std::string bytes = file_->MetadataOnly();
  const auto copy = GgufFile::FromMemory("copy.gguf", bytes);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_TRUE((*copy)->tensors().empty());
  ExpectMetadata(*expected_.Find("metadata"), **copy);
  EXPECT_EQ((*copy)->MetadataOnly(), bytes);
}

}  // namespace
}  // namespace penstock
