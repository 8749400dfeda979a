// One frame's payload: it is refused with a text, or it is a message that is the same after it was
// encoded and decoded again, whatever the struct held before.
#include <cstddef>
#include <cstdint>
#include <string>

#include "proto/wire/wire.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace syncd;
  static wire::Message reused;
  wire::Message fresh;
  std::string error;
  std::string error_of_reused;
  const bool decoded = wire::decode({data, size}, fresh, error);
  fuzz::require(wire::decode({data, size}, reused, error_of_reused) == decoded,
                "what was decoded before decides whether a message is sound");
  if (!decoded) {
    fuzz::require(!error.empty() && error == error_of_reused, "an error without a text, or another",
                  error);
    return 0;
  }
  fuzz::require(!wire::body_name(fresh.body).empty(), "a message without a name");
  fuzz::require_sound(fresh);
  if (std::holds_alternative<wire::Unknown>(fresh.body)) return 0;
  fuzz::require(fuzz::frame_of(fresh) == fuzz::frame_of(reused), "something of an earlier message");
  return 0;
}
