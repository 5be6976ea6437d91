#include "kernels/cuda/gemm.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <map>
#include <tuple>
#include <utility>

namespace penstock::kernels {
namespace {

constexpr const char* kLibraries[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

// Out types, and what is fused.
enum class Kind { kPlain, kBias, kAdd, kAddBias, kF32 };

Kind KindOf(const GemmParams& p) {
  if (p.out_f32 != nullptr) return Kind::kF32;
  if (p.residual != nullptr) return p.bias != nullptr ? Kind::kAddBias : Kind::kAdd;
  return p.bias != nullptr ? Kind::kBias : Kind::kPlain;
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

  cublasStatus_t Make(const GemmParams& p, Kind kind, Plan* plan) {
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
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    then([&] {
      return library.heuristic(handle, plan->desc, plan->weight, plan->x, plan->out, plan->out,
                               preference, 1, &result, &found);
    });
    then([&] { return found == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : result.state; });
    if (status == CUBLAS_STATUS_SUCCESS) plan->algo = result.algo;
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
  const auto failed = [&p](cublasStatus_t status) {
    return "cuBLASLt status " + std::to_string(status) + " for a product of " +
           std::to_string(p.num_rows) + " x " + std::to_string(p.in_size) + " x " +
           std::to_string(p.out_size);
  };
  if ((p.residual != nullptr && p.residual != p.out) || (kind == Kind::kF32 && p.bias != nullptr)) {
    return failed(CUBLAS_STATUS_INVALID_VALUE);
  }
  const Impl::Shape shape = {kind, p.num_rows, p.in_size, p.out_size};
  auto it = impl_->plans.find(shape);
  if (it == impl_->plans.end()) {
    Impl::Plan plan;
    const cublasStatus_t status = impl_->Make(p, kind, &plan);
    if (status != CUBLAS_STATUS_SUCCESS) {
      impl_->Destroy(plan);
      return failed(status);
    }
    it = impl_->plans.emplace(shape, plan).first;
  } else if (p.bias != nullptr) {
    const cublasStatus_t status = impl_->SetBias(it->second, p.bias);
    if (status != CUBLAS_STATUS_SUCCESS) return failed(status);
  }
  const Impl::Plan& plan = it->second;
  const float one = 1.0f;
  const float beta = kind == Kind::kAdd || kind == Kind::kAddBias ? 1.0f : 0.0f;
  void* out = kind == Kind::kF32 ? static_cast<void*>(p.out_f32) : static_cast<void*>(p.out);
  const cublasStatus_t status = impl_->library.matmul(
      impl_->handle, plan.desc, &one, p.weight, plan.weight, p.x, plan.x, &beta, out, plan.out, out,
      plan.out, &plan.algo, impl_->workspace, kWorkspaceBytes, stream);
  return status == CUBLAS_STATUS_SUCCESS ? std::string() : failed(status);
}

size_t Gemm::version() const { return impl_->library.get_version(); }

}  // namespace penstock::kernels
