// A small seeded generator for random tests: the same numbers from a seed on every machine, which
// the standard library's distributions do not promise. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace syncd::test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  // splitmix64.
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // 0 .. n-1. Precondition: n > 0. The bias is far below what a test could notice.
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  // first .. last.
  std::int64_t between(std::int64_t first, std::int64_t last) {
    return first + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(last - first) + 1));
  }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <class T>
  T& pick(std::vector<T>& from) {
    return from[below(from.size())];
  }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace syncd::test
