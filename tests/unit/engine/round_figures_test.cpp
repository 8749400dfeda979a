// What a gather job counts: views that are granted, what broke each round first, and where its
// workers are. One thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/engine.h"

namespace syncd {
namespace {

constexpr Micros kSecond = 1'000'000;

class RoundFiguresTest : public ::testing::Test {
 protected:
  void join(const std::string& name, const std::string& policy = "gather:2-3,last_call=1s") {
    wire::Join join;
    join.job = "train";
    join.policy = policy;
    join.name = name;
    join.host = "host-of-" + name;
    connections_.try_emplace(name, connections_.size() + 1);
    ask(name, join);
  }
  void begin(const std::string& name) {
    ask(name, wire::Arrive{refs_.at(name), static_cast<Iteration>(round_) + 1, {}});
  }
  void leave(const std::string& name, wire::LeaveKind kind) {
    wire::Leave leave{refs_.at(name)};
    leave.kind = kind;
    ask(name, leave);
  }
  void cut(const std::string& name) {
    engine_->step(Disconnected{connections_.at(name), {}, true}, now_, effects_);
    take();
  }
  void operate(wire::Body body) {
    engine_->step(Request{{1'000, ++requests_}, std::move(body)}, now_, effects_);
    take();
  }
  void pass(Micros time) {
    const Micros until = now_ + time;
    while (engine_->next_deadline() <= until) {
      now_ = std::max(now_, engine_->next_deadline());
      engine_->tick(now_, effects_);
      take();
    }
    now_ = until;
  }
  // The daemon dies; its history is on disk.
  void restart() {
    engine_.emplace(EngineOptions{});
    refs_.clear();
    std::string error;
    ASSERT_TRUE(engine_->restore(nullptr, records_, error)) << error;
    engine_->finish_restore(now_);
  }
  // a, b and c are in round 1.
  void form_first_round() {
    for (const char* name : {"a", "b", "c"}) {
      join(name);
      begin(name);
    }
    ASSERT_EQ(round_, 1U);
  }

  JobFigures figures() const {
    std::vector<JobFigures> all;
    engine_->figures(1, all);
    return all.at(0);
  }
  // "lost 1, newcomer 2"
  std::string broken() const {
    std::string text;
    for (std::size_t i = 0; i < kRoundBreaks; ++i) {
      const std::uint64_t count = figures().counters.rounds_broken[i];
      if (count == 0) continue;
      text += (text.empty() ? "" : ", ") + std::string(to_string(static_cast<RoundBreak>(i)));
      text += " " + std::to_string(count);
    }
    return text;
  }
  // Likewise "in_round 3, spare 1".
  std::string parts() const {
    std::string text;
    for (std::size_t i = 0; i < kRoundParts; ++i) {
      const std::uint32_t count = figures().rounds.workers[i];
      if (count == 0) continue;
      text += (text.empty() ? "" : ", ") + std::string(to_string(static_cast<RoundPart>(i)));
      text += " " + std::to_string(count);
    }
    return text;
  }

  std::uint64_t round_ = 0;

 private:
  void ask(const std::string& name, wire::Body body) {
    engine_->step(Request{{connections_.at(name), ++requests_}, std::move(body)}, now_, effects_);
    take();
  }
  void take() {
    records_.insert(records_.end(), effects_.records.begin(), effects_.records.end());
    for (const Record& record : effects_.records) {
      if (record.kind == RecordKind::kView) round_ = static_cast<std::uint64_t>(record.iteration);
    }
    for (const Reply& reply : effects_.replies) {
      const auto* error = std::get_if<wire::Error>(&reply.body);
      EXPECT_EQ(error, nullptr) << error->message;
      const auto* joined = std::get_if<wire::Joined>(&reply.body);
      if (joined == nullptr) continue;
      for (const auto& [name, connection] : connections_) {
        if (connection == reply.to.connection) refs_[name] = joined->worker;
      }
    }
  }

  std::optional<Engine> engine_{EngineOptions{}};
  Effects effects_;
  Micros now_ = kSecond;
  RequestId requests_ = 0;
  std::map<std::string, ConnectionId> connections_;
  std::map<std::string, wire::WorkerRef> refs_;
  std::vector<Record> records_;
};

TEST_F(RoundFiguresTest, ARoundBreaksOnce) {
  form_first_round();
  EXPECT_EQ(figures().counters.views, 1U);
  EXPECT_EQ(broken(), "");
  EXPECT_EQ(parts(), "in_round 3");
  leave("c", wire::LeaveKind::kFailed);
  EXPECT_EQ(broken(), "failed 1");
  leave("b", wire::LeaveKind::kPreempted);
  begin("a");
  EXPECT_EQ(broken(), "failed 1");
  EXPECT_EQ(parts(), "waiting 1");
  join("d");
  begin("d");
  ASSERT_EQ(round_, 2U);
  EXPECT_EQ(figures().counters.views, 2U);
  EXPECT_EQ(parts(), "in_round 2");
  cut("d");
  EXPECT_EQ(broken(), "failed 1");
  pass(2 * kSecond);  // exit_grace
  EXPECT_EQ(broken(), "lost 1, failed 1");
}

TEST_F(RoundFiguresTest, EachWayToLeaveHasItsReason) {
  form_first_round();
  leave("a", wire::LeaveKind::kPreempted);
  begin("b");
  begin("c");
  ASSERT_EQ(round_, 2U);
  leave("c", wire::LeaveKind::kLeft);
  EXPECT_EQ(broken(), "preempted 1, left 1");
}

// Also if the next round forms at once, so that nobody ever hears of a broken one.
TEST_F(RoundFiguresTest, AMemberThatBeginsAnewBreaksIt) {
  join("a", "gather:1");
  begin("a");
  begin("a");
  ASSERT_EQ(round_, 2U);
  EXPECT_EQ(broken(), "restarted 1");
  EXPECT_EQ(figures().counters.views, 2U);
}

TEST_F(RoundFiguresTest, ANewcomerIsNoRestart) {
  join("a");
  begin("a");
  join("b");
  begin("b");
  pass(kSecond);  // last_call
  ASSERT_EQ(round_, 1U);
  join("c");
  begin("c");
  EXPECT_EQ(parts(), "in_round 2, waiting 1");
  EXPECT_EQ(broken(), "");
  begin("a");
  EXPECT_EQ(broken(), "newcomer 1");
  begin("b");
  ASSERT_EQ(round_, 2U);
  EXPECT_EQ(parts(), "in_round 3");
}

TEST_F(RoundFiguresTest, AFinishedMemberBreaksNothing) {
  form_first_round();
  leave("a", wire::LeaveKind::kFinished);
  leave("b", wire::LeaveKind::kFinished);
  leave("c", wire::LeaveKind::kFinished);
  EXPECT_EQ(broken(), "");
  EXPECT_TRUE(figures().has_rounds);
  EXPECT_EQ(parts(), "");
}

TEST_F(RoundFiguresTest, SparesWaitBesideTheRound) {
  form_first_round();
  join("d");
  EXPECT_EQ(parts(), "in_round 3");  // it has not begun
  begin("d");
  EXPECT_EQ(parts(), "in_round 3, spare 1");
  // MAX falls: c has no place any more, and takes part until it begins anew.
  operate(wire::SetPolicyRequest{"train", "gather:2"});
  EXPECT_EQ(broken(), "spared 1");
  EXPECT_EQ(parts(), "in_round 3, spare 1");
  begin("c");
  EXPECT_EQ(parts(), "in_round 2, spare 2");
}

TEST_F(RoundFiguresTest, ExcludedWorkersAreNoSpares) {
  form_first_round();
  EXPECT_EQ(figures().rounds.excluded_hosts, 0U);
  operate(wire::ExcludeRequest{"train", "host-of-a", false, false, ""});
  EXPECT_EQ(broken(), "excluded 1");
  EXPECT_EQ(figures().rounds.excluded_hosts, 1U);
  EXPECT_EQ(parts(), "in_round 3");
  begin("a");
  EXPECT_EQ(parts(), "in_round 2, excluded 1");
  begin("b");
  begin("c");
  ASSERT_EQ(round_, 2U);
  EXPECT_EQ(parts(), "in_round 2, excluded 1");
  operate(wire::ExcludeRequest{"train", "host-of-a", true, false, ""});
  EXPECT_EQ(figures().rounds.excluded_hosts, 0U);
  EXPECT_EQ(parts(), "in_round 2, waiting 1");
}

// Counters begin at 0 with the daemon. A round that broke before is not broken anew.
TEST_F(RoundFiguresTest, ARestartCountsNothingAgain) {
  form_first_round();
  leave("c", wire::LeaveKind::kFailed);
  restart();
  EXPECT_EQ(broken(), "");
  EXPECT_EQ(figures().counters.views, 0U);
  EXPECT_EQ(parts(), "in_round 2");
  pass(60 * kSecond);  // a and b do not come back
  EXPECT_EQ(broken(), "");
  EXPECT_EQ(parts(), "");
}

TEST_F(RoundFiguresTest, OtherJobsHaveNoRounds) {
  join("a", "bsp");
  EXPECT_FALSE(figures().has_rounds);
}

}  // namespace
}  // namespace syncd
