// CRC-32C (Castagnoli) of bytes, as RFC 3720 defines it. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>

namespace syncd {

std::uint32_t crc32c(std::span<const std::uint8_t> bytes);
// The same on a processor without an instruction for it.
std::uint32_t crc32c_by_tables(std::span<const std::uint8_t> bytes);
// Keeps the checksum of bytes that hold checksums from being weak (LevelDB's log format).
std::uint32_t mask_crc(std::uint32_t crc);

}  // namespace syncd
