// The calls of <syncd/server.h> with owners and values, for tests. As thread-safe as the calls.
#pragma once

#include <gtest/gtest.h>
#include <syncd/server.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "support/c_api.h"

namespace syncd::test {

inline Answer start(const syncd_server_options* options, syncd_server** server) {
  return answered([&](auto** error) { return syncd_server_start(options, server, error); });
}

inline Answer stop(syncd_server* server, std::int64_t timeout_ms = SYNCD_TIMEOUT_DEFAULT) {
  return answered([&](auto** error) { return syncd_server_stop(server, timeout_ms, error); });
}

// The options. An empty text leaves its field unset.
struct Given {
  std::string config = {};
  std::string tcp = {};
  std::string unix_path = {};
  std::string store = {};
  syncd_log_callback log = nullptr;
  void* log_context = nullptr;
  std::int32_t log_level = 0;
  std::uint32_t flags = 0;

  syncd_server_options options() const {
    const auto or_null = [](const std::string& text) {
      return text.empty() ? nullptr : text.c_str();
    };
    syncd_server_options made = SYNCD_SERVER_OPTIONS_INIT;
    made.config = or_null(config);
    made.tcp = or_null(tcp);
    made.unix_path = or_null(unix_path);
    made.store = or_null(store);
    made.log = log;
    made.log_context = log_context;
    made.log_level = log_level;
    made.flags = flags;
    return made;
  }
};

// A server that stops with its scope.
class EmbeddedServer {
 public:
  explicit EmbeddedServer(const Given& given) {
    const syncd_server_options options = given.options();
    const Answer answer = start(&options, &server_);
    EXPECT_TRUE(answer.ok()) << answer.text();
  }
  ~EmbeddedServer() { stop(); }
  EmbeddedServer(const EmbeddedServer&) = delete;
  EmbeddedServer& operator=(const EmbeddedServer&) = delete;

  void stop(std::int64_t timeout_ms = SYNCD_TIMEOUT_DEFAULT) {
    const Answer answer = test::stop(std::exchange(server_, nullptr), timeout_ms);
    EXPECT_TRUE(answer.ok()) << answer.text();
  }
  std::string address(std::size_t index = 0) const {
    const char* text = syncd_server_address(server_, index);
    return text != nullptr ? text : "";
  }
  syncd_server* get() const { return server_; }

 private:
  syncd_server* server_ = nullptr;
};

}  // namespace syncd::test
