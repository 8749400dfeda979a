// What a running daemon takes on of another configuration, and what it refuses.
#include "daemon/edge/config/reload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace syncd::config {
namespace {

using ::testing::HasSubstr;

class ReloadTest : public ::testing::Test {
 protected:
  bool plan() { return plan_reload(in_force_, wanted_, reload_, error_); }

  Config in_force_;
  Config wanted_;
  Reload reload_;
  std::string error_;
};

TEST_F(ReloadTest, WhatCanChangeDoesAndTheRestIsNamed) {
  wanted_.network.connections_max = 7;
  wanted_.log_level = LogLevel::kError;
  wanted_.durable = false;
  wanted_.jobs.push_back({.name = "a"});
  ASSERT_TRUE(plan()) << error_;
  EXPECT_EQ(reload_.next.network.connections_max, 7U);
  EXPECT_EQ(reload_.next.log_level, LogLevel::kError);
  EXPECT_TRUE(reload_.next.durable);
  EXPECT_TRUE(reload_.next.jobs.empty());
  EXPECT_EQ(reload_.changed,
            "limits.connections_max: 16384 -> 7, log.level: \"info\" -> \"error\"");
  EXPECT_EQ(reload_.needs_restart, "store.mode, [[job]]");
}

TEST_F(ReloadTest, LimitsOfTestsStay) {
  in_force_.engine.snapshot_every_records = 100;
  ASSERT_TRUE(plan());
  EXPECT_EQ(reload_.next.engine.snapshot_every_records, 100U);
  EXPECT_EQ(reload_.changed + reload_.needs_restart, "");
}

TEST_F(ReloadTest, TlsIsNotSwitchedOn) {
  wanted_.tls.certificate_file = "/c";
  wanted_.tls.key_file = "/k";
  ASSERT_TRUE(plan()) << error_;
  EXPECT_FALSE(reload_.next.has_tls());
  EXPECT_EQ(reload_.next.tls.key_file, "");
  EXPECT_EQ(reload_.needs_restart, "tls.certificate, tls.key");
  in_force_ = wanted_;
  wanted_.tls.certificate_file = "/d";
  ASSERT_TRUE(plan()) << error_;
  EXPECT_EQ(reload_.next.tls.certificate_file, "/d");
}

TEST_F(ReloadTest, NewRulesWaitForTheAddressesThatComeWithThem) {
  wanted_.auth.admin = {"uid:7"};
  ASSERT_TRUE(plan()) << error_;
  wanted_.unix_path = "/elsewhere";
  EXPECT_FALSE(plan());
  EXPECT_THAT(error_, HasSubstr("auth.admin cannot be taken on without listen.unix"));
  wanted_.unix_path = in_force_.unix_path;
  wanted_.engine.auto_create = false;
  EXPECT_TRUE(plan()) << "it can change by itself";
}

TEST_F(ReloadTest, WhatIsListenedOnStaysClosed) {
  in_force_.tcp = {{"10.0.0.1", 1}};
  in_force_.tls.certificate_file = wanted_.tls.certificate_file = "/c";
  in_force_.auth.token_file = "/t";
  wanted_.auth.token_file = "/u";
  wanted_.tcp = in_force_.tcp;
  EXPECT_TRUE(plan()) << error_;
  wanted_.auth.token_file.clear();
  EXPECT_FALSE(plan());
  EXPECT_THAT(error_, HasSubstr("it listens beyond this machine"));
  in_force_.insecure = true;
  EXPECT_TRUE(plan()) << error_;
}

}  // namespace
}  // namespace syncd::config
