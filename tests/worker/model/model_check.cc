// Runs a model on the CPU runner along given tokens and writes its logits, for comparison with a
// reference: model_check MODEL [--threads N] [--chunk N] [--isa scalar|avx2|avx512] [--dummy-seed
// N]
//
// Standard input, one sequence a line: the first position whose logits are wanted, then the ids.
// Standard output: for each sequence, the raw f32 logits [positions wanted, vocabulary] of the
// positions from there to the last, each predicting the next token. The first wanted position ends
// a prefill of chunks; the later ones are decode steps of one token. With --greedy N it writes
// lines of ids instead: the N best next tokens after each sequence, each fed back.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>

#include "common/base/status.h"
#include "worker/model/cpu_runner.h"
#include "worker/model/weight_source.h"

namespace penstock {
namespace {

struct Flags {
  std::string model;
  int32_t threads = 0;
  int32_t chunk = 64;
  int32_t greedy = 0;
  std::optional<kernels::Isa> isa;
};

int Fail(const std::string& message) {
  std::fprintf(stderr, "model_check: %s\n", message.c_str());
  return 1;
}

bool ParseFlags(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool has_value = i + 1 < argc;
    if (arg == "--threads" && has_value) {
      flags->threads = std::atoi(argv[++i]);
    } else if (arg == "--chunk" && has_value) {
      flags->chunk = std::atoi(argv[++i]);
    } else if (arg == "--greedy" && has_value) {
      flags->greedy = std::atoi(argv[++i]);
    } else if (arg == "--isa" && has_value) {
      const std::string isa = argv[++i];
      flags->isa = isa == "scalar" ? kernels::Isa::kScalar
                   : isa == "avx2" ? kernels::Isa::kAvx2
                                   : kernels::Isa::kAvx512;
    } else if (flags->model.empty()) {
      flags->model = arg;
    } else {
      return false;
    }
  }
  return !flags->model.empty();
}

// Feeds ids[from, to) of one sequence in slot 1 as one step; its logits reach the hook when
// `sample`.
absl::StatusOr<TokenId> Step(CpuRunner& runner, const std::vector<TokenId>& ids, int32_t from,
                             int32_t to, bool sample) {
  static uint64_t step_id = 0;
  std::vector<BlockId> blocks;
  for (int32_t p = 0; p < to; p += runner.info().block_size) {
    blocks.push_back(BlockId{static_cast<int32_t>(blocks.size()) + 1});
  }
  const std::vector<std::span<const BlockId>> tables(runner.info().kv_groups.size(), blocks);
  StepInputBuilder builder;
  StepInput input;
  builder.Begin(++step_id, static_cast<int32_t>(tables.size()));
  StepRow row = {.slot = SlotId{1}, .num_tokens = to - from, .start_position = from};
  if (sample) {
    row.output_index = 0;
    row.logits = LogitsKind::kLast;
  }
  builder.AddRow(row,
                 std::span(ids).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)),
                 tables);
  builder.Finish(&input);
  if (absl::Status s = runner.LaunchForward(input); !s.ok()) return s;
  if (absl::Status s = runner.LaunchSample({}); !s.ok()) return s;
  auto output = runner.Collect();
  if (!output.ok()) return output.status();
  return (*output)->tokens.empty() ? 0 : (*output)->tokens[0];
}

absl::Status RunSequence(CpuRunner& runner, std::vector<TokenId> ids, int32_t first,
                         const Flags& flags) {
  const SamplingParams greedy = {.temperature = 0};
  runner.InitSlot({.slot = SlotId{1}, .sampling = &greedy});
  TokenId next = 0;
  for (int32_t from = 0; from <= first; from += flags.chunk) {
    const int32_t to = std::min(from + flags.chunk, first + 1);
    ASSIGN_OR_RETURN(next, Step(runner, ids, from, to, to == first + 1));
  }
  for (int32_t at = first + 1; at < static_cast<int32_t>(ids.size()); ++at) {
    ASSIGN_OR_RETURN(next, Step(runner, ids, at, at + 1, true));
  }
  for (int32_t i = 0; i < flags.greedy; ++i) {
    std::printf("%d%c", next, i + 1 < flags.greedy ? ' ' : '\n');
    const auto at = static_cast<int32_t>(ids.size());
    ids.push_back(next);
    ASSIGN_OR_RETURN(next, Step(runner, ids, at, at + 1, true));
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!ParseFlags(argc, argv, &flags)) {
    return Fail("usage: model_check MODEL [--threads N] [--chunk N] [--isa NAME] < sequences");
  }
  auto files = OpenModelFiles(flags.model, LoadFormat::kAuto);
  if (!files.ok()) return Fail(std::string(files.status().message()));
  auto runner = CpuRunner::Create(files->spec, *files->weights,
                                  {.num_threads = flags.threads,
                                   .max_num_seqs = 1,
                                   .max_num_batched_tokens = std::max(flags.chunk, 16),
                                   .isa = flags.isa,
                                   .chunk_times = {{64, 1000}}});
  if (!runner.ok()) return Fail(std::string(runner.status().message()));
  std::fprintf(stderr, "%s\n", (*runner)->info().device.c_str());
  (*runner)->set_logits_hook([&flags](SlotId, int32_t, std::span<const float> logits) {
    if (flags.greedy == 0) std::fwrite(logits.data(), sizeof(float), logits.size(), stdout);
  });
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    int32_t first = 0;
    words >> first;
    std::vector<TokenId> ids;
    for (TokenId id = 0; words >> id;) ids.push_back(id);
    if (first < 0 || static_cast<size_t>(first) >= ids.size()) return Fail("bad line: " + line);
    if (absl::Status s = RunSequence(**runner, ids, first, flags); !s.ok()) {
      return Fail(std::string(s.message()));
    }
  }
  return std::fflush(stdout) == 0 ? 0 : Fail("cannot write the logits");
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main(argc, argv); }
