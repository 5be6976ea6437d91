#include "kernels/cuda/gemm.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace penstock::kernels {
namespace {

constexpr const char* kLibraries[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

constexpr size_t kMaxCandidates = 8;
constexpr int kTimedRuns = 2;

// Out types, and what is fused.
enum class Kind { kPlain, kBias, kAdd, kAddBias, kF32 };

Kind KindOf(const GemmParams& p) {
  if (p.out_f32 != nullptr) return Kind::kF32;
  if (p.residual != nullptr) return p.bias != nullptr ? Kind::kAddBias : Kind::kAdd;
  return p.bias != nullptr ? Kind::kBias : Kind::kPlain;
}

std::string Failure(cublasStatus_t status, const GemmParams& p) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return "cuBLASLt status " + std::to_string(status) + " for a product of " +
         std::to_string(p.num_rows) + " x " + std::to_string(p.in_size) + " x " +
         std::to_string(p.out_size);
}

struct Library {
  void* handle = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;

  // Empty on success.
  std::string Open() {
    std::string reasons;
    for (const char* name : kLibraries) {
      handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle != nullptr) break;
      reasons += std::string(reasons.empty() ? "" : "; ") + dlerror();
    }
    if (handle == nullptr) return reasons;
    const auto find = [this, &reasons](const char* name, auto* function) {
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(handle, name));
      if (*function == nullptr) reasons = std::string(name) + " is not in libcublasLt";
    };
    reasons.clear();
    find("cublasLtCreate", &create);
    find("cublasLtDestroy", &destroy);
    find("cublasLtGetVersion", &get_version);
    find("cublasLtMatmulDescCreate", &desc_create);
    find("cublasLtMatmulDescDestroy", &desc_destroy);
    find("cublasLtMatmulDescSetAttribute", &desc_set);
    find("cublasLtMatrixLayoutCreate", &layout_create);
    find("cublasLtMatrixLayoutDestroy", &layout_destroy);
    find("cublasLtMatmulPreferenceCreate", &preference_create);
    find("cublasLtMatmulPreferenceDestroy", &preference_destroy);
    find("cublasLtMatmulPreferenceSetAttribute", &preference_set);
    find("cublasLtMatmulAlgoGetHeuristic", &heuristic);
    find("cublasLtMatmul", &matmul);
    return reasons;
  }
};

}  // namespace

// Row-major out = x * weight^T is column-major out^T = weight * x^T: the library's m is out_size,
// its n is num_rows.
struct Gemm::Impl {
  using Shape = std::tuple<Kind, int32_t, int32_t, int32_t>;  // kind, rows, in, out
  struct Plan {
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t weight = nullptr;
    cublasLtMatrixLayout_t x = nullptr;
    cublasLtMatrixLayout_t out = nullptr;
    cublasLtMatmulAlgo_t algo = {};
  };

  Library library;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  void* workspace = nullptr;
  std::map<Shape, Plan> plans;

  ~Impl() {
    for (auto& [shape, plan] : plans) Destroy(plan);
    if (preference != nullptr) library.preference_destroy(preference);
    if (handle != nullptr) library.destroy(handle);
    // The library stays loaded: its own threads and handlers may outlive us.
  }

  void Destroy(Plan& plan) {
    if (plan.desc != nullptr) library.desc_destroy(plan.desc);
    for (cublasLtMatrixLayout_t layout : {plan.weight, plan.x, plan.out}) {
      if (layout != nullptr) library.layout_destroy(layout);
    }
    plan = {};
  }

  cublasStatus_t SetBias(const Plan& plan, const void* bias) {
    return library.desc_set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
  }

