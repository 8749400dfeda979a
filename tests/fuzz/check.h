// What fuzz targets share: how one reports a finding, and how frames are made. Any thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/wire/wire.h"

namespace syncd::fuzz {

// Ends the process, which is a finding, unless it holds.
inline void require(bool holds, std::string_view what, std::string_view detail = "") {
  if (holds) return;
  std::fprintf(stderr, "finding: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(detail.size()), detail.data());
  std::abort();
}

inline std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::vector<std::uint8_t> frame_of(const wire::Message& message) {
  std::vector<std::uint8_t> frame;
  wire::Encoder().append(message, frame);
  return frame;
}

// What was decoded is a message that could have been sent: its own bytes lead to it again. Compared
// as bytes, because a loss may be no number.
inline void require_sound(const wire::Message& message) {
  if (std::holds_alternative<wire::Unknown>(message.body)) return;
  const std::vector<std::uint8_t> frame = frame_of(message);
  wire::Message again;
  std::string error;
  require(wire::decode(std::span(frame).subspan(4), again, error),
          "what was encoded does not decode", error);
  require(again.body.index() == message.body.index() && again.id == message.id,
          "another message came back", wire::body_name(again.body));
  require(frame_of(again) == frame, "a message changes on its way", wire::body_name(message.body));
}

}  // namespace syncd::fuzz
