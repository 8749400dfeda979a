// See wire.h.
#include <cstring>

#include "proto/wire/wire.h"

namespace syncd::wire {
namespace {

[[gnu::cold, gnu::noinline]] std::string wrong_length(std::uint32_t length, std::size_t most) {
  return "a frame says it is " + std::to_string(length) + " bytes long; allowed are 1 to " +
         std::to_string(most);
}

}  // namespace

void FrameSplitter::append(std::span<const std::uint8_t> bytes) {
  // What was handed out is dropped once it is the larger part, so that each byte moves O(1) times.
  if (read_ == buffer_.size()) {
    buffer_.clear();
    read_ = 0;
  } else if (read_ > buffer_.size() / 2) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(read_));
    read_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

FrameSplitter::Result FrameSplitter::next(std::span<const std::uint8_t>& payload,
                                          std::string& error) {
  constexpr std::size_t kPrefix = 4;
  if (pending_bytes() < kPrefix) return Result::kNeedMore;
  const std::uint8_t* at = buffer_.data() + read_;
  const std::uint32_t length =
      static_cast<std::uint32_t>(at[0]) | static_cast<std::uint32_t>(at[1]) << 8 |
      static_cast<std::uint32_t>(at[2]) << 16 | static_cast<std::uint32_t>(at[3]) << 24;
  if (length == 0 || length > max_frame_bytes_) {
    error = wrong_length(length, max_frame_bytes_);
    return Result::kError;
  }
  if (pending_bytes() < kPrefix + length) return Result::kNeedMore;
  payload = {at + kPrefix, length};
  read_ += kPrefix + length;
  return Result::kFrame;
}

}  // namespace syncd::wire
