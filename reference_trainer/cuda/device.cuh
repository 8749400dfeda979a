// A GPU as one worker sees it: memory, a stream of its own, and the functions of a Device
// (device_steps.h) with CUDA and cuBLAS. Everything is queued on the stream and takes effect in the
// order of the calls; nothing here waits unless it says so. Several devices may be on the same GPU,
// each used by one thread. Failures are std::runtime_error.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "reference_trainer/model/device_kernels.h"
#include "reference_trainer/model/device_steps.h"
#include "reference_trainer/model/gemm.h"
#include "reference_trainer/model/workload.h"

namespace syncd::trainer::cuda {

inline constexpr unsigned kThreadsPerBlock = 256;
inline constexpr int kCapabilityMin = 75;        // what the kernels are compiled for, at least
inline constexpr int kCapabilityOfTensors = 80;  // for TF32 and bfloat16

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

inline void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string("cuBLAS: ") + what + ": " + cublasGetStatusString(status));
}

// The GPU that a worker computes on: they are dealt out in turn to those that CUDA shows
// (CUDA_VISIBLE_DEVICES). Makes it the calling thread's. Throws with what is missing.
inline int choose_gpu(int worker, Precision precision = Precision::kFloat) {
  int gpus = 0;
  const cudaError_t status = cudaGetDeviceCount(&gpus);
  if (status != cudaSuccess || gpus == 0) {
    throw std::runtime_error(
        std::string("there is no GPU that CUDA can use (") +
        (status != cudaSuccess ? cudaGetErrorString(status) : "no device is visible") +
        "); it takes one of compute capability 7.5 or later and its driver, as nvidia-smi shows "
        "them");
  }
  const int gpu = worker % gpus;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, gpu), "asking for the GPU's properties");
  const int capability = properties.major * 10 + properties.minor;
  const auto refuse = [&](const char* needed) {
    throw std::runtime_error(std::string("the GPU ") + properties.name +
                             " has compute capability " + std::to_string(properties.major) + "." +
                             std::to_string(properties.minor) + "; " + needed);
  };
  if (capability < kCapabilityMin) refuse("at least 7.5 is needed");
  if (precision != Precision::kFloat && capability < kCapabilityOfTensors) {
    refuse("--precision tf32 and bf16 need at least 8.0, --precision float does not");
  }
  check(cudaSetDevice(gpu), "choosing the GPU");
  return gpu;
}

// ---- Kernels (device_kernels.h)

class CudaTeam {
 public:
  __device__ Index block() const { return blockIdx.x; }
  __device__ Index blocks() const { return gridDim.x; }
  __device__ Index row() const { return blockIdx.y; }
  __device__ Index rows() const { return gridDim.y; }
  __device__ Index thread() const { return threadIdx.x; }
  __device__ Index threads() const { return blockDim.x; }
  __device__ bool any_of_warp(bool mine) const { return __any_sync(~0U, mine) != 0; }
  __device__ bool any_of_block(bool mine) const { return __syncthreads_or(mine ? 1 : 0) != 0; }

  __device__ float sum_of_warp(float value) const {
    for (Index distance = kWarp / 2; distance > 0; distance /= 2) {
      value += __shfl_down_sync(~0U, value, distance);
    }
    return value;
  }

  // Once in a kernel, of kThreadsPerBlock.
  __device__ float sum_of_block(float value) const {
    __shared__ float of_warps[kThreadsPerBlock / kWarp];
    const float of_warp = sum_of_warp(value);
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = of_warp;
    __syncthreads();
    float sum = 0;
    if (threadIdx.x == 0) {
      for (const float part : of_warps) sum += part;
    }
    return sum;
  }
};

template <typename Function>
__global__ void run_for_each(Index count, Function function, StopRule stop) {
  CudaTeam team;
  for_each_place(team, count, function, stop);
}

template <typename Function>
__global__ void run_reduce_by_warp(Index count, Function function, StopRule stop) {
  CudaTeam team;
  reduce_by_warp(team, count, function, stop);
}

template <typename Function>
__global__ void run_reduce_pieces(Function function, float* partial, StopRule stop) {
  CudaTeam team;
  reduce_pieces(team, function, partial, stop);
}

