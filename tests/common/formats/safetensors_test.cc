#include "common/formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "common/formats/dequantize.h"
#include "tests/common/formats/bytes.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

std::string FileOf(std::string_view header, size_t data) {
  return Bytes().String(header).Fill(data).str();
}

std::string One(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return "{\"w\":{\"dtype\":\"" + std::string(dtype) + "\",\"shape\":" + std::string(shape) +
         ",\"data_offsets\":" + std::string(offsets) + "}}";
}

std::string ErrorOf(std::string bytes) {
  const auto file = SafetensorsFile::FromMemory("x.safetensors", std::move(bytes));
  return file.ok() ? "accepted" : std::string(file.status().message());
}

#define EXPECT_REFUSED(bytes, part)                               \
  do {                                                            \
    const std::string refusal = ErrorOf(bytes);                   \
    EXPECT_THAT(refusal, ::testing::StartsWith("x.safetensors")); \
    EXPECT_THAT(refusal, HasSubstr(part));                        \
  } while (0)

TEST(Safetensors, ReadsTensorsInPlace) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("ids":{"dtype":"I64","shape":[1],"data_offsets":[16,24]},)"
      R"("none":{"dtype":"I64","shape":[0],"data_offsets":[24,24]}}   )";
  const auto file = SafetensorsFile::FromMemory("x", FileOf(header, 24));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->tensors().size(), 2u);
  const TensorInfo& b = (*file)->tensors()[0];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.dtype, DType::kBF16);
  EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(b.data.size(), 12u);
  EXPECT_EQ((*file)->tensors()[1].shape, (std::vector<int64_t>{1}));
  EXPECT_EQ((*file)->unreadable().at("ids"), "I64");
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = FileOf(One("F16", "[8,64]", "[0,1024]"), 1024);
  ASSERT_EQ(ErrorOf(whole), "accepted");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(ErrorOf(whole.substr(0, size)), "accepted") << size;
  }
  EXPECT_REFUSED(whole.substr(0, whole.size() - 1000), "[0,1024]");
  EXPECT_REFUSED(whole + "x", "the file has 1025");
}

TEST(Safetensors, RefusesHostileHeaders) {
  EXPECT_REFUSED(Bytes().Put(uint64_t{1} << 60).Fill(64).str(), "1152921504606846976");
  EXPECT_REFUSED(Bytes().Put(~uint64_t{0}).Fill(64).str(), "18446744073709551615");
  EXPECT_REFUSED(FileOf("not json", 0), "header");
  EXPECT_REFUSED(FileOf("[1]", 0), "not a JSON object");
  EXPECT_REFUSED(FileOf("{\"w\":3}", 0), "'w'");
  EXPECT_REFUSED(FileOf(std::string(5000, '['), 0), "header");
  const std::string entry = One("F32", "[1]", "[0,4]");
  EXPECT_REFUSED(FileOf(entry.substr(0, entry.size() - 1) + "," + entry.substr(1), 4),
                 "w");  // the key twice
}

TEST(Safetensors, RefusesHostileTensors) {
  EXPECT_REFUSED(FileOf(One("F32", "[0,4]", "[0,0]"), 0), "dimension of size 0");
  EXPECT_REFUSED(FileOf(One("F32", "[2,4]", "[0,16]"), 16), "16 bytes, expected 32");
  EXPECT_REFUSED(FileOf(One("F16", "[8]", "[0,32]"), 32), "32 bytes, expected 16");
  EXPECT_REFUSED(FileOf(One("I64", "[8]", "[0,32]"), 32), "32 bytes, expected 64");
  EXPECT_REFUSED(FileOf(One("F33", "[8]", "[0,32]"), 32), "unknown dtype 'F33'");
  EXPECT_REFUSED(FileOf(One("F32", "[4294967296,4294967296]", "[0,32]"), 32), "'w'");
  EXPECT_REFUSED(FileOf(One("F32", "[-1]", "[0,32]"), 32), "[-1]");
  EXPECT_REFUSED(FileOf(One("F32", "[1.5]", "[0,32]"), 32), "[1.5]");
  EXPECT_REFUSED(FileOf(One("F32", "8", "[0,32]"), 32), "no shape");
  EXPECT_REFUSED(FileOf(One("F32", "[8]", "[0]"), 32), "data_offsets");
  EXPECT_REFUSED(FileOf(One("F32", "[8]", "[32,0]"), 32), "[32,0]");
  EXPECT_REFUSED(FileOf(One("F32", "[8]", "[0,9223372036854775808]"), 32), "9223372036854775808");
  EXPECT_REFUSED(FileOf(One("F32", "[8]", "[4,36]"), 36), "a hole");
  EXPECT_REFUSED(FileOf(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                        R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                        12),
                 "tensors overlap");
}

TEST(Safetensors, NamesALfsPointerForWhatItIs) {
  const TempFolder folder;
  folder.Write("model.safetensors",
               "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n");
  const auto model = SafetensorsModel::Open(folder.path());
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("git-lfs pointer"));
}

std::string F32(std::string_view name) {
  return FileOf(
      "{\"" + std::string(name) + "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
      4);
}

std::string ModelError(const TempFolder& folder) {
  const auto model = SafetensorsModel::Open(folder.path());
  return model.ok() ? "accepted" : std::string(model.status().message());
}

TEST(SafetensorsModel, ReadsShards) {
  const TempFolder folder;
  folder.Write("one.safetensors", F32("a"));
  folder.Write("two.safetensors", F32("b"));
  folder.Write("model.safetensors.index.json",
               R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const auto model = SafetensorsModel::Open(folder.path());
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_NE((*model)->Find("b").tensor, nullptr);
  EXPECT_THAT(*(*model)->Find("b").file, HasSubstr("two.safetensors"));
  EXPECT_EQ((*model)->Find("c").tensor, nullptr);
}

TEST(SafetensorsModel, RefusesBrokenFolders) {
  const TempFolder folder;
  EXPECT_THAT(ModelError(folder), HasSubstr("model.safetensors"));
  folder.Write("one.safetensors", F32("a"));
  const auto index = [&](std::string_view map) {
    folder.Write("model.safetensors.index.json", "{\"weight_map\":" + std::string(map) + "}");
    return ModelError(folder);
  };
  EXPECT_THAT(index(R"({"a":"one.safetensors","b":"two.safetensors"})"),
              HasSubstr("two.safetensors, which is not there"));
  EXPECT_THAT(index(R"({"a":"one.safetensors","b":"one.safetensors"})"), HasSubstr("'b'"));
  EXPECT_THAT(index(R"({"a":"../one.safetensors"})"), HasSubstr("'a'"));
  EXPECT_THAT(index("{}"), HasSubstr("empty"));
  EXPECT_THAT(index("3"), HasSubstr("weight_map"));
  folder.Write("two.safetensors", F32("a"));
  EXPECT_THAT(index(R"({"a":"one.safetensors","b":"two.safetensors"})"),
              HasSubstr("'a' is in two files"));
  folder.Write("three.safetensors", F32("c"));
  EXPECT_THAT(index(R"({"a":"three.safetensors","c":"one.safetensors"})"), HasSubstr("'c'"));
}

}  // namespace
}  // namespace penstock
