// Bytes that gather until they are written. Unlike a vector it grows without setting what its owner
// is about to write. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

namespace syncd {

class OutBuffer {
 public:
  // Makes it so many bytes longer; returns where these begin.
  std::uint8_t* extend(std::size_t bytes) {
    if (bytes > capacity_ - size_) grow(bytes);
    return data_.get() + std::exchange(size_, size_ + bytes);
  }
  void shrink(std::size_t size) { size_ = size; }
  void release() { *this = {}; }  // gives the memory back

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::size_t capacity() const { return capacity_; }
  std::span<const std::uint8_t> bytes() const { return {data_.get(), size_}; }

 private:
  [[gnu::cold, gnu::noinline]] void grow(std::size_t bytes) {
    const std::size_t capacity = std::max(2 * capacity_, size_ + bytes);
    std::unique_ptr<std::uint8_t[]> larger(new std::uint8_t[capacity]);
    if (size_ > 0) std::memcpy(larger.get(), data_.get(), size_);
    data_ = std::move(larger);
    capacity_ = capacity;
  }

  std::unique_ptr<std::uint8_t[]> data_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace syncd
