// See scarce_memory.h.
#include "scarce_memory.h"

#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace syncd::test {

thread_local long allocations_left = -1;
std::atomic<long> allocations_left_in_clients{-1};

namespace {

bool is_client_thread() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  return std::strcmp(name, "syncd-client") == 0;
}

bool memory_has_run_out() {
  if (allocations_left == 0) return true;
  if (allocations_left > 0) --allocations_left;
  if (allocations_left_in_clients < 0 || !is_client_thread()) return false;
  if (allocations_left_in_clients == 0) return true;
  --allocations_left_in_clients;
  return false;
}

}  // namespace
}  // namespace syncd::test

// Every form, so that none is taken from one allocator and given back to another.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return syncd::test::memory_has_run_out() ? nullptr : std::malloc(size == 0 ? 1 : size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return operator new(size, std::nothrow);
}
void* operator new(std::size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](std::size_t size) {
  return operator new(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
