// The pages beside a loop that the test runs, or lets stand still.
#include "daemon/edge/admin/admin_server.h"

#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "support/http.h"

namespace syncd::admin {
namespace {

using test::http_get;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class AdminServerTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(uv_loop_init(&loop_), 0); }
  void TearDown() override {
    server_->stop([] {});
    uv_run(&loop_, UV_RUN_DEFAULT);
    EXPECT_EQ(uv_loop_close(&loop_), 0);
  }
  void start(AdminLimits limits, AdminSecurity security = {}) {
    std::vector<net::ListenSocket> sockets;
    std::string error;
    ASSERT_TRUE(net::open_tcp_sockets({"127.0.0.1", 0}, sockets, error)) << error;
    address_ = sockets[0].endpoint.substr(sockets[0].endpoint.find(':') + 1);
    const auto make = [this] {
      ++made_;
      return std::make_shared<const Snapshot>(snapshot_);
    };
    server_ =
        AdminServer::start(&loop_, std::move(sockets), std::move(security), make, limits, error);
    ASSERT_NE(server_, nullptr) << error;
  }

  uv_loop_t loop_{};
  std::unique_ptr<AdminServer> server_;
  std::string address_;
  Snapshot snapshot_;
  int made_ = 0;
};

TEST_F(AdminServerTest, WhereTheStoreLiesIsForAdministrators) {
  const std::string tokens = ::testing::TempDir() + "/syncd-admin-tokens";
  std::ofstream(tokens) << "[watch] watch-watch-watch-watch\n[ops] ops-ops-ops-ops-ops-ops\n";
  std::filesystem::permissions(
      tokens, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  net::AdmissionRules rules;
  rules.token_file = tokens;
  rules.admin = {"token:ops"};
  rules.metrics = {"token:watch"};
  std::string error;
  AdminSecurity security;
  security.admission = net::Admission::make(rules, error);
  ASSERT_NE(security.admission, nullptr) << error;
  std::filesystem::remove(tokens);
  snapshot_.server.store = "/secret/place";
  snapshot_.server.writable = false;
  snapshot_.server.store_reason = "store /secret/place cannot be written: No space left";
  start({.loop_timeout_ms = 60'000}, std::move(security));
  const auto page = [&](const char* path, const char* token) {
    std::atomic<bool> done{false};
    test::HttpReply reply;
    std::thread client([&] {
      reply = http_get(address_, path,
                       *token == 0 ? "" : std::string("Authorization: Bearer ") + token + "\r\n");
      done = true;
    });
    while (!done) uv_run(&loop_, UV_RUN_NOWAIT);
    client.join();
    EXPECT_LT(reply.status, 500) << path;
    return reply.head + reply.body;
  };
  for (const char* path : {"/healthz", "/readyz", "/metrics", "/status"}) {
    EXPECT_THAT(page(path, "watch-watch-watch-watch"), Not(HasSubstr("/secret"))) << path;
    EXPECT_THAT(page(path, ""), Not(HasSubstr("/secret"))) << path;
  }
  EXPECT_THAT(page("/status", "watch-watch-watch-watch"),
              AllOf(HasSubstr("\"path\": null"), HasSubstr("its log says why")));
  EXPECT_THAT(page("/status", "ops-ops-ops-ops-ops-ops"),
              AllOf(HasSubstr("\"path\": \"/secret/place\""), HasSubstr("No space left")));
}

TEST_F(AdminServerTest, ALoopThatStandsStillIsNotHealthy) {
  start({.loop_timeout_ms = 50});
  for (const char* path : {"/healthz", "/readyz", "/metrics", "/status"}) {
    const test::HttpReply reply = http_get(address_, path);
    EXPECT_EQ(reply.status, 503) << path;
    EXPECT_THAT(reply.body, HasSubstr("has not answered within 50 ms"));
  }
  EXPECT_EQ(made_, 0);
  EXPECT_EQ(http_get(address_, "/nothing").status, 404) << "which the loop is not asked for";
}

TEST_F(AdminServerTest, ALoopThatRunsIsAskedOnceForAll) {
  start({.loop_timeout_ms = 60'000, .snapshot_age_ms_max = 60'000});
  int status = 0;
  std::thread client([&] { status = http_get(address_, "/healthz").status; });
  while (made_ == 0) uv_run(&loop_, UV_RUN_ONCE);
  client.join();
  EXPECT_EQ(status, 200);
  // What is young is shown again, although the loop stands still.
  for (int i = 0; i < 5; ++i) EXPECT_EQ(http_get(address_, "/metrics").status, 200);
  EXPECT_EQ(made_, 1);
}

// An answer that nobody takes, and a request that nobody ends.
TEST_F(AdminServerTest, WhoeverTakesTooLongIsCutOff) {
  start({.request_timeout_ms = 50});
  test::HttpSocket silent(address_);
  test::HttpSocket slow(address_);
  slow.send("GET /hea");
  EXPECT_EQ(silent.receive_all(), "");
  EXPECT_EQ(slow.receive_all(), "");
}

TEST_F(AdminServerTest, TheOldestMakesRoom) {
  start({.connections_max = 2, .request_timeout_ms = 600'000});
  test::HttpSocket first(address_);
  test::HttpSocket second(address_);
  test::HttpSocket third(address_);
  EXPECT_EQ(first.receive_all(), "");
  third.send("GET /nothing HTTP/1.1\r\n\r\n");
  EXPECT_EQ(test::parse_reply(third.receive_all()).status, 404);
}

// Of a flood from one machine the oldest make room for one another.
TEST_F(AdminServerTest, AMachineMakesRoomForItself) {
  start({.connections_max = 8, .request_timeout_ms = 600'000});
  test::HttpSocket prober(address_);
  prober.send("GET /nothing HTTP/1.1\r\n");
  std::vector<std::unique_ptr<test::HttpSocket>> flood;
  for (int i = 0; i < 100; ++i) {
    flood.push_back(std::make_unique<test::HttpSocket>(address_, "127.0.0.2"));
  }
  EXPECT_EQ(flood.front()->receive_all(), "");
  prober.send("\r\n");
  EXPECT_EQ(test::parse_reply(prober.receive_all()).status, 404);
  EXPECT_EQ(http_get(address_, "/nothing").status, 404);
}

}  // namespace
}  // namespace syncd::admin
