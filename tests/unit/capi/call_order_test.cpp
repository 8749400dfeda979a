// Calls of the C interface in whatever order, with whatever numbers: each answers a code of the
// header's with a sentence, leaves what it must leave alone, and nothing breaks or hangs.
// SYNCD_PROPERTY_RUNS=N makes N times as many. Made for the sanitizers.
#include <gtest/gtest.h>
#include <syncd/client.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "embedded_server.h"
#include "support/c_api.h"
#include "support/files.h"
#include "tests/support/property_runs.h"
#include "tests/support/random.h"

namespace syncd::test {
namespace {

constexpr std::size_t kClients = 2;
constexpr std::size_t kWorkers = 3;

class Caller {
 public:
  Caller(std::string address, std::uint64_t seed) : address_(std::move(address)), random_(seed) {}
  ~Caller() {
    // In any order: workers before their clients, or after them.
    for (syncd_client*& client : clients_) {
      if (random_.one_in(2)) close(client);
    }
    for (syncd_worker*& worker : workers_) free(worker);
    for (syncd_client*& client : clients_) close(client);
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void call() {
    syncd_client*& client = random_.pick(clients_);
    syncd_worker*& worker = random_.pick(workers_);
    if (client == nullptr && !random_.one_in(8)) return open(client);
    if (worker == nullptr && !random_.one_in(8)) return join(client, worker);
    switch (random_.below(21)) {
      case 0:
        return random_.one_in(4) ? close_and_free(client) : open(client);
      case 1:
        return random_.one_in(3) ? free(worker) : join(client, worker);
      case 2:
      case 3:
        return join(client, worker);
      case 4:
      case 5:
      case 6:
        return begin(worker);
      case 7:
      case 8:
      case 9:
        return check("push", [&](auto** error) {
          std::uint32_t flags = 77;
          const auto status = syncd_push(worker, iteration(), nullptr, timeout(), &flags, error);
          EXPECT_TRUE(status == SYNCD_OK || flags == 77);
          return status;
        });
      case 10:
        return arrive(worker);
      case 11:
        return poll(worker);
      case 12:
        return check("restarted", [&](auto** error) {
          return syncd_worker_restarted(worker, iteration(), timeout(), error);
        });
      case 13:
        return check("consumed", [&](auto** error) {
          return syncd_worker_consumed(worker, iteration(), timeout(), error);
        });
      case 14:
        return targets(worker);
      case 15:
        return collect(worker);
      case 16:
        return explain(worker);
      case 17:
        return check("descriptor", [&](auto** error) {
          std::int32_t descriptor = -77;
          const auto status = syncd_worker_descriptor(worker, &descriptor, error);
          EXPECT_EQ(status != SYNCD_OK, descriptor == -77);
          return status;
        });
      case 18:
        syncd_should_resync(worker);
        syncd_worker_resync_flag(worker);
        EXPECT_NE(syncd_worker_job(worker), nullptr);
        EXPECT_NE(syncd_worker_policy(worker), nullptr);
        return;
      case 19:
        return phase(worker);
      default:
        if (!random_.one_in(4)) return;
        return check("leave", [&](auto** error) { return syncd_leave(worker, timeout(), error); });
    }
  }

  std::uint64_t granted() const { return granted_; }
  std::uint64_t failed() const { return failed_; }

 private:
  template <typename Call>
  void check(const char* name, Call&& call) {
    syncd_error* error = nullptr;
    const syncd_status status = call(&error);
    EXPECT_EQ(status == SYNCD_OK, error == nullptr) << name;
    if (status != SYNCD_OK) {
      ++failed_;
      EXPECT_EQ(syncd_error_code(error), status);
      EXPECT_STRNE(syncd_strerror(status), "SYNCD_E_?") << name << " answers " << status;
      EXPECT_STRNE(syncd_error_message(error), "") << name << ": " << syncd_strerror(status);
      // Of this library or the daemon, a defect.
      EXPECT_NE(status, SYNCD_E_INTERNAL) << name << ": " << syncd_error_message(error);
      EXPECT_NE(status, SYNCD_E_PROTOCOL) << name << ": " << syncd_error_message(error);
    }
    syncd_error_free(error);
  }

  void open(syncd_client*& client) {
    if (client != nullptr) return;
    syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
    options.addresses = address_.c_str();
    check("open", [&](auto** error) { return syncd_client_open(&options, &client, error); });
  }
  static void close(syncd_client*& client) { syncd_client_close(std::exchange(client, nullptr)); }
  static void free(syncd_worker*& worker) { syncd_worker_free(std::exchange(worker, nullptr)); }

  // Handles of a closed client stay good for nothing but that they may be called.
  void close_and_free(syncd_client*& client) {
    close(client);
    for (syncd_worker*& worker : workers_) {
      if (!random_.one_in(4)) free(worker);
    }
  }

  void join(syncd_client* client, syncd_worker*& worker) {
    if (worker != nullptr) return;
    static constexpr std::array kPolicies{"asp", "hop:ring", "notify_ack:ring", "bsp", "nonsense"};
    syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
    const std::size_t job = random_.below(random_.one_in(10) ? kPolicies.size() : 4);
    const std::string name = "job-" + std::to_string(job);
    options.job = name.c_str();
    options.policy = kPolicies[random_.one_in(10) ? random_.below(5) : job];
    options.rank = static_cast<std::int32_t>(random_.between(random_.one_in(10) ? -2 : -1, 2));
    options.world_size = static_cast<std::uint32_t>(random_.between(0, 2));
    options.timeout_ms = random_.one_in(4) ? timeout() : 50;
    syncd_worker* joined = nullptr;
    check("join", [&](auto** error) { return syncd_join(client, &options, &joined, error); });
    worker = joined;
  }

  void took(syncd_status status, const syncd_step& step) {
    if (status != SYNCD_OK || (step.flags & SYNCD_STEP_STOP) != 0) return;
    ++granted_;
    latest_ = step.iteration;
  }

  void begin(syncd_worker* worker) {
    check("begin", [&](auto** error) {
      syncd_step step = SYNCD_STEP_INIT;
      const auto status = syncd_begin(worker, timeout(), &step, error);
      took(status, step);
      return status;
    });
  }

  void arrive(syncd_worker* worker) {
    check("arrive", [&](auto** error) { return syncd_worker_arrive(worker, error); });
  }

  void poll(syncd_worker* worker) {
    check("poll", [&](auto** error) {
      syncd_step step = SYNCD_STEP_INIT;
      std::int32_t ready = -77;
      const auto status = syncd_worker_poll(worker, &ready, &step, error);
      EXPECT_TRUE(status == SYNCD_OK ? ready == 0 || ready == 1 : ready == -77);
      if (ready == 1) took(status, step);
      return status;
    });
  }

  void targets(syncd_worker* worker) {
    check("targets", [&](auto** error) {
      std::vector<std::int32_t> ranks(random_.below(3));
      std::size_t count = 77;
      const auto status = syncd_worker_targets(worker, iteration(), timeout(), ranks.data(),
                                               ranks.size(), &count, error);
      EXPECT_EQ(status == SYNCD_OK || status == SYNCD_E_BUFFER, count != 77);
      return status;
    });
  }

  void collect(syncd_worker* worker) {
    check("collect", [&](auto** error) {
      std::vector<syncd_update> updates(random_.below(4));
      std::size_t count = 77;
      const auto status = syncd_worker_collect(worker, iteration(), timeout(), updates.data(),
                                               updates.size(), &count, error);
      EXPECT_EQ(status == SYNCD_OK || status == SYNCD_E_BUFFER, count != 77);
      return status;
    });
  }

  void phase(syncd_worker* worker) {
    static constexpr std::array kNames{"evaluation", "checkpoint", "", "no spaces"};
    const char* name =
        random_.one_in(3) ? nullptr : kNames[random_.below(random_.one_in(5) ? 4 : 2)];
    std::int64_t lease_ms = name != nullptr ? random_.between(1, 100) : 0;
    if (random_.one_in(10)) lease_ms = random_.between(-1, 1) * 100'000'000;
    check("phase", [&](auto** error) {
      return syncd_worker_phase(worker, name, lease_ms, timeout(), error);
    });
  }

  void explain(syncd_worker* worker) {
    check("explain", [&](auto** error) {
      syncd_explanation* explanation = nullptr;
      const auto status = syncd_worker_explain(worker, timeout(), &explanation, error);
      EXPECT_EQ(status == SYNCD_OK, explanation != nullptr);
      syncd_explanation_free(explanation);
      return status;
    });
  }

  // Mostly one that could be right.
  std::int64_t iteration() {
    if (random_.one_in(12)) return random_.between(-3, 1'000'000);
    return latest_ + random_.between(-1, 1);
  }
  std::int64_t timeout() {
    static constexpr std::array<std::int64_t, 5> kTimeouts{0, 1, 2, 20, -3};
    return random_.one_in(2) ? 5 : kTimeouts[random_.below(5)];
  }

  std::string address_;
  Random random_;
  std::vector<syncd_client*> clients_ = std::vector<syncd_client*>(kClients);
  std::vector<syncd_worker*> workers_ = std::vector<syncd_worker*>(kWorkers);
  std::int64_t latest_ = 0;
  std::uint64_t granted_ = 0;
  std::uint64_t failed_ = 0;
};

TEST(CallOrder, AnyOrderIsAnswered) {
  std::uint64_t granted = 0;
  std::uint64_t failed = 0;
  for (std::uint64_t seed = 1; seed <= 40 * property_runs() && !testing::Test::HasFailure();
       ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const TempDir directory;
    EmbeddedServer server({.tcp = "off", .unix_path = directory.file("socket"), .store = "memory"});
    Caller caller(server.address(), seed);
    for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) caller.call();
    granted += caller.granted();
    failed += caller.failed();
  }
  EXPECT_GT(granted, 200U);
  EXPECT_GT(failed, 500U);
}

}  // namespace
}  // namespace syncd::test
