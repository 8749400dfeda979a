// Where a test that does something at random takes its decisions from: a seed, or the bytes of a
// fuzzer, which then learns which bytes lead where. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/support/random.h"

namespace syncd::test {

class Choices {
 public:
  Choices() = default;
  virtual ~Choices() = default;
  Choices(const Choices&) = delete;
  Choices& operator=(const Choices&) = delete;

  // 0 .. n-1. Precondition: n > 0.
  virtual std::uint64_t below(std::uint64_t n) = 0;

  // first .. last.
  std::int64_t between(std::int64_t first, std::int64_t last) {
    return first + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(last - first) + 1));
  }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <class T>
  T& pick(std::vector<T>& from) {
    return from[below(from.size())];
  }
  template <class T, std::size_t kSize>
  const T& pick(const std::array<T, kSize>& from) {
    return from[below(kSize)];
  }
};

class SeededChoices final : public Choices {
 public:
  explicit SeededChoices(std::uint64_t seed) : random_(seed) {}
  std::uint64_t below(std::uint64_t n) override { return random_.below(n); }

 private:
  Random random_;
};

// A byte for each decision among up to 256 things, four for one among more; 0 when they are used
// up.
class ByteChoices final : public Choices {
 public:
  explicit ByteChoices(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  bool used_up() const { return bytes_.empty(); }
  std::uint64_t below(std::uint64_t n) override {
    std::uint64_t value = take();
    for (int i = 0; n > 256 && i < 3; ++i) value = value << 8 | take();
    return value % n;
  }

 private:
  std::uint64_t take() {
    if (bytes_.empty()) return 0;
    const std::uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }

  std::span<const std::uint8_t> bytes_;
};

}  // namespace syncd::test
