// See draws.h.
#include "daemon/tools/sim/draws.h"

#include <cmath>
#include <numbers>

namespace syncd::sim {
namespace {

// The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
std::uint64_t mix(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

std::uint64_t draw_bits(std::uint64_t seed, Stream stream, std::uint64_t worker,
                        std::uint64_t iteration) {
  std::uint64_t state = mix(seed ^ (static_cast<std::uint64_t>(stream) << 56));
  state = mix(state ^ worker);
  return mix(state ^ iteration);
}

double draw_unit(std::uint64_t seed, Stream stream, std::uint64_t worker, std::uint64_t iteration) {
  return static_cast<double>(draw_bits(seed, stream, worker, iteration) >> 11) * 0x1.0p-53;
}

// Box and Muller: two even draws make a normal one.
double draw_normal(std::uint64_t seed, std::uint64_t worker, std::uint64_t iteration) {
  const double length = 1.0 - draw_unit(seed, Stream::kTime, worker, iteration);  // above 0
  const double angle = draw_unit(seed, Stream::kTimeAngle, worker, iteration);
  return std::sqrt(-2.0 * std::log(length)) * std::cos(2.0 * std::numbers::pi * angle);
}

}  // namespace syncd::sim
