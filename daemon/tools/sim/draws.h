// Chance for simulations: every draw is a hash of what it is for, so that it does not depend on how
// many others came before it. All policies of a comparison see the same numbers. Pure functions.
#pragma once

#include <cstdint>

namespace syncd::sim {

// What a draw is for: draws of different streams have nothing to do with each other.
enum class Stream : std::uint64_t {
  kSpeed = 1,
  kTime = 2,
  kTimeAngle = 3,
  kSlowdown = 4,
  kRunStart = 5
};

// 64 even bits for (seed, stream, worker, iteration).
std::uint64_t draw_bits(std::uint64_t seed, Stream stream, std::uint64_t worker,
                        std::uint64_t iteration);

// Evenly distributed in [0, 1).
double draw_unit(std::uint64_t seed, Stream stream, std::uint64_t worker, std::uint64_t iteration);

// From the normal distribution with mean 0 and deviation 1.
double draw_normal(std::uint64_t seed, std::uint64_t worker, std::uint64_t iteration);

}  // namespace syncd::sim
