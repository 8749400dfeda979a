// Deterministic randomness: a counter-based draw (the same answer for the same key, in any process
// and in any order) and a small sequential generator. Own code rather than <random>, because the
// standard's distributions differ between libraries and a seed must mean the same data everywhere.
// Pure functions and values; a Random is used by one thread at a time.
#pragma once

#include <cmath>
#include <cstdint>

namespace syncd::trainer {

// The finalizer of SplitMix64: every bit of the result depends on every bit of x.
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// What a draw is for; two purposes never share a random number.
enum class Stream : std::uint64_t {
  kBatch = 2,
  kInitialParameters = 3,
  kShuffle = 4,
  kGenerate = 5,
  kRetry = 6,
};

// 64 random bits for one key.
constexpr std::uint64_t draw_bits(std::uint64_t seed, Stream stream, std::uint64_t a,
                                  std::uint64_t b = 0) {
  return mix_bits(mix_bits(mix_bits(seed ^ (static_cast<std::uint64_t>(stream) << 56)) + a) + b);
}

// Maps 64 random bits to [0, 1), all 53 bits of the double used.
constexpr double to_unit(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

// Maps 64 random bits to 0..n-1, for n below 2^32.
constexpr std::uint64_t to_index(std::uint64_t bits, std::uint64_t n) {
  return ((bits >> 32) * n) >> 32;
}

// A sequence of draws.
class Random {
 public:
  Random(std::uint64_t seed, Stream stream) : state_(draw_bits(seed, stream, 0)) {}

  std::uint64_t bits() { return mix_bits(state_++); }
  double unit() { return to_unit(bits()); }
  std::uint64_t index(std::uint64_t n) { return to_index(bits(), n); }

  // Normal with mean 0 and deviation 1 (Box and Muller; the second of the pair is not kept, so that
  // every call uses two draws whatever came before).
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - unit()));
    return radius * std::cos(6.283185307179586 * unit());
  }

 private:
  std::uint64_t state_;
};

}  // namespace syncd::trainer
