#include "worker/worker_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace penstock {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<ParsedWorkerOptions> Parse(std::vector<const char*> flags) {
  flags.insert(flags.begin(), "penstock-worker");
  return ParseWorkerOptions(static_cast<int>(flags.size()), flags.data());
}

WorkerOptions Good(std::vector<const char*> flags) {
  const auto parsed = Parse(std::move(flags));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() && parsed->options ? *parsed->options : WorkerOptions();
}

TEST(WorkerOptionsTest, DefaultsAreLoopbackAndAutomatic) {
  const WorkerOptions options = Good({"--model", "/models/tiny/"});
  EXPECT_EQ(options.listen.ToString(), "127.0.0.1:50051");
  EXPECT_EQ(options.served_model_name, "tiny");
  EXPECT_EQ(options.max_model_len, 0);
  EXPECT_TRUE(options.enable_prefix_caching);
  EXPECT_EQ(options.backend, Backend::kAuto);
}

TEST(WorkerOptionsTest, EveryFlagArrives) {
  const WorkerOptions o = Good({"m.gguf",
                                "--served-model-name",
                                "n",
                                "--load-format",
                                "gguf",
                                "--dtype",
                                "float32",
                                "--seed",
                                "18446744073709551615",
                                "--backend",
                                "fake",
                                "--max-model-len",
                                "32k",
                                "--max-num-seqs",
                                "7",
                                "--max-num-batched-tokens",
                                "2K",
                                "--block-size",
                                "32",
                                "--kv-cache-memory-bytes",
                                "1.5g",
                                "--no-enable-prefix-caching",
                                "--threads",
                                "3",
                                "--fake",
                                "step-us=5",
                                "--listen",
                                "unix:/run/w",
                                "--drain-timeout",
                                "0.5",
                                "--die-with-parent",
                                "--log-level",
                                "debug"});
  EXPECT_EQ(o.model, "m.gguf");
  EXPECT_EQ(o.served_model_name, "n");
  EXPECT_EQ(o.load_format, "gguf");
  EXPECT_EQ(o.dtype, "float32");
  EXPECT_EQ(o.seed, 18446744073709551615u);
  EXPECT_EQ(o.backend, Backend::kFake);
  EXPECT_EQ(o.max_model_len, 32'000);
  EXPECT_EQ(o.max_num_seqs, 7);
  EXPECT_EQ(o.max_num_batched_tokens, 2'048);
  EXPECT_EQ(o.block_size, 32);
  EXPECT_EQ(o.kv_cache_memory_bytes, 1'500'000'000);
  EXPECT_FALSE(o.enable_prefix_caching);
  EXPECT_EQ(o.threads, 3);
  EXPECT_EQ(o.fake, "step-us=5");
  EXPECT_EQ(o.listen.unix_path, "/run/w");
  EXPECT_EQ(o.drain_timeout, std::chrono::milliseconds(500));
  EXPECT_TRUE(o.die_with_parent);
  EXPECT_EQ(o.log_level, LogLevel::kDebug);
}

TEST(WorkerOptionsTest, RefusalsNameFlagAndValue) {
  const std::vector<std::pair<std::vector<const char*>, std::string>> cases = {
      {{}, "--model"},
      {{"m", "--max-model-len", "lots"}, "lots"},
      {{"m", "--max-model-len", "0"}, "--max-model-len"},
      {{"m", "--max-model-len", "-5"}, "-5"},
      {{"m", "--max-model-len", "99t"}, "--max-model-len"},
      {{"m", "--max-num-seqs", "0"}, "--max-num-seqs"},
      {{"m", "--block-size", "17"}, "17"},
      {{"m", "--backend", "tpu"}, "tpu"},
      {{"m", "--dtype", "int3"}, "int3"},
      {{"m", "--drain-timeout", "nan"}, "--drain-timeout"},
      {{"m", "--drain-timeout", "-1"}, "--drain-timeout"},
      {{"m", "--kv-cache-memory-bytes", "0"}, "--kv-cache-memory-bytes"},
      {{"m", "--listen", "nowhere"}, "nowhere"},
      {{"m", "--fake", "step-us=1"}, "--backend fake"},
      {{"m", "--max-num-sequences", "5"}, "did you mean --max-num-seqs?"},
      {{"m", "--max-modle-len=5"}, "did you mean --max-model-len?"},
      {{"m", "--zzzzzzzz"}, "--help"},
  };
  for (const auto& [flags, expected] : cases) {
    const auto parsed = Parse(flags);
    ASSERT_FALSE(parsed.ok()) << expected;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(expected));
  }
}

TEST(WorkerOptionsTest, HelpAndVersionAreTextsNotOptions) {
  const auto help = Parse({"--help"});
  ASSERT_TRUE(help.ok());
  EXPECT_FALSE(help->options.has_value());
  EXPECT_THAT(help->text, HasSubstr("--max-model-len"));
  EXPECT_THAT(Parse({"--version"})->text, HasSubstr("penstock-worker"));
}

TEST(WorkerOptionsTest, FlagsWinOverEnvironmentWinsOverFile) {
  std::string path = (std::filesystem::temp_directory_path() / "worker_options.XXXXXX").string();
  close(mkstemp(path.data()));
  std::ofstream(path) << "model = \"from-file\"\nmax-num-seqs = 3\nblock-size = 16\n"
                         "max-model-len = \"4K\"\n";
  setenv("PENSTOCK_MAX_NUM_SEQS", "4", 1);
  setenv("PENSTOCK_BLOCK_SIZE", "32", 1);
  const WorkerOptions options = Good({"--config", path.c_str(), "--max-num-seqs", "5"});
  unsetenv("PENSTOCK_MAX_NUM_SEQS");
  unsetenv("PENSTOCK_BLOCK_SIZE");
  std::filesystem::remove(path);
  EXPECT_EQ(options.model, "from-file");
  EXPECT_EQ(options.max_num_seqs, 5);
  EXPECT_EQ(options.block_size, 32);
  EXPECT_EQ(options.max_model_len, 4'096);
}

TEST(WorkerOptionsTest, HumanIntegers) {
  const auto value = [](std::string_view text) { return *ParseHumanInt("--x", text); };
  EXPECT_EQ(value("1"), 1);
  EXPECT_EQ(value("32k"), 32'000);
  EXPECT_EQ(value("32K"), 32'768);
  EXPECT_EQ(value("25.6k"), 25'600);
  EXPECT_EQ(value("2G"), int64_t{2} << 30);
  for (const std::string bad : {"", "k", "1kk", "0.5", "1e400", "nan", "inf", "-1", "1 k", "1.5"}) {
    EXPECT_FALSE(ParseHumanInt("--x", bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace penstock
