// The names of message types. Apart from the codec, because the engine uses them too and knows no
// FlatBuffers.
#include <array>

#include "proto/wire/fields.h"

namespace syncd::wire {
namespace {

template <std::size_t... I>
constexpr auto names(std::index_sequence<I...>) {
  return std::array<std::string_view, sizeof...(I) + 1>{
      "Unknown", FieldsOf<std::variant_alternative_t<I + 1, Body>>::name...};
}

}  // namespace

std::string_view body_name(const Body& body) {
  static constexpr auto kNames = names(std::make_index_sequence<std::variant_size_v<Body> - 1>{});
  return kNames[body.index()];
}

}  // namespace syncd::wire
