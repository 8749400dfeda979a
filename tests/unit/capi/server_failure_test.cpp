// What a failed check does to a program that embeds the daemon: the server stops with an internal
// error, and the program goes on. The check fails in the callback of the log, which runs in the
// midst of the server's own code, on its loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <syncd/server.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "embedded_server.h"
#include "proto/base/check.h"
#include "support/c_api.h"
#include "support/files.h"

#if defined(__SANITIZE_ADDRESS__)
// Of a server that has failed, what may be between two states is not freed.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:syncd::server::\nleak:syncd::net::\n";
}
#endif

namespace syncd::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Fails a check at the line that has this text.
struct FailingLog {
  std::string at;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> lines;

  static void take(void* context, std::int32_t, const char* line) {
    auto* self = static_cast<FailingLog*>(context);
    const std::string text = line;
    {
      const std::scoped_lock lock(self->mutex);
      self->lines.push_back(text);
      self->changed.notify_all();
    }
    SYNCD_CHECK(self->at.empty() || text.find(self->at) == std::string::npos);
  }
  bool wait_for(const std::string& part) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(30), [&] {
      return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
        return line.find(part) != std::string::npos;
      });
    });
  }
};

TEST(FailedCheckInside, StopsTheServerAndNotTheProgram) {
  const TempDir directory;
  const std::string store = directory.path() + "/store";
  FailingLog log;
  log.at = "job_created";
  Given given{.unix_path = directory.path() + "/s", .store = store};
  given.log = FailingLog::take;
  given.log_context = &log;
  const syncd_server_options options = given.options();
  syncd_server* server = nullptr;
  ASSERT_TRUE(start(&options, &server).ok());
  const std::string address = syncd_server_address(server, 0);
  {
    ApiClient client(address, {.reconnect_ms = 1'000});
    ApiWorker worker;
    const Answer answer = client.try_join({.policy = "asp", .rank = 0}, worker);
    EXPECT_EQ(answer.status, SYNCD_E_UNREACHABLE) << answer.text();
  }
  ASSERT_TRUE(log.wait_for("server_failed"));
  const Answer stopped = stop(server);
  EXPECT_EQ(stopped.status, SYNCD_E_INTERNAL);
  EXPECT_THAT(stopped.message,
              AllOf(HasSubstr("the server has ended early: internal error: a check has failed: "),
                    HasSubstr("server_failure_test.cpp:")));
  // Its socket and its store are free again.
  Given next{.unix_path = directory.path() + "/s", .store = store};
  EmbeddedServer another(next);
  ApiClient client(another.address());
  ApiWorker worker = client.join({.policy = "asp", .rank = 0});
  EXPECT_TRUE(worker.iterate(3).ok());
}

TEST(FailedCheckInside, WhileItStartsIsTheStartsAnswer) {
  const TempDir directory;
  FailingLog log;
  log.at = "recovered";
  Given given{.store = directory.path() + "/store"};
  given.log = FailingLog::take;
  given.log_context = &log;
  const syncd_server_options options = given.options();
  syncd_server* server = nullptr;
  const Answer answer = start(&options, &server);
  EXPECT_EQ(answer.status, SYNCD_E_INTERNAL);
  EXPECT_THAT(answer.message, HasSubstr("a check has failed"));
  EXPECT_EQ(server, nullptr);
  EmbeddedServer another(Given{.store = directory.path() + "/store"});
}

}  // namespace
}  // namespace syncd::test
