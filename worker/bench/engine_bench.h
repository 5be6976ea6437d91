#pragma once

// Offline latency and throughput of a model's shapes on the GPU, with random weights: decode steps
// at several batch sizes and prefills of several lengths, each as a share of its floor.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

struct EngineBenchOptions {
  std::string model_config;  // a config.json
  std::vector<int32_t> batches = {1, 8, 32, 64, 128, 256};
  int32_t context = 1024;  // mean of the timed steps
  int32_t output = 128;    // timed steps
  std::vector<int32_t> prefills = {128, 1024, 8192};
  int32_t max_num_batched_tokens = 8192;
  int32_t block_size = 16;
  bool use_graphs = true;
  bool json = false;
  // Of the card, for the floor: what was measured on an H200.
  double bandwidth_tb = 4.3;
  double tflops = 790;
};

// "--batch 1,8 --context 1024 ..."; InvalidArgument names the flag. args without the program's
// name.
absl::StatusOr<EngineBenchOptions> ParseEngineBench(std::span<const std::string> args);

// Prints to standard output.
absl::Status RunEngineBench(const EngineBenchOptions& options);

// The command as people type it: args without its name. Returns the exit code.
int RunEngineBenchCommand(std::span<const std::string> args);

}  // namespace penstock
