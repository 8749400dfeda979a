// What is going to happen in a simulation, in order of (time, order of being planned). Messages all
// take equally long, so they need no more than a queue; only the ends of computing need a heap.
// Plain structs in flat memory: nothing is allocated per event once it has grown. No thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/core/engine/types.h"

namespace syncd::sim {

// First in, first out, in one ring of memory that grows to the most it ever held.
template <class T>
class Ring {
 public:
  bool empty() const { return size_ == 0; }
  const T& front() const { return items_[head_]; }
  T pop() {
    T item = items_[head_];
    head_ = (head_ + 1) & (items_.size() - 1);
    --size_;
    return item;
  }
  void push(const T& item) {
    if (size_ == items_.size()) grow();
    items_[(head_ + size_) & (items_.size() - 1)] = item;
    ++size_;
  }

 private:
  void grow() {
    std::vector<T> larger(items_.empty() ? 64 : items_.size() * 2);
    for (std::size_t i = 0; i < size_; ++i) larger[i] = items_[(head_ + i) & (items_.size() - 1)];
    items_.swap(larger);
    head_ = 0;
  }

  std::vector<T> items_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

// The end of a worker's computing. `token` tells it from one that was given up since.
struct ComputeEnd {
  Micros at = 0;
  std::uint64_t order = 0;
  Rank worker = 0;
  std::uint32_t token = 0;
};

// Smallest (at, order) first. O(log n) each.
class ComputeHeap {
 public:
  bool empty() const { return items_.empty(); }
  const ComputeEnd& front() const { return items_.front(); }
  void push(const ComputeEnd& item) {
    items_.push_back(item);
    std::push_heap(items_.begin(), items_.end(), later);
  }
  ComputeEnd pop() {
    std::pop_heap(items_.begin(), items_.end(), later);
    const ComputeEnd item = items_.back();
    items_.pop_back();
    return item;
  }

 private:
  static bool later(const ComputeEnd& a, const ComputeEnd& b) {
    return a.at != b.at ? a.at > b.at : a.order > b.order;
  }
  std::vector<ComputeEnd> items_;
};

}  // namespace syncd::sim