class CudaDevice {
 public:
  static constexpr std::size_t kSamplesAtOnce = kCountMax;
  static constexpr bool kKeepsPatches = true;
  static constexpr bool kSeesHost = false;
  static constexpr std::size_t kPartsLeast = 1;
  using Real = float;

  // Memory of the GPU.
  template <typename T>
  class Buffer {
   public:
    Buffer(CudaDevice& device, std::size_t count) {
      device.use();
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

  // Memory of the host that the GPU can reach: copies to and from it need no help from the host,
  // and kernels may read it, slowly, at seen(). Starts as zeros.
  template <typename T>
  class Pinned {
   public:
    Pinned(CudaDevice& device, std::size_t count) {
      count = std::max<std::size_t>(count, 1);
      device.use();
      void* memory = nullptr;
      check(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocMapped | cudaHostAllocPortable),
            "taking pinned memory");
      memory_.reset(static_cast<T*>(memory));
      std::fill_n(memory_.get(), count, T{});
      void* seen = nullptr;
      check(cudaHostGetDevicePointer(&seen, memory, 0), "mapping memory of the host");
      seen_ = static_cast<T*>(seen);
    }
    T* data() { return memory_.get(); }
    const T* data() const { return memory_.get(); }
    T* seen() const { return seen_; }  // the GPU's address of it

   private:
    struct Free {
      void operator()(T* memory) const { cudaFreeHost(memory); }
    };
    std::unique_ptr<T, Free> memory_;
    T* seen_ = nullptr;
  };

  // A place in the stream (mark()).
  class Mark {
   public:
    explicit Mark(CudaDevice& device) {
      device.use();
      cudaEvent_t event = nullptr;
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
      event_.reset(event);
    }

   private:
    friend class CudaDevice;
    struct Destroy {
      void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
    };
    std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy> event_;
  };

  // Throws std::runtime_error with what is missing.
  explicit CudaDevice(int worker = 0, Precision precision = Precision::kFloat)
      : gpu_(choose_gpu(worker, precision)), partial_sums_(*this, kPartialSums) {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    stream_.reset(stream);
    cublasHandle_t handle = nullptr;
    check(cublasCreate(&handle), "starting");
    blas_.reset(handle);
    check(cublasSetStream(handle, stream), "choosing the stream");
    type_ = precision == Precision::kTf32   ? CUBLAS_COMPUTE_32F_FAST_TF32
            : precision == Precision::kBf16 ? CUBLAS_COMPUTE_32F_FAST_16BF
                                            : CUBLAS_COMPUTE_32F;
  }

  CudaDevice(CudaDevice&&) = default;
  CudaDevice& operator=(CudaDevice&&) = delete;
  ~CudaDevice() {
    if (stream_) cudaStreamSynchronize(stream_.get());  // memory may be freed from here on
  }

  int gpu() const { return gpu_; }
  cudaStream_t stream() const { return stream_.get(); }

  // Makes this GPU the calling thread's; all functions below do so.
  void use() const { check(cudaSetDevice(gpu_), "choosing the GPU"); }

  // `from` may be changed as soon as this returns.
  template <typename T>
  void copy_in(T* to, std::span<const T> from) {
    use();
    check(
        cudaMemcpyAsync(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream_.get()),
        "copying to it");
    // Pageable memory was read when the call returned; other memory may still have to be.
    cudaPointerAttributes memory{};
    check(cudaPointerGetAttributes(&memory, from.data()), "asking what memory it is");
    if (memory.type != cudaMemoryTypeUnregistered) synchronize();
  }

  // Waits until everything is done.
  template <typename T>
  void copy_out(std::span<T> to, const T* from) {
    use();
    check(cudaMemcpyAsync(to.data(), from, to.size_bytes(), cudaMemcpyDeviceToHost, stream_.get()),
          "copying from it");
    synchronize();
  }

  // A copy that the GPU makes when it is its turn: the host leaves the memory alone until then.
  template <typename T>
  void upload(T* to, const Pinned<T>& from, std::size_t count) {
    use();
    check(
        cudaMemcpyAsync(to, from.data(), count * sizeof(T), cudaMemcpyHostToDevice, stream_.get()),
        "copying to it");
  }

