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

void* operator new(std::size_t size) {
  void* memory = syncd::test::memory_has_run_out() ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
