// The lists of fields against record.fbs.
#include "daemon/edge/store/record_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/proto/schema_check.h"

namespace syncd::store {
namespace {

TEST(RecordFields, TheyAreWhatTheSchemaSays) {
  SchemaCheck check("record/record.bfbs", "syncd.record.fb.");
  check.compare<JobSnapshot>();
  EXPECT_THAT(check.unseen(), testing::IsEmpty());
}

}  // namespace
}  // namespace syncd::store
