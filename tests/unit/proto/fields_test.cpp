// The lists of fields against wire.fbs: a field that was forgotten, or that has another place, type
// or default, fails here.
#include "proto/wire/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/proto/schema_check.h"

namespace syncd::wire {
namespace {

template <class Visit, std::size_t... I>
void each_message(const Visit& visit, std::index_sequence<I...>) {
  (visit(std::variant_alternative_t<I + 1, Body>{}, I + 1), ...);
}

TEST(Fields, EachMessageHasWhatTheSchemaSays) {
  SchemaCheck check("wire/wire.bfbs", "syncd.wire.fb.");
  const reflection::Enum* types = nullptr;
  for (const auto* other : *check.schema().enums()) {
    if (other->name()->str() == "syncd.wire.fb.Body") types = other;
  }
  ASSERT_NE(types, nullptr);
  ASSERT_EQ(types->values()->size(), std::variant_size_v<Body>);
  each_message(
      [&](auto message, std::size_t number) {
        const auto* type = types->values()->Get(static_cast<flatbuffers::uoffset_t>(number));
        EXPECT_EQ(type->value(), static_cast<std::int64_t>(number));
        EXPECT_EQ(type->name()->str(), body_name(message));
        check.compare<decltype(message)>();
      },
      std::make_index_sequence<std::variant_size_v<Body> - 1>{});
  EXPECT_THAT(check.unseen(), testing::ElementsAre("syncd.wire.fb.Message"));
}

}  // namespace
}  // namespace syncd::wire
