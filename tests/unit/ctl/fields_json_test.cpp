// Keys are an interface: programs read them.
#include "daemon/tools/ctl/fields_json.h"

#include <gtest/gtest.h>

namespace syncd::ctl {
namespace {

TEST(FieldsJson, AJobHasItsSchemasNames) {
  const wire::JobStatus job{3, "job", "bsp", "running", 2, 16, 13, -1, 9, 77, 1, "note", 1700};
  EXPECT_EQ(
      fields_json(job).dump(),
      R"({"active_workers":13,"clock_max":9,"clock_min":-1,"created_us":1700,"epoch":2,)"
      R"("expected_workers":16,"hang":"","hang_ranks":"","id":3,"name":"job","note":"note","policy":"bsp",)"
      R"("pushes":77,"round":0,"round_gone":0,"state":"running","stragglers":0,"waiting":1})");
}

TEST(FieldsJson, WhatIsNotKnownIsNullAndBytesAreHexadecimal) {
  wire::WorkerStatus worker;
  worker.granted = -1;  // an iteration: -1 is a value of its own
  worker.evict_after_us = 0;
  worker.data = {10, 255};
  EXPECT_EQ(
      fields_json(worker).dump(),
      R"({"clock":0,"computed_us":null,"connected":false,"data":"0aff","evict_after_us":0,"exchange_us":null,"granted":-1,)"
      R"("heard_us":null,"host":"","incarnation":0,"last_push_us":null,"late_rule":"",)"
      R"("name":"","rank":0,"reason":"","state":"","straggler_factor":0.0,"straggler_since_us":null,"waiting_for":"","waiting_us":null,)"
      R"("warn_after_us":null})");
  EXPECT_EQ(fields_json(worker, {"rank", "heard_us"}).dump(), R"({"heard_us":null,"rank":0})");
}

TEST(FieldsJson, TheDaemonsStateHasItsSchemasNames) {
  EXPECT_EQ(fields_json(wire::StatusReply{}).dump(),
            R"({"commit_failures":0,"frames_in":0,"frames_out":0,"jobs":0,"mode":"","now_us":0,)"
            R"("pid":0,"pushes":0,"read_only":false,"records_removed":0,"server_version":"",)"
            R"("sessions":0,"started_us":0,"store":"","store_error":"",)"
            R"("store_error_since_us":null,"workers":0})");
}

}  // namespace
}  // namespace syncd::ctl
