#include "common/formats/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "common/formats/mapped_file.h"

namespace penstock {
namespace {

TEST(Dequantize, EqualsTheGgufPackageBitForBit) {
  const char* data = std::getenv("PENSTOCK_TEST_DATA");
  ASSERT_NE(data, nullptr);
  auto file = MappedFile::Open(std::string(data) + "/formats/dequantize.bin");
  ASSERT_TRUE(file.ok()) << file.status();
  std::span<const std::byte> bytes = (*file)->bytes();
  const auto take = [&](size_t size) {
    const auto taken = bytes.first(size);
    bytes = bytes.subspan(size);
    return taken;
  };
  int types = 0;
  while (!bytes.empty()) {
    const auto name_size = std::to_integer<size_t>(take(1)[0]);
    const auto name_bytes = take(name_size);
    const std::string name(reinterpret_cast<const char*>(name_bytes.data()), name_size);
    uint32_t sizes[3];
    std::memcpy(sizes, take(sizeof(sizes)).data(), sizeof(sizes));
    const auto blocks = take(size_t{sizes[0]} * sizes[1]);
    const auto expected_bytes = take(size_t{sizes[0]} * sizes[2] * sizeof(float));
    std::vector<float> expected(size_t{sizes[0]} * sizes[2]);
    std::memcpy(expected.data(), expected_bytes.data(), expected_bytes.size());
    for (const DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                             DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
      if (DTypeName(type) != name) continue;
      ++types;
      std::vector<float> got(expected.size(), NAN);
      Dequantize(type, blocks, got);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
            << name << " value " << i << ": " << got[i] << " instead of " << expected[i];
      }
    }
  }
  EXPECT_EQ(types, 8);
}

TEST(Dequantize, HalfAndBfloat) {
  EXPECT_EQ(HalfToFloat(0x3C00), 1.0f);
  EXPECT_EQ(HalfToFloat(0xC000), -2.0f);
  EXPECT_EQ(HalfToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(HalfToFloat(0x7BFF), 65504.0f);
  EXPECT_TRUE(std::isinf(HalfToFloat(0x7C00)));
  EXPECT_TRUE(std::isnan(HalfToFloat(0x7E00)));
  EXPECT_EQ(Bf16ToFloat(0x3F80), 1.0f);
}

}  // namespace
}  // namespace penstock
