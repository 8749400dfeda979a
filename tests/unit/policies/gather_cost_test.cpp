// What gather looks at with very many members, counted, not timed: each look at a worker's facts is
// one step. A host is excluded, so that whoever goes through all workers looks at each.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/core/engine/policy.h"

namespace syncd {
namespace {

constexpr Rank kWorkers = 10'000;
// A begin, or an explanation, may take so many looks; going through all takes 10,000.
constexpr std::uint64_t kLooksMax = 20;

class CountingHost final : public PolicyHost {
 public:
  CountingHost() : workers_(kWorkers) {
    for (Rank rank = 0; rank < kWorkers; ++rank) {
      Worker& worker = workers_[rank];
      worker.rank = rank;
      worker.state = WorkerState::kRunning;
      worker.incarnation = rank + 1;
      worker.name = "n" + std::to_string(rank);
      worker.host = "h" + std::to_string(rank);
      active_.push_back(rank);
    }
  }
  Worker& at(Rank rank) { return workers_[rank]; }
  std::uint64_t take_looks() { return std::exchange(looks_, 0); }
  const std::vector<Rank>& granted() const { return granted_; }
  Micros timer() const { return timer_; }
  void pass(Micros span) { now_ += span; }

  Micros now() const override { return now_; }
  bool replaying() const override { return false; }
  const Worker& worker(Rank rank) const override {
    ++looks_;
    return workers_[rank];
  }
  const std::vector<Rank>& active() const override { return active_; }
  const RelativeClocks& clocks() const override { return clocks_; }
  Clock highest_relative() const override { return 0; }
  const RelativeClocks& exchanges() const override { return clocks_; }
  std::uint64_t pushes() const override { return 0; }
  std::uint64_t pushes_by_others_since_pull(Rank) const override { return 0; }
  RankList active_below(Clock) const override { return {}; }
  void grant(Rank rank, const Grant&) override {
    workers_[rank].waiting.reset();
    granted_.push_back(rank);
  }
  void advance(Rank, Clock) override {}
  bool resync(Rank) override { return false; }
  void answer_targets(Rank, std::vector<Rank>) override {}
  void answer_collect(Rank, std::vector<PeerUpdate>) override {}
  void preset_collect(Rank, Iteration, std::vector<PeerUpdate>) override {}
  void set_timer(std::int64_t, std::uint32_t, Micros at) override { timer_ = at; }
  void cancel_timer(std::int64_t, std::uint32_t) override { timer_ = kNever; }
  std::uint64_t request_plan(std::shared_ptr<const PlanWork>) override { return 0; }
  void note(Fact fact) override {
    if (fact.kind != RecordKind::kView) return;
    view_ = {static_cast<std::uint64_t>(fact.iteration), fact.reason, {}};
    for (const std::int64_t value : fact.values) {
      const Worker& worker = workers_[static_cast<std::size_t>(value)];
      view_.members.push_back({worker.rank, worker.incarnation, 0, worker.name, worker.host, {}});
    }
  }
  // Of the round's members.
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const ViewMember& member : view_.members) out.push_back(member.name);
    return out;
  }
  const View* view() const override { return view_.number == 0 ? nullptr : &view_; }

 private:
  std::vector<Worker> workers_;
  std::vector<Rank> active_, granted_;
  RelativeClocks clocks_;
  View view_;
  Micros now_ = 1'000'000;
  Micros timer_ = kNever;
  mutable std::uint64_t looks_ = 0;
};

