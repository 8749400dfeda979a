// Numbers that no two processes draw: of nonces, leases and clusters. Any thread.
#pragma once

#include <cstdint>
#include <random>

namespace syncd::cluster {

inline std::uint64_t random_number() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace syncd::cluster
