// What code that runs on a device is written against, so that the very same code runs, and is
// tested, on the CPU: nvcc compiles it for the GPU, g++ for the host.
//
// A Group is the threads that work on one piece together: a CUDA block; on the CPU one thread, or
// several.
//   std::size_t rank();                // this thread's number in the group
//   std::size_t size();
//   void sync();                       // all threads of the group come here before one goes on
//   std::uint64_t sum(std::uint64_t);  // of all threads' values, the same for all; like sync()
//   void pause(int attempt);           // between two tries at something that others are to end
// A Step is an object with `template <typename Group> void operator()(Group&, std::size_t piece)`.
//
// Memory that several groups use at the same time is accessed through DeviceAtomic alone.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda/atomic>
#define SYNCD_ON_DEVICE __device__
#else
#include <atomic>
#define SYNCD_ON_DEVICE
#endif

namespace syncd::trainer {

#ifdef __CUDACC__
namespace orders = ::cuda;  // orders::memory_order_relaxed ...

// Of all GPUs, because workers may be on several.
template <typename T>
using DeviceAtomic = ::cuda::atomic_ref<T, ::cuda::thread_scope_system>;

// Orders this thread's relaxed accesses to atomics before it before those after it, in the eyes of
// who does the same.
SYNCD_ON_DEVICE inline void device_fence() {
  ::cuda::atomic_thread_fence(::cuda::memory_order_acq_rel, ::cuda::thread_scope_system);
}
#else
namespace orders = ::std;

template <typename T>
using DeviceAtomic = ::std::atomic_ref<T>;

// ThreadSanitizer does not know fences: it sees no order where they make one, which it needs for
// plain accesses only, and those here are none.
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif
inline void device_fence() {
  ::std::atomic_thread_fence(::std::memory_order_acq_rel);
}
#pragma GCC diagnostic pop
#endif

}  // namespace syncd::trainer
