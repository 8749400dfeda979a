// A GPU as a Machine of machine_device.h: the one that a worker computes on (choose_gpu in
// device.cuh). Functions throw std::runtime_error when the GPU fails. Any thread.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "reference_trainer/cuda/device.cuh"
#include "reference_trainer/params/machine_device.h"

namespace syncd::trainer::cuda {

inline constexpr unsigned kThreadsPerGroup = 256;

// A block. Its warps are full ones.
class BlockGroup {
 public:
  __device__ explicit BlockGroup(std::uint64_t* sums) : sums_(sums) {}

  __device__ std::size_t rank() const { return threadIdx.x; }
  __device__ std::size_t size() const { return blockDim.x; }
  __device__ void sync() { __syncthreads(); }

  __device__ std::uint64_t sum(std::uint64_t value) {
    for (unsigned distance = warpSize / 2; distance > 0; distance /= 2) {
      value += __shfl_down_sync(0xffff'ffffU, value, distance);
    }
    if (threadIdx.x % warpSize == 0) sums_[threadIdx.x / warpSize] = value;
    __syncthreads();
    std::uint64_t sum = 0;
    for (unsigned warp = 0; warp < blockDim.x / warpSize; ++warp) sum += sums_[warp];
    __syncthreads();
    return sum;
  }

  // All tries of kDevicePullTries together wait about 30 ms: longer than a GPU lets one process
  // have it before another one's turn.
  __device__ void pause(int attempt) { __nanosleep(attempt < 9 ? 64U << attempt : 32'768U); }

 private:
  std::uint64_t* sums_;  // of each warp, in memory of the block
};

template <typename Step>
__global__ void __launch_bounds__(kThreadsPerGroup) run_groups(std::size_t pieces, Step step) {
  __shared__ std::uint64_t sums[kThreadsPerGroup / 32];
  BlockGroup group(sums);
  for (std::size_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) step(group, piece);
}

class CudaMachine {
 public:
  static constexpr bool kIsCpu = false;
  struct EndStream {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, EndStream>;

  explicit CudaMachine(int gpu = 0) : gpu_(gpu) {}

  void* take(std::size_t bytes) {
    use();
    // CUDA IPC shares whole blocks of 2 MiB: nothing of anybody else's is to be in them.
    constexpr std::size_t kShared = std::size_t{2} << 20;
    void* memory = nullptr;
    check(cudaMalloc(&memory, (std::max<std::size_t>(bytes, 1) + kShared - 1) / kShared * kShared),
          "taking memory");
    check(cudaMemset(memory, 0, bytes), "clearing memory");
    check(cudaStreamSynchronize(nullptr), "clearing memory");  // streams of ours do not wait for it
    return memory;
  }
  void* take_shared(std::size_t bytes) { return take(bytes); }
  void give(void* memory) { cudaFree(memory); }

  DeviceHandle share(void* memory) const {
    use();
    cudaIpcMemHandle_t handle{};
    refuse_unless(cudaIpcGetMemHandle(&handle, memory));
    static_assert(sizeof(handle) == sizeof(DeviceHandle));
    DeviceHandle bytes;
    std::memcpy(bytes.data(), &handle, sizeof(handle));
    return bytes;
  }
  void* open(const DeviceHandle& bytes) {
    use();
    cudaIpcMemHandle_t handle{};
    std::memcpy(&handle, bytes.data(), sizeof(handle));
    void* memory = nullptr;
    refuse_unless(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
    return memory;
  }
  void close(void* memory) { cudaIpcCloseMemHandle(memory); }

  Stream new_stream() {
    use();
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    return Stream(stream);
  }

  // Memory of the host is pageable here: it was read when the call returns.
  void copy_in(void* stream, void* to, const void* from, std::size_t bytes) {
    use();
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_of(stream)),
          "copying to it");
  }
  void copy_out(void* stream, void* to, const void* from, std::size_t bytes) {
    use();
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_of(stream)),
          "copying from it");
    check(cudaStreamSynchronize(stream_of(stream)), "exchanging parameters");
  }
  void fill(void* stream, void* memory, unsigned char value, std::size_t bytes) {
    use();
    check(cudaMemsetAsync(memory, value, bytes, stream_of(stream)), "filling memory");
  }
  void wait(void* stream) {
    use();
    check(cudaStreamSynchronize(stream_of(stream)), "exchanging parameters");
  }
  void settle(void* stream) noexcept {
    if (cudaSetDevice(gpu_) == cudaSuccess) cudaStreamSynchronize(stream_of(stream));
  }

  template <typename Step>
  void run(void* stream, std::size_t pieces, const Step& step) {
    use();
    const auto blocks = static_cast<unsigned>(std::min(pieces, kBlocksMax));
    run_groups<<<blocks, kThreadsPerGroup, 0, stream_of(stream)>>>(pieces, step);
    check(cudaGetLastError(), "starting a kernel");
  }

  CudaMachine of(const void* memory) const {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, memory), "asking whose memory it is");
    return CudaMachine(attributes.device);
  }
  static CudaMachine of_worker(int worker) { return CudaMachine(choose_gpu(worker)); }

  // Throws what is missing if `other`'s memory cannot be added to from this GPU.
  void must_reach(const CudaMachine& other) const {
    if (other.gpu_ == gpu_) return;
    int access = 0;
    int atomics = 0;
    check(cudaDeviceGetP2PAttribute(&access, cudaDevP2PAttrAccessSupported, gpu_, other.gpu_),
          "asking how GPUs are connected");
    check(
        cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, gpu_, other.gpu_),
        "asking how GPUs are connected");
    if (access == 0 || atomics == 0) {
      throw std::runtime_error(
          "GPU " + std::to_string(gpu_) + " cannot " + (access == 0 ? "reach" : "add to") +
          " the memory of GPU " + std::to_string(other.gpu_) +
          ", where the parameters are; use --store-in host, or one GPU (CUDA_VISIBLE_DEVICES=" +
          std::to_string(other.gpu_) + ")");
    }
  }

  // Its memory is about to be used from here.
  void reach(const CudaMachine& other) {
    must_reach(other);
    if (other.gpu_ == gpu_) return;
    use();
    const cudaError_t status = cudaDeviceEnablePeerAccess(other.gpu_, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();  // it is no failure, and nobody is to hear of it later
      return;
    }
    check(status, "reaching another GPU");
  }

 private:
  static cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

  static void refuse_unless(cudaError_t status) {
    if (status == cudaSuccess) return;
    cudaGetLastError();
    throw SharingRefused(std::string("CUDA IPC: ") + cudaGetErrorString(status));
  }

  void use() const { check(cudaSetDevice(gpu_), "choosing the GPU"); }

  int gpu_;
};

}  // namespace syncd::trainer::cuda
