// Times the GPU kernels on shapes of Llama-3.1-8B and prints each as a share of its floor: bytes
// read and written once at the card's measured stream rate, or multiply-adds at its measured matrix
// rate, whichever is longer. Every launch of a measurement works on other memory than the one
// before, so the L2 is cold.
//
//   cuda_bench [--bandwidth-tb 4.3] [--tflops 790]

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/prefill_attention.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_kv.h"
#include "kernels/cuda/sample.h"
#include "kernels/cuda/skinny_gemm.h"

namespace penstock::kernels {
namespace {

double bandwidth_tb = 4.3;  // set once from the command line
double tflops = 790;

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <typename T>
class Device {
 public:
  explicit Device(size_t count) { Check(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc"); }
  ~Device() { cudaFree(data_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  T* get() const { return data_; }

 private:
  T* data_ = nullptr;
};

__global__ void FillKernel(__nv_bfloat16* out, size_t count, uint32_t seed, float scale) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + seed;
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    x ^= x >> 16;
    out[i] = __float2bfloat16((static_cast<float>(x) * 0x1p-31f - 1.0f) * scale);
  }
}

std::unique_ptr<Device<__nv_bfloat16>> Random(size_t count, float scale = 1.0f) {
  auto buffer = std::make_unique<Device<__nv_bfloat16>>(count);
  FillKernel<<<1024, 256>>>(buffer->get(), count, 12345, scale);
  Check(cudaGetLastError(), "fill");
  return buffer;
}

template <typename T>
std::unique_ptr<Device<T>> Upload(const std::vector<T>& values) {
  auto buffer = std::make_unique<Device<T>>(values.size());
  Check(cudaMemcpy(buffer->get(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
        "upload");
  return buffer;
}

// Microseconds a launch: the median of ten graphs of `repeats` launches each. launch(i) uses copy
// i.
double Time(int repeats, const std::function<cudaError_t(int, cudaStream_t)>& launch) {
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream), "stream");
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < repeats; ++i) Check(launch(i, stream), "launch");
  Check(cudaStreamEndCapture(stream, &graph), "capture");
  Check(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  cudaEvent_t begin;
  cudaEvent_t end;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  std::vector<double> times;
  for (int i = 0; i < 12; ++i) {
    Check(cudaEventRecord(begin, stream), "record");
    Check(cudaGraphLaunch(executable, stream), "graph");
    Check(cudaEventRecord(end, stream), "record");
    Check(cudaEventSynchronize(end), "run");
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    if (i >= 2) times.push_back(ms * 1000.0 / repeats);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void Report(const char* name, double micros, double bytes, double flops) {
  const double floor = std::max(bytes / bandwidth_tb, flops / tflops) * 1e-6;
  std::printf("%-44s %9.2f us  floor %9.2f us  %5.1f %%  %7.1f GB/s %7.1f TFLOP/s\n", name, micros,
              floor, 100 * floor / micros, bytes / micros * 1e-3, flops / micros * 1e-6);
}

void BenchGemv() {
  struct Shape {
    const char* name;
    int in, out;
  };
  for (const Shape& s :
       {Shape{"qkv", 4096, 6144}, Shape{"o", 4096, 4096}, Shape{"gate_up", 4096, 28672},
        Shape{"down", 14336, 4096}, Shape{"head", 4096, 128256}}) {
    const size_t size = static_cast<size_t>(s.in) * s.out;
    const int copies = static_cast<int>(std::max<size_t>(2, (size_t{1} << 30) / size));
    const auto weights = Random(size * copies, 0.02f);
    const auto x = Random(static_cast<size_t>(s.in) * kMaxSkinnyRows);
    const Device<__nv_bfloat16> out(static_cast<size_t>(s.out) * kMaxSkinnyRows);
    char name[64];
    for (const int rows : {1, 2}) {
      const double micros = Time(copies, [&](int i, cudaStream_t stream) {
        return LaunchGemv({.x = x->get(),
                           .weight = weights->get() + i * size,
                           .out = out.get(),
                           .num_rows = rows,
                           .in_size = s.in,
                           .out_size = s.out},
                          stream);
      });
      std::snprintf(name, sizeof(name), "gemv %s %dx%d, %d rows", s.name, s.out, s.in, rows);
      Report(name, micros, 2.0 * size, 2.0 * size * rows);
    }
    for (const int rows : {1, 4, 8, 16, 32, 64}) {
      const double micros = Time(copies, [&](int i, cudaStream_t stream) {
        return LaunchSkinnyGemm({.x = x->get(),
                                 .weight = weights->get() + i * size,
                                 .out = out.get(),
                                 .num_rows = rows,
                                 .in_size = s.in,
                                 .out_size = s.out},
                                stream);
      });
      std::snprintf(name, sizeof(name), "skinny_gemm %s %dx%d, %d rows", s.name, s.out, s.in, rows);
      Report(name, micros, 2.0 * size, 2.0 * size * rows);
    }
  }
}

// A cache of `copies` layers, so that consecutive launches read other memory.
void BenchAttention(int num_sms) {
  constexpr int kHeads = 32;
  constexpr int kKvHeads = 8;
  constexpr int kDim = 128;
  constexpr int kBlock = 16;
  const auto run = [&](int seqs, int length, int new_tokens) {
    const int blocks_per_seq = length / kBlock;
    const double bytes = 4.0 * seqs * length * kKvHeads * kDim;
    const int copies = static_cast<int>(std::clamp(4e8 / bytes, 2.0, 32.0));
    std::vector<int32_t> table(static_cast<size_t>(seqs) * blocks_per_seq);
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    std::shuffle(table.begin(), table.end(), std::mt19937(3));
    const size_t plane = static_cast<size_t>(kKvHeads) * kBlock * kDim;
    const auto cache = Random(table.size() * plane * 2 * copies);
    const auto q = Random(static_cast<size_t>(seqs) * new_tokens * kHeads * kDim);
    const Device<__nv_bfloat16> out(static_cast<size_t>(seqs) * new_tokens * kHeads * kDim);
    const auto tables = Upload(table);
    char name[64];
    if (new_tokens == 1) {
      const auto lengths = Upload(std::vector<int32_t>(seqs, length));
      const int splits = PlanDecodeSplits(seqs, kKvHeads, length, num_sms);
      const size_t workspace_bytes = DecodeAttentionWorkspaceBytes(seqs, kHeads, kDim, splits);
      const Device<char> workspace(workspace_bytes);
      const Device<int32_t> counters(static_cast<size_t>(seqs) * kKvHeads);
      Check(cudaMemset(counters.get(), 0, sizeof(int32_t) * seqs * kKvHeads), "memset");
      const double micros = Time(copies, [&](int i, cudaStream_t stream) {
        return LaunchDecodeAttention(
            {.q = q->get(),
             .kv = MakePagedKv(cache->get(), copies, i, kKvHeads, kBlock, kDim),
             .block_tables = tables->get(),
             .seq_lens = lengths->get(),
             .out = out.get(),
             .workspace = workspace.get(),
             .counters = counters.get(),
             .num_seqs = seqs,
             .num_heads = kHeads,
             .max_blocks_per_seq = blocks_per_seq,
             .num_splits = splits,
             .scale = 0.088f},
            stream);
      });
      std::snprintf(name, sizeof(name), "decode attention %d x %d, %d splits", seqs, length,
                    splits);
      Report(name, micros, bytes, 0);
      return;
    }
    std::vector<int32_t> begins;
    for (int s = 0; s <= seqs; ++s) begins.push_back(s * new_tokens);
    const auto begin = Upload(begins);
    const auto start = Upload(std::vector<int32_t>(seqs, length - new_tokens));
    const double micros = Time(std::min(copies, 4), [&](int i, cudaStream_t stream) {
      return LaunchPrefillAttention(
          {.q = q->get(),
           .kv = MakePagedKv(cache->get(), copies, i, kKvHeads, kBlock, kDim),
           .block_tables = tables->get(),
           .token_begin = begin->get(),
           .start_pos = start->get(),
           .out = out.get(),
           .num_seqs = seqs,
           .max_new_tokens = new_tokens,
           .num_heads = kHeads,
           .max_blocks_per_seq = blocks_per_seq,
           .scale = 0.088f},
          stream);
    });
    const double pairs = static_cast<double>(new_tokens) * (length - new_tokens) +
                         0.5 * static_cast<double>(new_tokens) * new_tokens;
    std::snprintf(name, sizeof(name), "prefill attention %d x %d new of %d", seqs, new_tokens,
                  length);
    Report(name, micros, bytes, 4.0 * seqs * pairs * kHeads * kDim);
  };
  for (const auto& [seqs, length] : {std::pair{1, 1024},
                                     {1, 8192},
                                     {1, 65536},
                                     {8, 1024},
                                     {32, 1024},
                                     {128, 1024},
                                     {256, 1024}}) {
    run(seqs, length, 1);
  }
  run(1, 1024, 1024);
  run(1, 8192, 8192);
  run(8, 1024, 1024);
  run(1, 8192, 512);
}

void BenchElementwise() {
  constexpr int kHidden = 4096;
  constexpr int kInner = 14336;
  for (const int rows : {1, 32, 256, 8192}) {
    const int copies = rows >= 8192 ? 2 : 16;
    const size_t size = static_cast<size_t>(rows) * kHidden;
    const auto x = Random(size * copies);
    const auto residual = Random(size * copies);
    const auto weight = Random(kHidden);
    const Device<__nv_bfloat16> out(size * copies);
    char name[64];
    const double norm = Time(copies, [&](int i, cudaStream_t stream) {
      return LaunchRmsNorm({.x = x->get() + i * size,
                            .residual = residual->get() + i * size,
                            .weight = weight->get(),
                            .out = out.get() + i * size,
                            .x_stride = kHidden,
                            .num_rows = rows,
                            .hidden = kHidden},
                           stream);
    });
    std::snprintf(name, sizeof(name), "rms_norm + residual, %d rows of %d", rows, kHidden);
    Report(name, norm, 8.0 * size, 0);
    const size_t inner = static_cast<size_t>(rows) * kInner;
    const auto gate_up = Random(inner * 2 * std::min(copies, 4));
    const Device<__nv_bfloat16> activated(inner * std::min(copies, 4));
    const double silu = Time(std::min(copies, 4), [&](int i, cudaStream_t stream) {
      return LaunchGateUp({.gate_up = gate_up->get() + i * inner * 2,
                           .out = activated.get() + i * inner,
                           .num_rows = rows,
                           .size = kInner},
                          stream);
    });
    std::snprintf(name, sizeof(name), "silu(gate) * up, %d rows of %d", rows, kInner);
    Report(name, silu, 6.0 * inner, 0);
  }
}

void BenchSample() {
  constexpr int kVocab = 128256;
  std::mt19937 engine(1);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  for (const int rows : {1, 32, 256}) {
    std::vector<float> host(static_cast<size_t>(rows) * kVocab);
    for (float& value : host) value = normal(engine);
    // As language models have them: a few dozen tokens far above the rest.
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < 50; ++i) {
        host[static_cast<size_t>(r) * kVocab + engine() % kVocab] = 14.0f + normal(engine);
      }
    }
    const auto logits = Upload(host);
    const Device<float> scratch(host.size());
    const Device<int32_t> tokens(rows);
    const Device<uint8_t> nonfinite(rows);
    std::vector<int32_t> ones(rows, 1);
    const auto row_slots = Upload(ones);
    for (const auto& [label, slot] :
         {std::pair<const char*, SamplingSlot>{"greedy", {.temperature = 0}},
          {"temperature", {.temperature = 0.7f, .seed = 1}},
          {"top_p 0.9", {.temperature = 0.7f, .top_p = 0.9f, .seed = 1}},
          {"top_p 0.9 top_k 50", {.temperature = 0.7f, .top_p = 0.9f, .top_k = 50, .seed = 1}}}) {
      const auto slots = Upload(std::vector<SamplingSlot>{SamplingSlot(), slot});
      const double micros = Time(4, [&](int, cudaStream_t stream) {
        return LaunchSample({.logits = logits->get(),
                             .slots = slots->get(),
                             .row_slots = row_slots->get(),
                             .output_indices = row_slots->get(),
                             .scratch = scratch.get(),
                             .tokens = tokens.get(),
                             .nonfinite = nonfinite.get(),
                             .num_rows = rows,
                             .vocab_size = kVocab},
                            stream);
      });
      char name[64];
      std::snprintf(name, sizeof(name), "sample %s, %d rows of %d", label, rows, kVocab);
      Report(name, micros, 4.0 * host.size(), 0);
    }
  }
}

int Main(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--bandwidth-tb") == 0) bandwidth_tb = std::atof(argv[i + 1]);
    if (std::strcmp(argv[i], "--tflops") == 0) tflops = std::atof(argv[i + 1]);
  }
  cudaDeviceProp device;
  Check(cudaGetDeviceProperties(&device, 0), "no GPU");
  std::printf("%s, sm_%d%d, %d SMs; floor at %.2f TB/s and %.0f TFLOP/s\n", device.name,
              device.major, device.minor, device.multiProcessorCount, bandwidth_tb, tflops);
  BenchGemv();
  BenchAttention(device.multiProcessorCount);
  BenchElementwise();
  BenchSample();
  return 0;
}

}  // namespace
}  // namespace penstock::kernels

int main(int argc, char** argv) { return penstock::kernels::Main(argc, argv); }
