// The network on a GPU: the Device of cnn_batched.h with CUDA and cuBLAS. One stream (the default
// one), one thread. Everything is float: cuBLAS is not asked for TF32, so that results agree with
// the CPU's to rounding.
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "reference_trainer/cnn_batched.h"
#include "reference_trainer/cuda/plugin.h"

namespace syncd::trainer {
namespace {

constexpr unsigned kThreadsPerBlock = 256;
constexpr std::size_t kBlocksMax = 65'536;  // beyond it a thread takes several indices
constexpr int kCapabilityMin = 75;          // what the kernels are compiled for, at least

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string("cuBLAS: ") + what + ": " + cublasGetStatusString(status));
}

template <typename Function>
__global__ void run_for_each(std::size_t count, Function function) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    function(i);
  }
}

class CudaDevice {
 public:
  template <typename T>
  class Buffer {
   public:
    Buffer(CudaDevice&, std::size_t count) {
      void* memory = nullptr;
      check(cudaMalloc(&memory, std::max<std::size_t>(count, 1) * sizeof(T)), "taking memory");
      memory_.reset(static_cast<T*>(memory));
    }
    T* data() { return memory_.get(); }
    const T* data() const { return memory_.get(); }

   private:
    struct Free {
      void operator()(T* memory) const { cudaFree(memory); }
    };
    std::unique_ptr<T, Free> memory_;
  };

  // Throws std::runtime_error with what is missing.
  CudaDevice() {
    int devices = 0;
    const cudaError_t status = cudaGetDeviceCount(&devices);
    if (status != cudaSuccess || devices == 0) {
      throw std::runtime_error(
          std::string("there is no GPU that CUDA can use (") +
          (status != cudaSuccess ? cudaGetErrorString(status) : "no device is visible") +
          "); it takes one of compute capability 7.5 or later and its driver, as nvidia-smi shows "
          "them");
    }
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "asking for the GPU's properties");
    if (properties.major * 10 + properties.minor < kCapabilityMin) {
      throw std::runtime_error(std::string("the GPU ") + properties.name +
                               " has compute capability " + std::to_string(properties.major) + "." +
                               std::to_string(properties.minor) + "; at least 7.5 is needed");
    }
    check(cudaSetDevice(0), "choosing the GPU");
    cublasHandle_t handle = nullptr;
    check(cublasCreate(&handle), "starting");
    blas_.reset(handle);
  }

  template <typename T>
  void copy_in(T* to, std::span<const T> from) {
    check(cudaMemcpy(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice), "copying to it");
  }

  template <typename T>
  void copy_out(std::span<T> to, const T* from) {
    check(cudaMemcpy(to.data(), from, to.size_bytes(), cudaMemcpyDeviceToHost), "copying from it");
  }

  void clear(float* values, std::size_t count) {
    check(cudaMemsetAsync(values, 0, count * sizeof(float)), "clearing memory");
  }

  template <typename Function>
  void for_each(std::size_t count, const Function& function) {
    if (count == 0) return;
    const std::size_t blocks = (count + kThreadsPerBlock - 1) / kThreadsPerBlock;
    run_for_each<<<static_cast<unsigned>(std::min(blocks, kBlocksMax)), kThreadsPerBlock>>>(
        count, function);
    check(cudaGetLastError(), "starting a kernel");
  }

  // cuBLAS takes matrices by columns: row-major c = a . b is, read so, c' = b' . a'.
  void multiply(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n,
                std::size_t k, const float* a, std::size_t stride_a, const float* b,
                std::size_t stride_b, Into into, float* c, std::size_t stride_c,
                std::size_t products) {
    const float one = 1;
    const float keep = into == Into::kAdd ? 1 : 0;
    const bool a_is_turned = transpose_a == Transpose::kYes;
    const bool b_is_turned = transpose_b == Transpose::kYes;
    const auto size = [](std::size_t value) { return static_cast<int>(value); };
    check(cublasSgemmStridedBatched(blas_.get(), b_is_turned ? CUBLAS_OP_T : CUBLAS_OP_N,
                                    a_is_turned ? CUBLAS_OP_T : CUBLAS_OP_N, size(n), size(m),
                                    size(k), &one, b, size(b_is_turned ? k : n),
                                    static_cast<long long>(stride_b), a, size(a_is_turned ? m : k),
                                    static_cast<long long>(stride_a), &keep, c, size(n),
                                    static_cast<long long>(stride_c), size(products)),
          "a product of matrices");
  }

 private:
  struct Destroy {
    void operator()(cublasHandle_t handle) const { cublasDestroy(handle); }
  };
  std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, Destroy> blas_;
};

}  // namespace
}  // namespace syncd::trainer

extern "C" __attribute__((visibility("default"))) syncd::trainer::CnnBackend*
syncd_trainer_make_cuda_backend(const syncd::trainer::CnnShape& shape,
                                const syncd::trainer::CnnLayout& layout, std::size_t samples_max,
                                char* error, std::size_t error_bytes) {
  using namespace syncd::trainer;
  static_assert(std::is_same_v<decltype(syncd_trainer_make_cuda_backend), MakeCudaBackend>);
  try {
    return new BatchedCnn<CudaDevice>(CudaDevice(), shape, layout, samples_max);
  } catch (const std::exception& reason) {
    std::strncpy(error, reason.what(), error_bytes - 1);
    error[error_bytes - 1] = '\0';
    return nullptr;
  }
}
