// <syncd/client.h> as a caller sees it: through the exported symbols of the shared library, against
// a small server on a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <syncd/client.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../libclient/fake_server.h"
#include "proto/base/status.h"

namespace syncd {
namespace {

using client::FakeServer;
using testing::HasSubstr;

// Takes an error object over and frees it.
struct Failure {
  explicit Failure(syncd_error* given) : error(given) {}
  ~Failure() { syncd_error_free(error); }
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;

  std::string name() const { return syncd_error_name(error); }
  std::string message() const { return syncd_error_message(error); }
  syncd_error* error;
};

class Capi : public testing::Test {
 protected:
  void TearDown() override {
    syncd_worker_free(worker_);
    syncd_client_close(client_);
  }

  syncd_client_options options() {
    address_ = server_.address();
    syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
    options.addresses = address_.c_str();
    options.client_name = "capi_test";
    options.begin_timeout_ms = 60'000;
    return options;
  }
  void open() {
    const syncd_client_options given = options();
    syncd_error* error = nullptr;
    ASSERT_EQ(syncd_client_open(&given, &client_, &error), SYNCD_OK) << syncd_error_message(error);
  }
  void join(const char* policy = "ssp:3") {
    open();
    syncd_join_options given = join_options(policy);
    syncd_error* error = nullptr;
    ASSERT_EQ(syncd_join(client_, &given, &worker_, &error), SYNCD_OK)
        << syncd_error_message(error);
  }
  static syncd_join_options join_options(const char* policy = nullptr) {
    syncd_join_options given = SYNCD_JOIN_OPTIONS_INIT;
    given.job = "mf";
    given.policy = policy;
    given.name = "w";
    given.host = "node-a";
    given.rank = 2;
    given.world_size = 4;
    return given;
  }
  syncd_step begin() {
    syncd_step step = SYNCD_STEP_INIT;
    EXPECT_EQ(syncd_begin(worker_, SYNCD_TIMEOUT_DEFAULT, &step, nullptr), SYNCD_OK);
    return step;
  }

  static void expect_invalid(syncd_status status, syncd_error* error, const char* what) {
    EXPECT_EQ(status, SYNCD_E_INVALID);
    EXPECT_THAT(Failure(error).message(), HasSubstr(what));
  }