  // The shape's plan; candidates gets the library's guesses, best first.
  cublasStatus_t Make(const GemmParams& p, Kind kind, Plan* plan,
                      std::vector<cublasLtMatmulHeuristicResult_t>* candidates) {
    const auto rows = static_cast<uint64_t>(p.num_rows);
    const auto in = static_cast<uint64_t>(p.in_size);
    const auto out = static_cast<uint64_t>(p.out_size);
    cublasStatus_t status = library.desc_create(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const auto then = [&status](auto step) {
      if (status == CUBLAS_STATUS_SUCCESS) status = step();
    };
    const auto set = [&](cublasLtMatmulDescAttributes_t name, auto value) {
      then([&] { return library.desc_set(plan->desc, name, &value, sizeof(value)); });
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (kind == Kind::kBias || kind == Kind::kAddBias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF);
      then([&] { return SetBias(*plan, p.bias); });
    }
    const cudaDataType_t out_type = kind == Kind::kF32 ? CUDA_R_32F : CUDA_R_16BF;
    const auto ld = [](uint64_t n) { return static_cast<int64_t>(n); };
    then([&] { return library.layout_create(&plan->weight, CUDA_R_16BF, in, out, ld(in)); });
    then([&] { return library.layout_create(&plan->x, CUDA_R_16BF, in, rows, ld(in)); });
    then([&] { return library.layout_create(&plan->out, out_type, out, rows, ld(out)); });
    int found = 0;
    then([&] {
      return library.heuristic(handle, plan->desc, plan->weight, plan->x, plan->out, plan->out,
                               preference, static_cast<int>(candidates->size()), candidates->data(),
                               &found);
    });
    candidates->resize(static_cast<size_t>(found));
    then([&] {
      return candidates->empty() ? CUBLAS_STATUS_NOT_SUPPORTED : candidates->front().state;
    });
    if (status == CUBLAS_STATUS_SUCCESS) plan->algo = candidates->front().algo;
    return status;
  }

  cublasStatus_t Multiply(const GemmParams& p, Kind kind, const Plan& plan,
                          const cublasLtMatmulAlgo_t& algo, const void* weight,
                          cudaStream_t stream) {
    const float one = 1.0f;
    const float beta = kind == Kind::kAdd || kind == Kind::kAddBias ? 1.0f : 0.0f;
    void* out = kind == Kind::kF32 ? static_cast<void*>(p.out_f32) : static_cast<void*>(p.out);
    return library.matmul(handle, plan.desc, &one, weight, plan.weight, p.x, plan.x, &beta, out,
                          plan.out, out, plan.out, &algo, workspace, kWorkspaceBytes, stream);
  }

  // Finds or makes the shape's plan, with p's bias.
  cublasStatus_t Find(const GemmParams& p, Kind kind, Plan** found) {
    const Shape shape = {kind, p.num_rows, p.in_size, p.out_size};
    if (const auto it = plans.find(shape); it != plans.end()) {
      *found = &it->second;
      return p.bias == nullptr ? CUBLAS_STATUS_SUCCESS : SetBias(it->second, p.bias);
    }
    std::vector<cublasLtMatmulHeuristicResult_t> candidates(1);
    Plan plan;
    const cublasStatus_t status = Make(p, kind, &plan, &candidates);
    if (status != CUBLAS_STATUS_SUCCESS) {
      Destroy(plan);
      return status;
    }
    *found = &plans.emplace(shape, plan).first->second;
    return status;
  }
};

Gemm::Gemm(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gemm::~Gemm() = default;

std::unique_ptr<Gemm> Gemm::Create(void* workspace, std::string* error) {
  auto impl = std::make_unique<Impl>();
  *error = impl->library.Open();
  if (!error->empty()) return nullptr;
  impl->workspace = workspace;
  cublasStatus_t status = impl->library.create(&impl->handle);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = impl->library.preference_create(&impl->preference);
  }
  if (status == CUBLAS_STATUS_SUCCESS) {
    const uint64_t bytes = kWorkspaceBytes;
    status = impl->library.preference_set(
        impl->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes));
  }
  if (status != CUBLAS_STATUS_SUCCESS) {
    *error = "cuBLASLt does not start (status " + std::to_string(status) + ")";
    return nullptr;
  }
  return std::unique_ptr<Gemm>(new Gemm(std::move(impl)));
}

std::string Gemm::Run(const GemmParams& p, cudaStream_t stream) {
  if (p.num_rows == 0 || p.out_size == 0) return {};
  const Kind kind = KindOf(p);
  if ((p.residual != nullptr && p.residual != p.out) || (kind == Kind::kF32 && p.bias != nullptr)) {
    return Failure(CUBLAS_STATUS_INVALID_VALUE, p);
  }
  Impl::Plan* plan = nullptr;
  cublasStatus_t status = impl_->Find(p, kind, &plan);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = impl_->Multiply(p, kind, *plan, plan->algo, p.weight, stream);
  }
  return Failure(status, p);
}

std::string Gemm::Tune(const GemmParams& p, std::span<const __nv_bfloat16* const> weights,
                       cudaStream_t stream) {
  const Kind kind = KindOf(p);
  Impl::Plan plan;
  std::vector<cublasLtMatmulHeuristicResult_t> candidates(kMaxCandidates);
  const cublasStatus_t status = impl_->Make(p, kind, &plan, &candidates);
  if (status != CUBLAS_STATUS_SUCCESS) {
    impl_->Destroy(plan);
    return Failure(status, p);
  }
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  float best_ms = std::numeric_limits<float>::max();
  size_t turn = 0;
  for (const cublasLtMatmulHeuristicResult_t& candidate : candidates) {
    if (candidate.state != CUBLAS_STATUS_SUCCESS) continue;
    // Once to load its code, then the timed runs.
    bool ok = true;
    for (int run = -1; ok && run < kTimedRuns; ++run) {
      if (run == 0) cudaEventRecord(begin, stream);
      ok = impl_->Multiply(p, kind, plan, candidate.algo, weights[turn++ % weights.size()],
                           stream) == CUBLAS_STATUS_SUCCESS;
    }
    cudaEventRecord(end, stream);
    float ms = 0;
    ok = cudaEventSynchronize(end) == cudaSuccess && ok;
    if (!ok || cudaEventElapsedTime(&ms, begin, end) != cudaSuccess || ms >= best_ms) continue;
    best_ms = ms;
    plan.algo = candidate.algo;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  const Impl::Shape shape = {kind, p.num_rows, p.in_size, p.out_size};
  Impl::Plan& kept = impl_->plans[shape];
  impl_->Destroy(kept);
  kept = plan;
  return {};
}

size_t Gemm::version() const { return impl_->library.get_version(); }

}  // namespace penstock::kernels
