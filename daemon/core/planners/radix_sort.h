// Sorts 64-bit keys by some of their bits, without comparing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace syncd::planners {

// Sorts by the `bits` bits from bit `lowest` up; keys that are equal there keep their order. From
// the lowest digit up, 11 bits a pass: the counts and the places written to stay in the first- and
// second-level cache. O(n bits / 11), and a copy of the keys.
inline void radix_sort(std::vector<std::uint64_t>& keys, unsigned lowest, unsigned bits) {
  constexpr unsigned kDigitBits = 11;
  constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;
  std::vector<std::uint64_t> other(keys.size());
  for (unsigned done = 0; done < bits; done += kDigitBits) {
    const unsigned shift = lowest + done;
    std::array<std::size_t, kDigits> begin{};
    for (const std::uint64_t key : keys) ++begin[(key >> shift) & (kDigits - 1)];
    std::size_t sum = 0;
    for (std::size_t& slot : begin) sum += std::exchange(slot, sum);
    for (const std::uint64_t key : keys) other[begin[(key >> shift) & (kDigits - 1)]++] = key;
    keys.swap(other);
  }
}

}  // namespace syncd::planners
