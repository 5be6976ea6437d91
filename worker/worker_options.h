#pragma once

// What penstock-worker was asked to do: one validated struct, from flags, the environment
// (PENSTOCK_ and the flag's name in capitals) and a TOML file (--config). Names, units and meaning
// are vLLM's where it has the flag.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/flag_help.h"
#include "common/base/log.h"
#include "common/rpc/address.h"

namespace penstock {

enum class Backend { kAuto, kCpu, kFake, kCuda };

struct WorkerOptions {
  std::string model;              // a directory, a GGUF file; any name with the fake backend
  std::string served_model_name;  // never empty: the model's own name by default
  RpcAddress listen;
  Backend backend = Backend::kAuto;
  std::string load_format = "auto";  // auto, safetensors, gguf or dummy
  std::string dtype = "auto";
  int32_t max_model_len = 0;             // tokens; 0 = auto: what model and memory allow
  int32_t max_num_seqs = 0;              // 0 = the backend's choice
  int32_t max_num_batched_tokens = 0;    // 0 = the backend's choice
  int32_t block_size = 0;                // tokens; 0 = the backend's choice
  int64_t kv_cache_memory_bytes = 0;     // 0 = the backend's choice
  double gpu_memory_utilization = 0.92;  // of the CUDA backend
  uint64_t seed = 0;                     // of dummy weights
  bool enable_prefix_caching = true;
  int32_t threads = 0;  // of the CPU backend; 0 = all cores
  std::chrono::milliseconds drain_timeout{30'000};
  bool die_with_parent = false;
  std::string fake;  // ParseFakeRunnerOptions' text, only with the fake backend
  LogLevel log_level = LogLevel::kInfo;
};

// Unset options: --help or --version was asked for, `text` is what to print, exit 0.
struct ParsedWorkerOptions {
  std::optional<WorkerOptions> options;
  std::string text;
};

// InvalidArgument names the flag, the value and what is accepted.
absl::StatusOr<ParsedWorkerOptions> ParseWorkerOptions(int argc, const char* const* argv);

// Every flag ParseWorkerOptions knows, for the launcher that hands them on.
std::vector<FlagInfo> WorkerFlags();

// "4096", "32k" (thousands), "32K" (1024s), "1.5g": vLLM's human-readable integers.
absl::StatusOr<int64_t> ParseHumanInt(std::string_view flag, std::string_view text);

}  // namespace penstock
