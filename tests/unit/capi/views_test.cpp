// Rounds of a gather job through the exported symbols against an embedded daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <syncd/client.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "embedded_server.h"
#include "support/c_api.h"
#include "support/listening.h"

namespace syncd::test {
namespace {

using ::testing::HasSubstr;

class ViewsOfC : public testing::Test {
 protected:
  // Both begin, each with what it shows; the steps are those of `a` and `b`.
  void together(const ApiWorker& a, const std::string& data_a, const ApiWorker& b,
                const std::string& data_b) {
    std::thread other([&] { begin(b, data_b, step_b_); });
    begin(a, data_a, step_a_);
    other.join();
  }
  static void begin(const ApiWorker& worker, const std::string& data, syncd_step& step) {
    ASSERT_EQ(syncd_worker_set_data(worker.get(), data.data(), data.size(), nullptr), SYNCD_OK);
    ASSERT_EQ(syncd_begin(worker.get(), 30'000, &step, nullptr), SYNCD_OK);
  }
  static std::string shown(const syncd_step& step) {
    return {static_cast<const char*>(step.view_data), step.view_data_size};
  }
  static syncd_round round_of(const ApiWorker& worker) {
    syncd_round round = SYNCD_ROUND_INIT;
    EXPECT_EQ(syncd_worker_round(worker.get(), &round, nullptr), SYNCD_OK);
    return round;
  }
  ApiWorker member(ApiClient& client, const std::string& name,
                   const std::string& policy = "gather:2") {
    return client.join({.policy = policy, .name = name});
  }

  const EmbeddedServer server_{{.store = "memory"}};
  ApiClient client_{server_.address()};
  ApiClient other_{server_.address()};
  syncd_step step_a_ = SYNCD_STEP_INIT;
  syncd_step step_b_ = SYNCD_STEP_INIT;
};

TEST_F(ViewsOfC, ARoundIsTheSameForAll) {
  const ApiWorker a = member(client_, "a");
  const ApiWorker b = member(other_, "b");
  EXPECT_EQ(round_of(a).number, 0U);
  const std::string bytes("a\0\xff", 3);
  together(a, bytes, b, "b");
  EXPECT_EQ(step_a_.view, 1U);
  EXPECT_EQ(step_b_.view, 1U);
  EXPECT_EQ(step_a_.view_rank, 0U);
  EXPECT_EQ(step_b_.view_rank, 1U);
  EXPECT_EQ(step_b_.view_size, 2U);
  EXPECT_EQ(shown(step_a_), bytes);
  EXPECT_EQ(shown(step_b_), bytes);
  syncd_view* view = nullptr;
  ASSERT_EQ(syncd_worker_view(b.get(), 0, 30'000, &view, nullptr), SYNCD_OK);
  EXPECT_EQ(syncd_view_number(view), 1U);
  EXPECT_STRNE(syncd_view_reason(view), "");
  const syncd_view_member* members = nullptr;
  ASSERT_EQ(syncd_view_list(view, &members), 2U);
  EXPECT_STREQ(members[0].name, "a");
  EXPECT_EQ(std::string(static_cast<const char*>(members[0].data), members[0].data_size), bytes);
  EXPECT_STREQ(members[1].name, "b");
  EXPECT_EQ(members[1].rank, 1U);
  syncd_view_free(view);
  EXPECT_EQ(round_of(b).number, 1U);
  EXPECT_EQ(round_of(b).gone, 0U);
}

TEST_F(ViewsOfC, AViewThatIsNotKeptIsNamed) {
  const ApiWorker a = member(client_, "a", "gather:1");
  syncd_view* view = nullptr;
  Answer answer =
      answered([&](auto** error) { return syncd_worker_view(a.get(), 0, 30'000, &view, error); });
  EXPECT_EQ(answer.status, SYNCD_E_STATE);
  begin(a, "x", step_a_);
  answer =
      answered([&](auto** error) { return syncd_worker_view(a.get(), 9, 30'000, &view, error); });
  EXPECT_EQ(answer.status, SYNCD_E_INVALID);
  EXPECT_THAT(answer.message, HasSubstr("view 9"));
  EXPECT_EQ(view, nullptr);
}

TEST_F(ViewsOfC, AnOlderProgramsStepGoesOnWorking) {
  const ApiWorker a = member(client_, "a", "gather:1");
  ASSERT_EQ(syncd_worker_set_data(a.get(), "x", 1, nullptr), SYNCD_OK);
  syncd_step step = SYNCD_STEP_INIT;
  step.struct_size = offsetof(syncd_step, view);
  step.view = 77;
  step.reason = "mine";
  ASSERT_EQ(syncd_begin(a.get(), 30'000, &step, nullptr), SYNCD_OK);
  EXPECT_EQ(step.iteration, 1);
  EXPECT_EQ(step.struct_size, offsetof(syncd_step, view));
  EXPECT_EQ(step.view, 77U) << "not the library's";
  EXPECT_STREQ(step.reason, "mine");
}

TEST_F(ViewsOfC, AMemberThatBeginsBreaksTheRoundOfTheOthers) {
  Inbox inbox;
  const ApiWorker a = member(client_, "a");
  const Worker b =
      join(other_.get(),
           {.policy = "gather:2", .name = "b", .on_event = Inbox::on_event, .user_data = &inbox});
  std::thread beside([&] { begin(a, "1", step_a_); });
  ASSERT_EQ(syncd_begin(b.get(), 30'000, &step_b_, nullptr), SYNCD_OK);
  beside.join();
  ASSERT_EQ(syncd_worker_arrive(a.get(), nullptr), SYNCD_OK);
  syncd_event event = inbox.next();
  while (event.kind != SYNCD_EVENT_ROUND) event = inbox.next();
  EXPECT_EQ(event.version, 1U);
  syncd_round round = SYNCD_ROUND_INIT;
  ASSERT_EQ(syncd_worker_round(b.get(), &round, nullptr), SYNCD_OK);
  EXPECT_EQ(round.number, 1U);
  EXPECT_EQ(round.gone, 1U);
  ASSERT_EQ(syncd_begin(b.get(), 30'000, &step_b_, nullptr), SYNCD_OK);
  EXPECT_EQ(step_b_.view, 2U);
  EXPECT_EQ(shown(step_b_), "1") << "what it showed before";
}

TEST_F(ViewsOfC, AStopSaysWhoHasFinished) {
  ApiWorker a = member(client_, "a");
  const ApiWorker b = member(other_, "b");
  together(a, "a", b, "b");
  ASSERT_EQ(syncd_leave_as(a.get(), SYNCD_LEAVE_FINISHED, nullptr, 30'000, nullptr), SYNCD_OK);
  ASSERT_EQ(syncd_begin(b.get(), 30'000, &step_b_, nullptr), SYNCD_OK);
  EXPECT_EQ(step_b_.flags, static_cast<std::uint32_t>(SYNCD_STEP_STOP));
  EXPECT_THAT(step_b_.reason, testing::StartsWith("finished"));
}

TEST_F(ViewsOfC, AJobWithoutThemSaysSo) {
  const ApiWorker a = client_.join({.policy = "asp", .name = "a"});
  const Answer data =
      answered([&](auto** error) { return syncd_worker_set_data(a.get(), "x", 1, error); });
  EXPECT_EQ(data.status, SYNCD_E_UNSUPPORTED);
  EXPECT_EQ(data.message, "set_data of worker 0: job 'job' has no views");
  EXPECT_EQ(round_of(a).number, 0U);
  ASSERT_EQ(syncd_begin(a.get(), 30'000, &step_a_, nullptr), SYNCD_OK);
  EXPECT_EQ(step_a_.view, 0U);
  EXPECT_EQ(step_a_.view_data, nullptr);
  EXPECT_EQ(step_a_.reason, nullptr);
}

TEST_F(ViewsOfC, BadArgumentsAreNamed) {
  const ApiWorker a = member(client_, "a", "gather:1");
  const std::string bytes(1025, 'x');
  const Answer big = answered([&](auto** error) {
    return syncd_worker_set_data(a.get(), bytes.data(), bytes.size(), error);
  });
  EXPECT_EQ(big.status, SYNCD_E_INVALID);
  EXPECT_EQ(big.message, "syncd_worker_set_data: data_size is 1025; allowed: at most 1024");
  EXPECT_EQ(syncd_worker_set_data(a.get(), nullptr, 1, nullptr), SYNCD_E_INVALID);
  EXPECT_EQ(syncd_worker_set_data(nullptr, nullptr, 0, nullptr), SYNCD_E_INVALID);
  syncd_view* view = nullptr;
  EXPECT_EQ(syncd_worker_view(nullptr, 0, 0, &view, nullptr), SYNCD_E_INVALID);
  EXPECT_EQ(syncd_worker_view(a.get(), 0, 0, nullptr, nullptr), SYNCD_E_INVALID);
  syncd_round round = SYNCD_ROUND_INIT;
  round.struct_size = 3;
  EXPECT_EQ(syncd_worker_round(a.get(), &round, nullptr), SYNCD_E_INVALID);
  EXPECT_EQ(syncd_worker_round(nullptr, &round, nullptr), SYNCD_E_INVALID);
  EXPECT_EQ(syncd_view_number(nullptr), 0U);
  EXPECT_STREQ(syncd_view_reason(nullptr), "");
  EXPECT_EQ(syncd_view_list(nullptr, nullptr), 0U);
  syncd_view_free(nullptr);
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  options.views = 2;
  syncd_worker* worker = nullptr;
  const Answer views =
      answered([&](auto** error) { return syncd_join(client_.get(), &options, &worker, error); });
  EXPECT_EQ(views.status, SYNCD_E_INVALID);
  EXPECT_EQ(views.message, "syncd_join_options.views is 2; allowed: 0 or 1");
}

}  // namespace
}  // namespace syncd::test
