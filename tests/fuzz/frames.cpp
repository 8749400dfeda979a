// A byte stream, split into frames at arbitrary cuts: [limit, number of cuts, the cuts, stream].
// However it arrives, the same frames come out of it, and the same error ends it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/wire/wire.h"
#include "tests/fuzz/check.h"
#include "tests/support/choices.h"

namespace {

using namespace syncd;
using Bytes = std::vector<std::uint8_t>;

struct Heard {
  std::vector<Bytes> frames;
  std::string error;
  std::size_t pending = 0;
  bool operator==(const Heard&) const = default;
};

Heard listen(const std::vector<std::span<const std::uint8_t>>& pieces, std::size_t frame_max) {
  wire::FrameSplitter splitter(frame_max);
  Heard heard;
  for (const auto piece : pieces) {
    splitter.append(piece);
    std::span<const std::uint8_t> payload;
    for (;;) {
      const auto result = splitter.next(payload, heard.error);
      if (result == wire::FrameSplitter::Result::kNeedMore) break;
      if (result == wire::FrameSplitter::Result::kError) {
        fuzz::require(!heard.error.empty(), "an error without a text");
        return heard;
      }
      fuzz::require(!payload.empty() && payload.size() <= frame_max, "a frame over the limit");
      heard.frames.emplace_back(payload.begin(), payload.end());
    }
  }
  heard.pending = splitter.pending_bytes();
  fuzz::require(heard.pending < frame_max + 4, "a whole frame was kept back");
  return heard;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kLimits[] = {kDefaultMaxFrameBytes, 1, 64, 1024 * 1024};
  if (size < 2) return 0;
  const std::size_t frame_max = kLimits[data[0] % 4];
  const std::size_t cuts = std::min<std::size_t>(data[1] % 16, size - 2);
  const std::span<const std::uint8_t> stream(data + 2 + cuts, size - 2 - cuts);
  std::vector<std::span<const std::uint8_t>> pieces;
  std::span<const std::uint8_t> rest = stream;
  for (std::size_t i = 0; i < cuts; ++i) {
    const std::size_t length = std::min<std::size_t>(data[2 + i], rest.size());
    pieces.push_back(rest.first(length));
    rest = rest.subspan(length);
  }
  pieces.push_back(rest);
  const Heard at_once = listen({stream}, frame_max);
  fuzz::require(listen(pieces, frame_max) == at_once, "other frames when they arrive in pieces");
  std::vector<std::span<const std::uint8_t>> single;
  for (std::size_t i = 0; i < stream.size(); ++i) single.push_back(stream.subspan(i, 1));
  fuzz::require(listen(single, frame_max) == at_once, "other frames when they arrive byte by byte");

  wire::Message message;  // reused, as the daemon does
  for (const Bytes& frame : at_once.frames) {
    std::string error;
    if (wire::decode(frame, message, error)) {
      fuzz::require_sound(message);
    } else {
      fuzz::require(!error.empty(), "an error without a text");
    }
  }
  return 0;
}
