#include "worker/model/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "tests/worker/model/model_fixtures.h"
#include "worker/model/memory_report.h"
#include "worker/model/model_config.h"
#include "worker/model/weight_source.h"

namespace penstock {
namespace {

// Weights in memory that a test can change.
class MemorySource : public WeightSource {
 public:
  absl::StatusOr<WeightView> Get(std::string_view name) const override {
    const std::string& data = tensors.at(std::string(name));
    return WeightView{.dtype = dtype,
                      .shape = {static_cast<int64_t>(data.size() / 4)},
                      .data = std::as_bytes(std::span(data))};
  }
  bool Has(std::string_view name) const override { return tensors.count(std::string(name)) != 0; }
  int64_t total_bytes() const override { return 0; }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, data] : tensors) names.push_back(name);
    return names;
  }

  std::map<std::string, std::string> tensors;
  DType dtype = DType::kF32;
};

class FingerprintTest : public ::testing::Test {
 protected:
  FingerprintTest() {
    source_.tensors["small"] = std::string(16384, 's');
    source_.tensors["large"] = std::string(1 << 20, 'l');
    spec_.architecture = "LlamaForCausalLM";
    print_ = Print();
  }
  std::string Print() const { return WeightsFingerprint(spec_, source_); }

  MemorySource source_;
  ModelSpec spec_;
  std::string print_;
};

TEST_F(FingerprintTest, IsAFunctionOfTheContent) {
  EXPECT_EQ(print_.size(), 64u);
  EXPECT_EQ(Print(), print_);
}

TEST_F(FingerprintTest, SeesSpecTypesNamesAndSizes) {
  spec_.rope.theta = 500000.0;
  EXPECT_NE(Print(), print_);
  spec_.rope.theta = 10000.0;
  source_.dtype = DType::kBF16;
  EXPECT_NE(Print(), print_);
  source_.dtype = DType::kF32;
  EXPECT_EQ(Print(), print_);
  source_.tensors["large"] += "llll";
  EXPECT_NE(Print(), print_);
}

TEST_F(FingerprintTest, SeesEveryByteOfSmallTensorsAndTheEndsOfLargeOnes) {
  for (const size_t at : {size_t{0}, size_t{8000}, size_t{16383}}) {
    source_.tensors["small"][at] = 'x';
    EXPECT_NE(Print(), print_) << at;
    source_.tensors["small"][at] = 's';
  }
  for (const size_t at : {size_t{0}, (size_t{1} << 20) - 1}) {
    source_.tensors["large"][at] = 'x';
    EXPECT_NE(Print(), print_) << at;
    source_.tensors["large"][at] = 'l';
  }
  // A change of any 200 KB run is seen: that is more than the space between two pieces.
  for (size_t begin = 0; begin + 200'000 < size_t{1} << 20; begin += 50'000) {
    const std::string before = source_.tensors["large"];
    source_.tensors["large"].replace(begin, 200'000, 200'000, 'x');
    EXPECT_NE(Print(), print_) << begin;
    source_.tensors["large"] = before;
  }
}

TEST_F(FingerprintTest, ContentMovedBetweenTensorsIsAnotherModel) {
  source_.tensors["small"] = std::string(8, 'a') + std::string(8, 'b');
  source_.tensors["tail"] = std::string(8, 'c');
  const std::string before = Print();
  source_.tensors["small"] = std::string(8, 'a');
  source_.tensors["tail"] = std::string(8, 'b') + std::string(8, 'c');
  EXPECT_NE(Print(), before);
}

TEST(Fingerprint, OfEightBillionParametersIsCheap) {
  const auto spec = SpecFromConfigFile(testing::ConfigsFolder() + "/llama-3.1-8b.json");
  const auto source = MakeDummySource(*spec, 1);
  const auto begin = std::chrono::steady_clock::now();
  const std::string print = WeightsFingerprint(*spec, **source);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took, std::chrono::seconds(2));  // 10 ms when the machine is free and unsanitized
  const auto other = MakeDummySource(*spec, 2);
  EXPECT_NE(WeightsFingerprint(*spec, **other), print);
}

TEST(MemoryUse, SaysWhatFits) {
  const auto spec = SpecFromConfigFile(testing::ConfigsFolder() + "/llama-3.1-8b.json");
  const MemoryUse use = ComputeMemoryUse(*spec, 16'060'522'496, 13'107'200'000, 2, 16, 8192);
  EXPECT_EQ(use.kv_token_bytes, 131072);
  EXPECT_EQ(use.kv_tokens, 100'000);
  EXPECT_NEAR(use.full_length_requests, 12.2, 0.01);
  EXPECT_EQ(MemoryText(use),
            "weights 16.1 GB; KV 13.1 GB holds 100,000 tokens (131,072 bytes each): 12.2 requests "
            "of 8,192 tokens");
}

TEST(MemoryUse, Numbers) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(-1234567), "-1,234,567");
  EXPECT_EQ(BytesText(999), "999 bytes");
  EXPECT_EQ(BytesText(93'000'000), "93 MB");
  EXPECT_EQ(BytesText(48'000'000'000), "48.0 GB");
}

}  // namespace
}  // namespace penstock