  FakeServer server_;
  std::string address_;
  syncd_client* client_ = nullptr;
  syncd_worker* worker_ = nullptr;
};

// ---- Codes, names, versions ---------------------------------------------------------------------

// error_codes_test.cpp compares the header's codes with their names.
TEST(CapiNames, WhatIsNoCodeHasNoName) {
  EXPECT_STREQ(syncd_strerror(SYNCD_OK), "SYNCD_OK");
  EXPECT_STREQ(syncd_strerror(1), "SYNCD_E_?");
  EXPECT_STREQ(syncd_strerror(-1000), "SYNCD_E_?");
}

TEST(CapiNames, TheVersionIsOne) {
  int major = -1;
  int minor = -1;
  int patch = -1;
  ASSERT_EQ(std::sscanf(syncd_version(), "%d.%d.%d", &major, &minor, &patch), 3);
  EXPECT_EQ(syncd_version_number(), major * 10000 + minor * 100 + patch);
}

TEST(CapiNames, NullIsNoError) {
  EXPECT_EQ(syncd_error_code(nullptr), SYNCD_OK);
  EXPECT_STREQ(syncd_error_name(nullptr), "SYNCD_OK");
  EXPECT_STREQ(syncd_error_message(nullptr), "");
  EXPECT_EQ(syncd_error_is_retriable(nullptr), 0);
  EXPECT_EQ(syncd_error_is_fatal(nullptr), 0);
  syncd_error_free(nullptr);
  syncd_client_close(nullptr);
  syncd_worker_free(nullptr);
  EXPECT_EQ(syncd_should_resync(nullptr), 0);
  EXPECT_EQ(syncd_worker_rank(nullptr), SYNCD_RANK_ANY);
  EXPECT_EQ(syncd_worker_world_size(nullptr), 0U);
  EXPECT_STREQ(syncd_worker_job(nullptr), "");
  EXPECT_STREQ(syncd_worker_policy(nullptr), "");
}

// ---- The loop -----------------------------------------------------------------------------------

TEST_F(Capi, TheFourCalls) {
  join();
  EXPECT_EQ(server_.last_hello().client_name, "capi_test");
  EXPECT_EQ(server_.last_hello().client_version, syncd_version());
  const wire::Join sent = server_.last_join();
  EXPECT_EQ(sent.job, "mf");
  EXPECT_EQ(sent.policy, "ssp:3");
  EXPECT_EQ(sent.name, "w");
  EXPECT_EQ(sent.host, "node-a");
  EXPECT_EQ(sent.rank, 2);
  EXPECT_EQ(sent.world_size, 4U);
  EXPECT_EQ(syncd_worker_rank(worker_), 2);
  EXPECT_EQ(syncd_worker_world_size(worker_), 4U);
  EXPECT_STREQ(syncd_worker_job(worker_), "mf");
  EXPECT_STREQ(syncd_worker_policy(worker_), "ssp:3");

  server_.behave([](auto& behaviour) {
    behaviour.grant_flags = SYNCD_STEP_PULL | SYNCD_STEP_BARRIER;
    behaviour.staleness = 2;
  });
  for (std::int64_t k = 0; k < 3; ++k) {
    const syncd_step step = begin();
    EXPECT_EQ(step.struct_size, sizeof(step));
    EXPECT_EQ(step.iteration, k);
    EXPECT_EQ(step.staleness, 2);
    EXPECT_EQ(step.flags, static_cast<std::uint32_t>(SYNCD_STEP_PULL | SYNCD_STEP_BARRIER));
    EXPECT_EQ(syncd_should_resync(worker_), 0);
    syncd_push_info info = SYNCD_PUSH_INFO_INIT;
    info.loss = 0.25;
    info.samples = 10;
    info.bytes = 20;
    std::uint32_t flags = 99;
    syncd_error* error = nullptr;
    ASSERT_EQ(syncd_push(worker_, k, &info, SYNCD_TIMEOUT_DEFAULT, &flags, &error), SYNCD_OK);
    EXPECT_EQ(error, nullptr) << "touched on success";
    EXPECT_EQ(flags, 0U);
    EXPECT_EQ(server_.last_push().loss, 0.25);
    EXPECT_EQ(server_.last_push().samples, 10U);
    EXPECT_EQ(server_.last_push().bytes, 20U);
  }
  EXPECT_EQ(syncd_leave(worker_, SYNCD_TIMEOUT_DEFAULT, nullptr), SYNCD_OK);
  EXPECT_EQ(syncd_leave(worker_, SYNCD_TIMEOUT_DEFAULT, nullptr), SYNCD_E_CLOSED);
  syncd_step step = SYNCD_STEP_INIT;
  EXPECT_EQ(syncd_begin(worker_, 0, &step, nullptr), SYNCD_E_CLOSED);
}

TEST_F(Capi, ALossThatIsNoNumberIsNotKnown) {
  join();
  syncd_push_info info = SYNCD_PUSH_INFO_INIT;
  std::int64_t k = 0;
  for (const double loss : {static_cast<double>(SYNCD_LOSS_UNKNOWN), std::nan(""), HUGE_VAL}) {
    begin();
    info.loss = loss;
    ASSERT_EQ(syncd_push(worker_, k++, &info, SYNCD_TIMEOUT_DEFAULT, nullptr, nullptr), SYNCD_OK);
    EXPECT_EQ(server_.last_push().loss, std::nullopt);
  }
  begin();
  ASSERT_EQ(syncd_push(worker_, k, nullptr, SYNCD_TIMEOUT_DEFAULT, nullptr, nullptr), SYNCD_OK);
  EXPECT_EQ(server_.last_push().loss, std::nullopt);
}

TEST_F(Capi, ALatePushIsFlagged) {
  join();
  begin();
  server_.behave([](auto& behaviour) { behaviour.late = true; });
  std::uint32_t flags = 0;
  ASSERT_EQ(syncd_push(worker_, 0, nullptr, SYNCD_TIMEOUT_DEFAULT, &flags, nullptr), SYNCD_OK);
  EXPECT_EQ(flags, static_cast<std::uint32_t>(SYNCD_PUSH_LATE));
}

TEST_F(Capi, AResyncIsSeenWithoutACallIntoTheLibrarysThread) {
  join();
  server_.behave([](auto& behaviour) { behaviour.resync = true; });
  begin();
  while (syncd_should_resync(worker_) == 0) std::this_thread::yield();
  server_.behave([](auto& behaviour) { behaviour.resync = false; });
  ASSERT_EQ(syncd_push(worker_, 0, nullptr, SYNCD_TIMEOUT_DEFAULT, nullptr, nullptr), SYNCD_OK);
  begin();
  EXPECT_EQ(syncd_should_resync(worker_), 0);
}

TEST_F(Capi, ARestartEndsTheAdvice) {
  join();
  server_.behave([](auto& behaviour) { behaviour.resync = true; });
  begin();
  while (syncd_should_resync(worker_) == 0) std::this_thread::yield();
  ASSERT_EQ(syncd_worker_restarted(worker_, 0, SYNCD_TIMEOUT_DEFAULT, nullptr), SYNCD_OK);
  EXPECT_EQ(syncd_should_resync(worker_), 0);
  EXPECT_EQ(server_.received("Restarted"), 1U);
  ASSERT_EQ(syncd_push(worker_, 0, nullptr, SYNCD_TIMEOUT_DEFAULT, nullptr, nullptr), SYNCD_OK);
  EXPECT_EQ(syncd_worker_restarted(worker_, 0, 0, nullptr), SYNCD_E_WRONG_ITERATION);
}

TEST_F(Capi, AMarkGoesWithThePushOfItsIteration) {
  join();
  syncd_error* error = nullptr;
  EXPECT_EQ(syncd_worker_mark(worker_, SYNCD_MARK_COMPUTED, &error), SYNCD_E_STATE);
  EXPECT_EQ(Failure(error).message(), "syncd_worker_mark: worker " +
                                          std::to_string(syncd_worker_rank(worker_)) +
                                          " computes no iteration now; syncd_begin() comes first");
  begin();
  EXPECT_EQ(syncd_worker_mark(worker_, 2, &error), SYNCD_E_INVALID);
  EXPECT_EQ(Failure(error).message(),
            "syncd_worker_mark: mark 2; allowed: SYNCD_MARK_COMPUTED (1)");
  EXPECT_EQ(syncd_worker_mark(worker_, SYNCD_MARK_COMPUTED, nullptr), SYNCD_OK);
  EXPECT_EQ(syncd_worker_mark(worker_, SYNCD_MARK_COMPUTED, nullptr), SYNCD_OK);
  ASSERT_EQ(syncd_push(worker_, 0, nullptr, SYNCD_TIMEOUT_DEFAULT, nullptr, nullptr), SYNCD_OK);
  EXPECT_GE(server_.last_push().computed_us, 0);
  EXPECT_EQ(syncd_worker_mark(worker_, SYNCD_MARK_COMPUTED, nullptr), SYNCD_E_STATE);
  begin();
  ASSERT_EQ(syncd_push(worker_, 1, nullptr, SYNCD_TIMEOUT_DEFAULT, nullptr, nullptr), SYNCD_OK);
  EXPECT_EQ(server_.last_push().computed_us, -1) << "a mark is of its own iteration";
  EXPECT_EQ(syncd_worker_mark(nullptr, SYNCD_MARK_COMPUTED, nullptr), SYNCD_E_INVALID);
}

TEST_F(Capi, ALongPhaseIsAnnouncedAndEnded) {
  join();
  begin();
  ASSERT_EQ(syncd_worker_phase(worker_, "checkpoint", 60'000, SYNCD_TIMEOUT_DEFAULT, nullptr),
            SYNCD_OK);
  EXPECT_EQ(server_.last_phase().name, "checkpoint");
  EXPECT_GT(server_.last_phase().lease_us, 0);
  EXPECT_LE(server_.last_phase().lease_us, 60'000'000);
  ASSERT_EQ(syncd_worker_phase(worker_, nullptr, 0, SYNCD_TIMEOUT_DEFAULT, nullptr), SYNCD_OK);
  EXPECT_EQ(server_.last_phase().name, "");
  EXPECT_EQ(syncd_worker_phase(worker_, "x", 86'400'000, 0, nullptr), SYNCD_OK);
  server_.await("Phase", 3);
  server_.cut();
  server_.await("Join", 2);
  EXPECT_EQ(server_.last_join().phase, "x") << "a daemon that was started again must know";
}

TEST_F(Capi, APhaseNamesItsBadArguments) {
  join();
  const auto refused = [&](const char* name, std::int64_t lease_ms, std::int64_t timeout_ms = 0) {
    syncd_error* error = nullptr;
    EXPECT_EQ(syncd_worker_phase(worker_, name, lease_ms, timeout_ms, &error), SYNCD_E_INVALID);
    return Failure(error).message();
  };
  EXPECT_EQ(refused("no spaces", 1),
            "syncd_worker_phase: phase name 'no spaces': allowed are 1 to 64 of A-Z a-z 0-9 . _ -");
  EXPECT_THAT(refused("", 1), HasSubstr("phase name ''"));
  EXPECT_EQ(refused("save", 86'400'001),
            "syncd_worker_phase: a lease of 86400.001 s for phase 'save': allowed are more than 0 "
            "and at most 86400 s (24 h)");
  EXPECT_THAT(refused("save", 0), HasSubstr("a lease of 0.000 s"));
  EXPECT_THAT(refused("save", INT64_MIN), HasSubstr("a lease of -"));
  EXPECT_THAT(refused("save", INT64_MAX), HasSubstr("allowed are more than 0 and at most"));
  EXPECT_EQ(refused(nullptr, 5),
            "syncd_worker_phase: a lease of 5 ms without a name; NULL ends the phase and takes a "
            "lease of 0");
  EXPECT_THAT(refused("save", 1, -3), HasSubstr("-3"));
  EXPECT_EQ(syncd_worker_phase(nullptr, "save", 1, 0, nullptr), SYNCD_E_INVALID);
  EXPECT_EQ(server_.received("Phase"), 0U);
}

TEST_F(Capi, AnOlderDaemonSaysThatItKnowsNoPhases) {
  join();
  server_.behave([](auto& behaviour) { behaviour.refuse["Phase"] = Status::kUnsupported; });
  EXPECT_EQ(syncd_worker_phase(worker_, "save", 1000, SYNCD_TIMEOUT_DEFAULT, nullptr),
            SYNCD_E_UNSUPPORTED);
}

// ---- Decentralized jobs -------------------------------------------------------------------------

TEST_F(Capi, TheCallsOfADecentralizedWorker) {
  join("hop:ring");
  for (std::int64_t k = 0; k < 3; ++k) {
    ASSERT_EQ(begin().iteration, k);
    std::vector<std::int32_t> ranks(8, -7);
    std::size_t count = 99;
    ASSERT_EQ(syncd_worker_targets(worker_, k, SYNCD_TIMEOUT_DEFAULT, ranks.data(), ranks.size(),
                                   &count, nullptr),
              SYNCD_OK);
    ASSERT_EQ(count, 3U);
    EXPECT_EQ(ranks, (std::vector<std::int32_t>{4, 0, 7, -7, -7, -7, -7, -7}));
    ASSERT_EQ(syncd_push(worker_, k, nullptr, SYNCD_TIMEOUT_DEFAULT, nullptr, nullptr), SYNCD_OK);
    syncd_update updates[2] = {};
    ASSERT_EQ(syncd_worker_collect(worker_, k, SYNCD_TIMEOUT_DEFAULT, updates, 2, &count, nullptr),
              SYNCD_OK);
    ASSERT_EQ(count, 2U);
    EXPECT_EQ(updates[0].rank, 2);
    EXPECT_EQ(updates[0].iteration, k);
    EXPECT_EQ(updates[0].weight, 0.75);
    EXPECT_EQ(updates[1].rank, 3);
    EXPECT_EQ(updates[1].iteration, k - 1);
    EXPECT_EQ(updates[1].weight, 0.25);
    EXPECT_EQ(syncd_worker_consumed(worker_, k, k == 1 ? 0 : SYNCD_TIMEOUT_DEFAULT, nullptr),
              SYNCD_OK);
  }
  EXPECT_EQ(server_.received("Consumed"), 3U);
}

TEST_F(Capi, ABufferThatIsTooSmallLosesNothing) {
  join("hop:ring");
  begin();
  std::int32_t ranks[3] = {-7, -7, -7};
  std::size_t count = 99;
  syncd_error* error = nullptr;
  ASSERT_EQ(syncd_worker_targets(worker_, 0, 1000, nullptr, 0, &count, &error), SYNCD_E_BUFFER);
  EXPECT_EQ(Failure(error).message(),
            "syncd_worker_targets: the answer has 3 entries, and the buffer takes 0; call again "
            "with room for 3");
  EXPECT_EQ(count, 3U);
  ASSERT_EQ(syncd_worker_targets(worker_, 0, 1000, ranks, 2, &count, nullptr), SYNCD_E_BUFFER);
  EXPECT_EQ(ranks[0], -7) << "only the count is set";
  server_.cut(false);  // the answer is here already
  ASSERT_EQ(syncd_worker_targets(worker_, 0, 1000, ranks, count, &count, nullptr), SYNCD_OK);
  EXPECT_EQ(ranks[2], 7);
  EXPECT_EQ(server_.received("Targets"), 1U);
}

TEST_F(Capi, PeerCallsNameTheirBadArguments) {
  join("hop:ring");
  begin();
  std::int32_t rank = 0;
  syncd_update update = {};
  std::size_t count = 99;
  const auto refuses = [](syncd_status status, syncd_error** error, const std::string& part) {
    EXPECT_EQ(status, SYNCD_E_INVALID);
    EXPECT_THAT(Failure(*error).message(), HasSubstr(part));
  };
  syncd_error* e = nullptr;
  refuses(syncd_worker_targets(nullptr, 0, 0, &rank, 1, &count, &e), &e, "worker is NULL");
  refuses(syncd_worker_targets(worker_, 0, 0, &rank, 1, nullptr, &e), &e, "count is NULL");
  refuses(syncd_worker_targets(worker_, 0, 0, nullptr, 1, &count, &e), &e,
          "the buffer is NULL, but its capacity is 1");
  refuses(syncd_worker_collect(worker_, -1, 0, &update, 1, &count, &e), &e,
          "syncd_worker_collect: iteration -1; allowed: 0 or more");
  refuses(syncd_worker_collect(worker_, 0, -3, &update, 1, &count, &e), &e, "-3");
  refuses(syncd_worker_consumed(nullptr, 0, 0, &e), &e, "syncd_worker_consumed: worker is NULL");
  refuses(syncd_worker_consumed(worker_, -2, 0, &e), &e, "iteration -2");
  refuses(syncd_worker_restarted(nullptr, 0, 0, &e), &e, "syncd_worker_restarted: worker is NULL");
  EXPECT_EQ(count, 99U);
}

TEST_F(Capi, APolicyWithoutPeersSaysSo) {
  join();
  begin();
  server_.behave([](auto& behaviour) { behaviour.refuse["Targets"] = Status::kUnsupported; });
  std::size_t count = 99;
  EXPECT_EQ(syncd_worker_targets(worker_, 0, 1000, nullptr, 0, &count, nullptr),
            SYNCD_E_UNSUPPORTED);
  EXPECT_EQ(count, 99U);
}

TEST_F(Capi, ACollectThatTimesOutSaysWhoIsWaitedForAndStands) {
  join("hop:ring");
  begin();
  ASSERT_EQ(syncd_push(worker_, 0, nullptr, SYNCD_TIMEOUT_DEFAULT, nullptr, nullptr), SYNCD_OK);
  server_.behave([](auto& behaviour) { behaviour.hold_collects = true; });
  syncd_update update = {};
  std::size_t count = 0;
  syncd_error* error = nullptr;
  EXPECT_EQ(syncd_worker_collect(worker_, 0, 0, &update, 1, &count, &error), SYNCD_E_TIMEOUT);
  EXPECT_EQ(syncd_error_is_retriable(error), 1);
  EXPECT_THAT(Failure(error).message(), HasSubstr("worker 9 (node-z"));
  server_.cut();  // it is sent again, which shows that it stands
  server_.await("Collect", 2);
}

TEST_F(Capi, ClosingCancelsACollect) {
  join("hop:ring");
  begin();
  ASSERT_EQ(syncd_push(worker_, 0, nullptr, SYNCD_TIMEOUT_DEFAULT, nullptr, nullptr), SYNCD_OK);
  server_.behave([](auto& behaviour) { behaviour.hold_collects = true; });
  std::thread blocked([&] {
    syncd_update update = {};
    std::size_t count = 0;
    EXPECT_EQ(syncd_worker_collect(worker_, 0, SYNCD_TIMEOUT_DEFAULT, &update, 1, &count, nullptr),
              SYNCD_E_CANCELLED);
  });
  server_.await("Collect", 1);
  syncd_client_close(client_);
  client_ = nullptr;
  blocked.join();
}

TEST_F(Capi, AWorkerThatHasBecomeSlowIsNamed) {
  open();
  std::promise<std::pair<syncd_event, std::string>> heard;
  syncd_join_options given = join_options();
  given.user_data = &heard;
  given.on_event = [](const syncd_event* event, void* user_data) {
    if (event->kind != SYNCD_EVENT_STRAGGLER) return;
    static_cast<decltype(heard)*>(user_data)->set_value({*event, event->text});
  };
  ASSERT_EQ(syncd_join(client_, &given, &worker_, nullptr), SYNCD_OK);
  server_.notify_all(wire::StragglerNotice{{1, 2, 1, 100},
                                           1,
                                           "w1",
                                           "node-b",
                                           false,
                                           2.5,
                                           7'000'000,
                                           "2 of 2 workers of host node-b are slow"});
  const auto [event, text] = heard.get_future().get();
  EXPECT_EQ(event.rank, 1);
  EXPECT_EQ(event.recovered, 0);
  EXPECT_EQ(event.factor, 2.5);
  EXPECT_EQ(event.since_us, 7'000'000);
  EXPECT_THAT(text, HasSubstr("2 of 2 workers of host node-b are slow"));
}

TEST_F(Capi, AStopIsAStepAndNoError) {
  join();
  server_.behave([](auto& behaviour) { behaviour.grant_flags = SYNCD_STEP_STOP; });
  EXPECT_EQ(begin().flags, static_cast<std::uint32_t>(SYNCD_STEP_STOP));
}

// ---- Every error that a caller can meet ---------------------------------------------------------

TEST_F(Capi, AnErrorObjectSaysEverythingAndOutParametersStay) {
  join();
  server_.behave([](auto& behaviour) { behaviour.hold_begins = true; });
  syncd_step step = SYNCD_STEP_INIT;
  step.iteration = -77;
  step.flags = 12345;
  syncd_error* error = nullptr;
  EXPECT_EQ(syncd_begin(worker_, 10, &step, &error), SYNCD_E_TIMEOUT);
  const Failure failure(error);
  EXPECT_EQ(syncd_error_code(error), SYNCD_E_TIMEOUT);
  EXPECT_EQ(failure.name(), "SYNCD_E_TIMEOUT");
  EXPECT_EQ(failure.message(),
            "begin(0) of worker 2 not granted after 10 ms: bsp: the fake server holds every begin; "
            "waiting for worker 9 (node-z, clock 4, last push 1.5 s ago)");
  EXPECT_EQ(syncd_error_is_retriable(error), 1);
  EXPECT_EQ(syncd_error_is_fatal(error), 0);
  EXPECT_EQ(step.iteration, -77);
  EXPECT_EQ(step.flags, 12345U);
}

TEST_F(Capi, NullArgumentsAreNamed) {
  syncd_error* error = nullptr;
  const auto complains = [&](syncd_status status, const char* what) {
    expect_invalid(status, std::exchange(error, nullptr), what);
  };
  const syncd_client_options given = options();
  complains(syncd_client_open(&given, nullptr, &error), "syncd_client_open: client is NULL");
  join();
  syncd_worker* other = nullptr;
  syncd_step step = SYNCD_STEP_INIT;
  complains(syncd_join(nullptr, nullptr, &other, &error), "syncd_join: client is NULL");
  complains(syncd_join(client_, nullptr, nullptr, &error), "syncd_join: worker is NULL");
  complains(syncd_begin(nullptr, 0, &step, &error), "syncd_begin: worker is NULL");
  complains(syncd_begin(worker_, 0, nullptr, &error), "syncd_begin: step is NULL");
  complains(syncd_push(nullptr, 0, nullptr, 0, nullptr, &error), "syncd_push: worker is NULL");
  complains(syncd_leave(nullptr, 0, &error), "syncd_leave: worker is NULL");
}

TEST_F(Capi, BadArgumentsAreNamed) {
  join();
  syncd_error* error = nullptr;
  const auto complains = [&](syncd_status status, const char* what) {
    expect_invalid(status, std::exchange(error, nullptr), what);
  };
  syncd_step step = SYNCD_STEP_INIT;
  complains(syncd_begin(worker_, -5, &step, &error), "syncd_begin: a timeout of -5 ms");
  step.struct_size = 3;
  complains(syncd_begin(worker_, 0, &step, &error), "syncd_step.struct_size is 3");
  complains(syncd_push(worker_, -1, nullptr, 0, nullptr, &error), "iteration -1; allowed: 0 or");
  complains(syncd_push(worker_, 0, nullptr, -9, nullptr, &error), "a timeout of -9 ms");
  syncd_push_info info = SYNCD_PUSH_INFO_INIT;
  info.struct_size = 1;
  complains(syncd_push(worker_, 0, &info, 0, nullptr, &error), "syncd_push_info.struct_size is 1");
  complains(syncd_leave(worker_, -9, &error), "a timeout of -9 ms");
  syncd_join_options bad = join_options();
  bad.timeout_ms = -9;
  syncd_worker* other = nullptr;
  complains(syncd_join(client_, &bad, &other, &error), "syncd_join_options.timeout_ms: a timeout");
  bad = join_options();
  bad.job = "no spaces";
  complains(syncd_join(client_, &bad, &other, &error), "syncd_join_options.job is 'no spaces'");
  EXPECT_EQ(other, nullptr);
  syncd_client_options wrong = options();
  wrong.addresses = "nowhere:at:all";
  syncd_client* nobody = nullptr;
  complains(syncd_client_open(&wrong, &nobody, &error), "'nowhere:at:all'");
  EXPECT_EQ(nobody, nullptr);
}

TEST_F(Capi, NobodyIsObligedToTakeTheErrorObject) {
  EXPECT_EQ(syncd_join(nullptr, nullptr, nullptr, nullptr), SYNCD_E_INVALID);
}

TEST_F(Capi, OpenMayFailInEachOfItsWays) {
  syncd_client_options given = options();
  given.connect_timeout_ms = 100;
  const auto fails = [&](syncd_status status, const char* what) {
    syncd_error* error = nullptr;
    syncd_client* client = nullptr;
    EXPECT_EQ(syncd_client_open(&given, &client, &error), status);
    const Failure failure(error);
    EXPECT_THAT(failure.message(), HasSubstr(what));
    EXPECT_EQ(client, nullptr);
  };
  for (const Status status : {Status::kAuth, Status::kLimit, Status::kProtocol}) {
    server_.behave([&](auto& behaviour) { behaviour.refuse_hello = status; });
    fails(static_cast<syncd_status>(status), "not you");
  }
  server_.behave([](auto& behaviour) {
    behaviour.refuse_hello = Status::kOk;
    behaviour.protocol = 7;
  });
  fails(SYNCD_E_PROTOCOL, "speaks protocol version 7, this library speaks versions 1 to 1");
  server_.cut(false);
  given.addresses = "unix:/tmp/no-such-socket-here";
  fails(SYNCD_E_UNREACHABLE, "unix:/tmp/no-such-socket-here: no such file or directory");
}

TEST_F(Capi, TheDaemonsRefusalsComeThrough) {
  open();
  for (const Status status :
       {Status::kUnknownJob, Status::kPolicyMismatch, Status::kRankTaken, Status::kLimit,
        Status::kStore, Status::kStopped, Status::kUnsupported, Status::kInternal,
        Status::kUnknownWorker, Status::kJobExists, Status::kBuffer, Status::kInvalid}) {
    server_.behave([&](auto& behaviour) { behaviour.refuse["Join"] = status; });
    const syncd_join_options given = join_options();
    syncd_error* error = nullptr;
    EXPECT_EQ(syncd_join(client_, &given, &worker_, &error), static_cast<syncd_status>(status));
    const Failure failure(error);
    EXPECT_EQ(failure.message(), "join of worker 'w' to job 'mf': Join is refused");
    EXPECT_EQ(failure.name(), status_name(status));
  }
  EXPECT_EQ(worker_, nullptr);
}

TEST_F(Capi, CallsOutOfOrder) {
  join();
  syncd_error* error = nullptr;
  EXPECT_EQ(syncd_push(worker_, 0, nullptr, 1000, nullptr, &error), SYNCD_E_STATE);
  EXPECT_THAT(Failure(error).message(), HasSubstr("no iteration was granted yet"));
  begin();
  syncd_step step = SYNCD_STEP_INIT;
  EXPECT_EQ(syncd_begin(worker_, 1000, &step, &error), SYNCD_E_STATE);
  EXPECT_THAT(Failure(error).message(), HasSubstr("iteration 0 was granted and is not pushed"));
  EXPECT_EQ(syncd_push(worker_, 3, nullptr, 1000, nullptr, &error), SYNCD_E_WRONG_ITERATION);
  EXPECT_EQ(Failure(error).message(), "push(3) of worker 2: iteration 0 is the one that is due");
}

TEST_F(Capi, AFencedWorkerIsToldSoForGood) {
  join();
  begin();
  server_.behave([](auto& behaviour) {
    behaviour.refuse["Push"] = Status::kFenced;
    behaviour.refuse["Join"] = Status::kFenced;
  });
  syncd_error* error = nullptr;
  EXPECT_EQ(syncd_push(worker_, 0, nullptr, 60'000, nullptr, &error), SYNCD_E_FENCED);
  const Failure failure(error);
  EXPECT_THAT(failure.message(), HasSubstr("worker 2 of job 'mf' is no longer a member"));
  EXPECT_EQ(syncd_error_is_fatal(error), 1);
  EXPECT_EQ(syncd_error_is_retriable(error), 0);
  EXPECT_EQ(syncd_leave(worker_, 60'000, nullptr), SYNCD_E_FENCED);
}

TEST_F(Capi, APushMayFailForTheStoreOrAStopOrTime) {
  join();
  begin();
  const auto push = [&](std::int64_t timeout_ms) {
    return syncd_push(worker_, 0, nullptr, timeout_ms, nullptr, nullptr);
  };
  server_.behave([](auto& behaviour) { behaviour.refuse["Push"] = Status::kStore; });
  EXPECT_EQ(push(60'000), SYNCD_E_STORE);
  server_.behave([](auto& behaviour) { behaviour.refuse["Push"] = Status::kStopped; });
  EXPECT_EQ(push(60'000), SYNCD_E_STOPPED);
  server_.behave([](auto& behaviour) { behaviour.silent = true; });
  EXPECT_EQ(push(0), SYNCD_E_TIMEOUT);
}

TEST_F(Capi, ADaemonThatIsLostForTooLongIsUnreachable) {
  syncd_client_options given = options();
  given.reconnect_timeout_ms = 100;
  ASSERT_EQ(syncd_client_open(&given, &client_, nullptr), SYNCD_OK);
  const syncd_join_options joining = join_options();
  ASSERT_EQ(syncd_join(client_, &joining, &worker_, nullptr), SYNCD_OK);
  server_.behave([](auto& behaviour) { behaviour.hold_begins = true; });
  std::thread cutter([&] {
    server_.await("Begin", 1);
    server_.cut(false);
  });
  syncd_step step = SYNCD_STEP_INIT;
  syncd_error* error = nullptr;
  EXPECT_EQ(syncd_begin(worker_, SYNCD_WAIT_FOREVER, &step, &error), SYNCD_E_UNREACHABLE);
  cutter.join();
  const Failure failure(error);
  EXPECT_THAT(failure.message(), HasSubstr("begin(0) of worker 2: no connection to a daemon for"));
  EXPECT_EQ(syncd_error_is_retriable(error), 1);
}

// ---- Closing, forking ---------------------------------------------------------------------------

TEST_F(Capi, ClosingCancelsBlockedCallsAndLeavesHandlesUsable) {
  join();
  server_.behave([](auto& behaviour) { behaviour.hold_begins = true; });
  std::thread blocked([&] {
    syncd_step step = SYNCD_STEP_INIT;
    syncd_error* error = nullptr;
    EXPECT_EQ(syncd_begin(worker_, SYNCD_WAIT_FOREVER, &step, &error), SYNCD_E_CANCELLED);
    const Failure failure(error);
    EXPECT_EQ(failure.message(), "begin(0) of worker 2: the client was closed");
  });
  server_.await("Begin", 1);
  syncd_client_close(std::exchange(client_, nullptr));
  blocked.join();
  syncd_error* error = nullptr;
  EXPECT_EQ(syncd_leave(worker_, 60'000, &error), SYNCD_E_CLOSED);
  EXPECT_EQ(Failure(error).message(), "the client is closed");
  EXPECT_STREQ(syncd_worker_job(worker_), "mf");
}

TEST_F(Capi, ClosingCancelsAJoinThatIsBlocked) {
  open();
  server_.behave([](auto& behaviour) { behaviour.silent = true; });
  std::thread blocked([&] {
    const syncd_join_options given = join_options();
    syncd_worker* worker = nullptr;
    EXPECT_EQ(syncd_join(client_, &given, &worker, nullptr), SYNCD_E_CANCELLED);
    EXPECT_EQ(worker, nullptr);
  });
  server_.await("Join", 1);
  syncd_client* client = client_;
  client_ = nullptr;
  syncd_client_close(client);
  blocked.join();
}

int connected_sockets() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_storage peer;
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0) ++count;
  }
  return count;
}

TEST_F(Capi, AChildOfForkIsToldSo) {
  join();
  const int sockets = connected_sockets();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    // The daemon is to see the parent's end.
    if (connected_sockets() != sockets - 1) _exit(7);
    syncd_step step = SYNCD_STEP_INIT;
    syncd_worker* worker = nullptr;
    const syncd_join_options given = join_options();
    if (syncd_begin(worker_, SYNCD_WAIT_FOREVER, &step, nullptr) != SYNCD_E_FORKED) _exit(1);
    if (syncd_push(worker_, 0, nullptr, -1, nullptr, nullptr) != SYNCD_E_FORKED) _exit(2);
    if (syncd_leave(worker_, -1, nullptr) != SYNCD_E_FORKED) _exit(3);
    if (syncd_leave_as(worker_, SYNCD_LEAVE_FAILED, "", -1, nullptr) != SYNCD_E_FORKED) _exit(8);
    if (syncd_join(client_, &given, &worker, nullptr) != SYNCD_E_FORKED) _exit(4);
    if (syncd_should_resync(worker_) != 0) _exit(5);
    syncd_client_close(client_);
    syncd_worker_free(worker_);
    if (!client::kChildMayStartThreads) _exit(0);
    const syncd_client_options own = options();
    if (syncd_client_open(&own, &client_, nullptr) != SYNCD_OK) _exit(6);
    syncd_client_close(client_);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(begin().iteration, 0) << "the parent's goes on";
}

}  // namespace
}  // namespace syncd
