// The whole daemon on a loop in this thread, and raw clients beside it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/edge/net/loop_guard.h"
#include "daemon/edge/server/server.h"
#include "tests/unit/net/net_fixture.h"
#include "tests/unit/server/fake_store.h"

namespace syncd::server {

using net::RawClient;

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/syncd-server-test-XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    directory_ = directory;
    ::signal(SIGPIPE, SIG_IGN);
    ASSERT_EQ(uv_loop_init(&loop_), 0);
  }
  void TearDown() override {
    if (server_) stop();
    EXPECT_EQ(uv_loop_close(&loop_), 0) << "a handle was not closed";
    std::filesystem::remove_all(directory_);
  }

  ServerOptions options() const {
    ServerOptions o;
    o.version = "9.9";
    o.unix_path = directory_ + "/s";
    o.shutdown_timeout_us = 2'000'000;
    return o;
  }
  StartError start(ServerOptions o, std::unique_ptr<store::Store> store) {
    server_ = std::make_unique<Server>(&loop_, std::move(o), std::move(store),
                                       [this](const LogLine& line) { lines_.push_back(line); });
    return server_->start(error_);
  }
  void start() {
    ASSERT_EQ(start(options(), store::make_memory_store()), StartError::kNone) << error_;
  }
  FakeStore& start_on_fake() {
    auto store = std::make_unique<FakeStore>();
    FakeStore& fake = *store;
    EXPECT_EQ(start(options(), std::move(store)), StartError::kNone) << error_;
    return fake;
  }
  std::string stop() {
    std::string problem;
    bool stopped = false;
    server_->stop("test is over", [&](const std::string& text) {
      problem = text;
      stopped = true;
    });
    EXPECT_TRUE(run_until([&] { return stopped; }));
    server_.reset();
    return problem;
  }

  bool run_until(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      uv_run(&loop_, UV_RUN_NOWAIT);
      if (net::loop_failure != nullptr) std::rethrow_exception(net::loop_failure);
      ::poll(nullptr, 0, 1);
    }
    return true;
  }
  // Turns the loop often enough for anything that is going to happen without outside help.
  void settle(RawClient& client) {
    for (int i = 0; i < 20; ++i) {
      uv_run(&loop_, UV_RUN_NOWAIT);
      ::poll(nullptr, 0, 1);
      client.receive();
    }
  }
  std::unique_ptr<RawClient> connect() {
    auto client = std::make_unique<RawClient>(directory_ + "/s");
    client->hello();
    EXPECT_TRUE(run_until([&] {
      client->receive();
      return client->last<wire::Welcome>() != nullptr;
    }));
    client->messages.clear();
    return client;
  }
  // Sends a request and returns the body of its answer.
  template <class T>
  T ask(RawClient& client, wire::Body body) {
    client.send({++next_id_, std::move(body)});
    const wire::Message* answer = nullptr;
    EXPECT_TRUE(run_until([&] {
      client.receive();
      answer = find(client, next_id_);
      return answer != nullptr || client.ended;
    }));
    if (answer == nullptr) return {};
    if (const T* found = std::get_if<T>(&answer->body)) return *found;
    const auto* error = std::get_if<wire::Error>(&answer->body);
    ADD_FAILURE() << "answered by " << wire::body_name(answer->body) << ": "
                  << (error ? error->message : "");
    return {};
  }
  static const wire::Message* find(const RawClient& client, std::uint64_t id) {
    for (const wire::Message& message : client.messages) {
      if (message.id == id) return &message;
    }
    return nullptr;
  }
  wire::Joined join(RawClient& client, const std::string& name, std::uint32_t world_size = 1,
                    const std::string& policy = "bsp") {
    wire::Join join;
    join.job = "j";
    join.policy = policy;
    join.name = name;
    join.host = "h";
    join.world_size = world_size;
    return ask<wire::Joined>(client, join);
  }
  std::size_t count(const std::string& event) const {
    std::size_t n = 0;
    for (const LogLine& line : lines_) n += line.event == event;
    return n;
  }

  std::string directory_;
  uv_loop_t loop_;
  std::unique_ptr<Server> server_;
  std::vector<LogLine> lines_;
  std::string error_;
  std::uint64_t next_id_ = 100;
  static inline Server* volatile lost_ =
      nullptr;  // reachable to the end, and stored although it is never read
};

}  // namespace syncd::server
