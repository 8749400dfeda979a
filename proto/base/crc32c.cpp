// CRC-32C by the processor's own instruction, where it has one; else by tables, eight bytes at a
// time ("slicing by 8", Kounavis and Berry 2005).
#include <array>
#include <bit>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include "proto/base/crc32c.h"

namespace syncd {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    tables[0][i] = crc;
  }
  for (std::uint32_t i = 0; i < 256; ++i) {
    for (std::size_t t = 1; t < 8; ++t) {
      tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xFF];
    }
  }
  return tables;
}
constexpr Tables kTables = make_tables();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(
    std::span<const std::uint8_t> bytes) {
  std::uint64_t crc = ~std::uint32_t{0};
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, at, 8);
    crc = _mm_crc32_u64(crc, eight);
  }
  auto narrow = static_cast<std::uint32_t>(crc);
  for (; left > 0; ++at, --left) narrow = _mm_crc32_u8(narrow, *at);
  return ~narrow;
}
const bool kHasInstruction = __builtin_cpu_supports("sse4.2") != 0;
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::uint8_t> bytes) {
#if defined(__x86_64__)
  if (kHasInstruction) return by_instruction(bytes);
#endif
  return crc32c_by_tables(bytes);
}

std::uint32_t crc32c_by_tables(std::span<const std::uint8_t> bytes) {
  static_assert(std::endian::native == std::endian::little,
                "the eight-byte step reads little-endian");
  std::uint32_t crc = ~std::uint32_t{0};
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + 4, 4);
    low ^= crc;
    crc = kTables[7][low & 0xFF] ^ kTables[6][(low >> 8) & 0xFF] ^ kTables[5][(low >> 16) & 0xFF] ^
          kTables[4][low >> 24] ^ kTables[3][high & 0xFF] ^ kTables[2][(high >> 8) & 0xFF] ^
          kTables[1][(high >> 16) & 0xFF] ^ kTables[0][high >> 24];
  }
  for (; left > 0; ++at, --left) crc = (crc >> 8) ^ kTables[0][(crc ^ *at) & 0xFF];
  return ~crc;
}

std::uint32_t mask_crc(std::uint32_t crc) {
  return std::rotr(crc, 15) + 0xA282EAD8u;
}

}  // namespace syncd
