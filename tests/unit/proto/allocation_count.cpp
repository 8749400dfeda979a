// See allocation_count.h. Any thread.
#include "tests/unit/proto/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::size_t> allocations{0};
std::atomic<std::size_t> bytes_allocated{0};
}  // namespace

namespace syncd {
std::size_t allocation_count() {
  return allocations.load(std::memory_order_relaxed);
}
std::size_t allocated_bytes() {
  return bytes_allocated.load(std::memory_order_relaxed);
}
}  // namespace syncd

void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  bytes_allocated.fetch_add(bytes, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
// A sanitizer's own would not fit operator delete below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  bytes_allocated.fetch_add(bytes, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