class GatherCost : public ::testing::Test {
 protected:
  void make(const std::string& text) {
    std::string error;
    policy_ = make_policy(text, error);
    ASSERT_NE(policy_, nullptr) << error;
    policy_->on_start(host_);
    EXPECT_EQ(policy_->exclude(host_, {"train", "elsewhere", false, false, ""}), "");
  }
  void begin(Rank rank) {
    host_.at(rank).waiting.emplace();
    host_.at(rank).waiting->since = host_.now();
    host_.take_looks();
    policy_->on_begin(host_, rank);
  }
  // True: it took few looks.
  bool begins_cheaply(Rank rank) {
    begin(rank);
    return host_.take_looks() <= kLooksMax;
  }
  // Everybody who waits asks why.
  void expect_cheap_explanations(Rank first) {
    policy_->explain(host_, first);  // makes the lists that all are told
    host_.take_looks();
    for (Rank rank = first; rank < kWorkers; ++rank) {
      if (!host_.at(rank).waiting) continue;
      const Reason reason = policy_->explain(host_, rank);
      policy_->describe(host_, rank);
      ASSERT_FALSE(reason.text.empty());
      ASSERT_LE(host_.take_looks(), kLooksMax) << rank;
    }
  }
  void all_begin() {
    for (Rank rank = 0; rank < kWorkers; ++rank) begin(rank);
    ASSERT_EQ(host_.granted().size(), kWorkers);
  }

  CountingHost host_;
  std::unique_ptr<Policy> policy_;
};

TEST_F(GatherCost, NewcomersWait) {
  make("gather:10000");
  for (Rank rank = 0; rank + 1 < kWorkers; ++rank) {
    host_.pass(7);
    ASSERT_TRUE(begins_cheaply(rank)) << rank;
  }
  expect_cheap_explanations(0);
  EXPECT_TRUE(host_.granted().empty());
  EXPECT_EQ(host_.timer(), host_.now() + 2'000'000) << "last_call from the latest arrival";
  begin(kWorkers - 1);  // forms the round, which goes through all
  EXPECT_EQ(host_.granted().size(), kWorkers);
}

TEST_F(GatherCost, MembersBeginAnew) {
  make("gather:10000,regroup_wait=5s");
  all_begin();
  for (Rank rank = 0; rank + 1 < kWorkers; ++rank) {
    host_.pass(7);
    ASSERT_TRUE(begins_cheaply(rank)) << rank;
    // Now and then one is told of it, and asks why it waits.
    if (rank % 1'000 == 999) expect_cheap_explanations(rank - 100);
  }
  const Reason reason = policy_->explain(host_, 0);
  EXPECT_EQ(reason.waiting_for.text(), "9999");
  EXPECT_NE(reason.text.find("round 2 waits for 'n9999', which still ends its workers"),
            std::string::npos)
      << reason.text;
  EXPECT_EQ(policy_->round().gone, kWorkers - 1);
}

TEST_F(GatherCost, LostOnesComeBack) {
  make("gather:1-10000,regroup_wait=60s");
  all_begin();
  const std::vector<std::string> names = host_.names();
  for (Rank rank = 0; rank < kWorkers; ++rank) {
    Record lost;
    lost.kind = RecordKind::kWorkerLost;
    lost.rank = rank;
    lost.time_us = host_.now();
    host_.take_looks();
    policy_->on_gone(host_, lost);
    ASSERT_LE(host_.take_looks(), kLooksMax) << rank;
    host_.pass(1);
  }
  for (Rank rank = 0; rank + 1 < kWorkers; ++rank) {
    ++host_.at(rank).incarnation;
    ASSERT_TRUE(begins_cheaply(rank)) << rank;
  }
  begin(kWorkers - 1);
  ASSERT_EQ(host_.granted().size(), 2 * kWorkers);
  EXPECT_EQ(host_.names(), names) << "lost ones keep their places";
}

TEST_F(GatherCost, ARestartBringsThemBack) {
  make("gather:10000");
  all_begin();
  policy_->on_restored(host_);
  for (Rank rank = 0; rank < kWorkers; ++rank) {
    host_.take_looks();
    policy_->on_return(host_, rank);
    ASSERT_LE(host_.take_looks(), kLooksMax) << rank;
  }
  for (Rank rank = 0; rank + 1 < kWorkers; ++rank) ASSERT_TRUE(begins_cheaply(rank)) << rank;
  expect_cheap_explanations(0);
}

}  // namespace
}  // namespace syncd