  template <typename T>
  void clear(T* values, std::size_t count) {
    use();
    check(cudaMemsetAsync(values, 0, count * sizeof(T), stream_.get()), "clearing memory");
  }

  // The mark is passed when what was queued until now is done. One that was never made counts as
  // passed.
  void mark(Mark& mark) {
    use();
    check(cudaEventRecord(mark.event_.get(), stream_.get()), "recording an event");
  }
  bool passed(const Mark& mark) const {
    const cudaError_t status = cudaEventQuery(mark.event_.get());
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // this is none, and is not to be taken for one of the next kernel
      return false;
    }
    check(status, "computing");
    return true;
  }
  void wait(const Mark& mark) const { check(cudaEventSynchronize(mark.event_.get()), "computing"); }

  // Waits until everything is done.
  void synchronize() const { check(cudaStreamSynchronize(stream_.get()), "computing"); }

  std::size_t known(const std::uint32_t*, std::size_t most) const { return most; }

  void stop_by(const StopRule& rule) { stop_ = rule; }

  template <typename Function>
  void for_each(std::size_t count, const Function& function) {
    if (count == 0) return;
    use();
    run_for_each<<<blocks_for(count, kThreadsPerBlock, stop_), kThreadsPerBlock, 0,
                   stream_.get()>>>(checked(count), function, stop_);
    check(cudaGetLastError(), "starting a kernel");
  }

  template <typename Function>
  void reduce(std::size_t count, std::size_t terms_most, const Function& function) {
    if (count == 0) return;
    use();
    const Index pieces = pieces_of(count, terms_most);
    if (pieces <= 1) {
      start_reduce_by_warp(count, function);
      return;
    }
    const dim3 grid(checked(count) + looking_blocks(stop_), pieces);
    run_reduce_pieces<<<grid, kThreadsPerBlock, 0, stream_.get()>>>(function, partial_sums_.data(),
                                                                    stop_);
    check(cudaGetLastError(), "starting a kernel");
    start_reduce_by_warp(count, SumPieces<Function>{function, partial_sums_.data(), pieces});
  }

  // cuBLAS takes matrices by columns: row-major c = a . b is, read so, c' = b' . a'. It knows
  // nothing of stopping.
  void multiply(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n,
                std::size_t k, const float* a, const float* b, Into into, float* c) {
    use();
    const float one = 1;
    const float keep = into == Into::kAdd ? 1 : 0;
    const bool a_is_turned = transpose_a == Transpose::kYes;
    const bool b_is_turned = transpose_b == Transpose::kYes;
    const auto size = [](std::size_t value) { return static_cast<int>(checked(value)); };
    check(cublasGemmEx(blas_.get(), b_is_turned ? CUBLAS_OP_T : CUBLAS_OP_N,
                       a_is_turned ? CUBLAS_OP_T : CUBLAS_OP_N, size(n), size(m), size(k), &one, b,
                       CUDA_R_32F, size(b_is_turned ? k : n), a, CUDA_R_32F,
                       size(a_is_turned ? m : k), &keep, c, CUDA_R_32F, size(n), type_,
                       CUBLAS_GEMM_DEFAULT),
          "a product of matrices");
  }

 private:
  static Index checked(std::size_t count) {
    if (count > kCountMax) throw std::runtime_error("CUDA: more values than are counted here");
    return static_cast<Index>(count);
  }

  template <typename Function>
  void start_reduce_by_warp(std::size_t count, const Function& function) {
    run_reduce_by_warp<<<blocks_for(count, kThreadsPerBlock / kWarp, stop_), kThreadsPerBlock, 0,
                         stream_.get()>>>(checked(count), function, stop_);
    check(cudaGetLastError(), "starting a kernel");
  }

  struct Destroy {
    void operator()(cublasHandle_t handle) const { cublasDestroy(handle); }
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  int gpu_;
  std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy> stream_;
  std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, Destroy> blas_;
  cublasComputeType_t type_ = CUBLAS_COMPUTE_32F;
  Buffer<float> partial_sums_;  // of reduce()
  StopRule stop_;
};

}  // namespace syncd::trainer::cuda
