// Read-only arrays in one shared memory, so that a data set is parsed once and every worker process
// uses the same pages. Immutable after create(); any thread and any process may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "libclient/shared_memory.h"

namespace syncd::trainer {

class SharedArrays {
 public:
  // Copies the arrays, in this order, into new shared memory. Throws SharedMemoryError.
  static SharedArrays create(const std::vector<std::span<const std::byte>>& arrays);

  // The arrays behind an inherited descriptor. Throws SharedMemoryError if they are not arrays that
  // create() wrote.
  static SharedArrays attach(int fd);

  // The array at `place`, as elements of T, of which it must hold a whole number.
  template <typename T>
  std::span<const T> get(std::size_t place) const {
    const std::span<const std::byte> raw = bytes(place);
    return {reinterpret_cast<const T*>(raw.data()), raw.size() / sizeof(T)};
  }

  int fd() const { return memory_.fd(); }

 private:
  explicit SharedArrays(SharedMemory memory) : memory_(std::move(memory)) {}
  std::span<const std::byte> bytes(std::size_t place) const;

  SharedMemory memory_;
};

}  // namespace syncd::trainer
