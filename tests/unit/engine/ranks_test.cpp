// What a rank costs: memory and work go with how many workers a job has and with what is shown,
// never with the largest rank or the number of workers that a client says. Bytes asked for are
// counted, which also shows work that goes over an array made for it. One thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/missing_ranks.h"
#include "daemon/core/engine/rank_map.h"
#include "tests/support/property_runs.h"
#include "tests/support/random.h"
#include "tests/unit/proto/allocation_count.h"

namespace syncd::test {
namespace {

constexpr Rank kLastRank = limits::kWorkersPerJobMax - 1;

template <class F>
std::size_t bytes_of(F f) {
  const std::size_t before = allocated_bytes();
  f();
  return allocated_bytes() - before;
}

// ---- values by rank

TEST(RankMap, IsAMapInRankOrder) {
  for (std::uint64_t seed = 0; seed < 200 * property_runs(); ++seed) {
    Random random(seed);
    RankMap<std::uint64_t> map;
    std::map<Rank, std::uint64_t> model;
    const std::uint64_t ranks = 1 + random.below(400);
    const bool strays = random.one_in(2);
    for (int i = 0; i < 300; ++i) {
      Rank rank = static_cast<Rank>(random.below(ranks));
      if (strays && random.one_in(4)) rank = kLastRank - rank;
      if (random.one_in(2)) {
        const std::uint64_t value = random.next();
        EXPECT_EQ(map.get(rank, value), model.try_emplace(rank, value).first->second);
      }
      const auto known = model.find(rank);
      const std::uint64_t* found = map.find(rank);
      ASSERT_EQ(found != nullptr, known != model.end()) << "seed " << seed << ", rank " << rank;
      if (found == nullptr) continue;
      ASSERT_EQ(*found, known->second) << "seed " << seed;
    }
    ASSERT_EQ(map.size(), model.size());
    ASSERT_EQ(map.limit(), model.empty() ? 0 : model.rbegin()->first + 1);
    std::vector<std::pair<Rank, std::uint64_t>> all;
    map.for_each([&](Rank rank, std::uint64_t value) { all.emplace_back(rank, value); });
    ASSERT_EQ(all, decltype(all)(model.begin(), model.end())) << "seed " << seed;
    const auto from = static_cast<Rank>(random.below(ranks));
    std::vector<Rank> three;
    map.walk_from(from, [&](Rank rank, std::uint64_t) {
      three.push_back(rank);
      return three.size() < 3;
    });
    std::vector<Rank> expected;
    for (auto it = model.lower_bound(from); it != model.end() && expected.size() < 3; ++it) {
      expected.push_back(it->first);
    }
    ASSERT_EQ(three, expected) << "seed " << seed;
  }
}

TEST(RankMap, AStrayRankCostsNoArray) {
  RankMap<std::uint64_t> map;
  EXPECT_LT(bytes_of([&] { map.get(kLastRank) = 1; }), 1'000U);
  EXPECT_LT(bytes_of([&] { map.get(0) = 1; }), 1'000U);
}

TEST(RankMap, EveryRankCostsLittleInWhateverOrder) {
  constexpr Rank kRanks = 100'000;
  std::vector<Rank> up;
  for (Rank rank = 0; rank < kRanks; ++rank) up.push_back(rank);
  std::vector<Rank> down(up.rbegin(), up.rend());
  std::vector<Rank> shuffled = up;
  Random(1).shuffle(shuffled);
  std::vector<Rank> sparse = up;
  for (Rank& rank : sparse) rank *= 9;
  for (const auto* order : {&up, &down, &shuffled, &sparse}) {
    RankMap<std::uint64_t> map;
    const std::size_t bytes = bytes_of([&] {
      for (const Rank rank : *order) map.get(rank);
    });
    // A slot takes 16 bytes, an array that grows takes twice that, and a node of the tree 48.
    EXPECT_LT(bytes, (2 * 16 * RankMap<std::uint64_t>::kSlotsPerValue + 48) * kRanks);
    EXPECT_EQ(map.size(), kRanks);
  }
}

// ---- whom the start waits for

class MissingModel {
 public:
  explicit MissingModel(std::uint32_t expected) : expected_(expected) {}
  std::map<Rank, bool> members;  // whether they are ready

  std::vector<Rank> all() const {
    std::uint32_t ready = 0;
    for (const auto& [rank, is_ready] : members) ready += is_ready ? 1 : 0;
    const std::size_t wanted = expected_ > ready ? expected_ - ready : 0;
    std::set<Rank> missing;
    for (const auto& [rank, is_ready] : members) {
      if (!is_ready && missing.size() < wanted) missing.insert(rank);
    }
    for (Rank rank = 0; missing.size() < wanted; ++rank) {
      if (!members.contains(rank)) missing.insert(rank);
    }
    return {missing.begin(), missing.end()};
  }

 private:
  std::uint32_t expected_;
};

TEST(MissingRanks, AreThoseThatASearchFinds) {
  for (std::uint64_t seed = 0; seed < 300 * property_runs(); ++seed) {
    Random random(seed);
    const auto expected = static_cast<std::uint32_t>(1 + random.below(20));
    const std::uint64_t ranks = 1 + random.below(30);
    MissingRanks missing(expected);
    MissingModel model(expected);
    for (int i = 0; i < 200; ++i) {
      const auto rank = static_cast<Rank>(random.below(ranks));
      const auto member = model.members.find(rank);
      if (member == model.members.end()) {
        missing.join(rank);
        model.members[rank] = false;
      } else if (member->second) {
        missing.unready(rank);
        member->second = false;
      } else if (random.one_in(2)) {
        missing.ready(rank);
        member->second = true;
      } else {
        missing.leave(rank);
        model.members.erase(member);
      }
      const std::vector<Rank> all = model.all();
      ASSERT_EQ(missing.count(), all.size()) << "seed " << seed << ", step " << i;
      for (const std::size_t ranges : {1, 2, 32}) {
        ASSERT_EQ(compress_ranges(missing.first(ranges), missing.count()),
                  compress_ranks(all, ranges))
            << "seed " << seed << ", step " << i;
      }
    }
  }
}

// ---- a job whose workers have the last of its ranks

// Two workers, of the last ranks, whose job starts with them.
class Strays {
 public:
  Strays(const std::string& policy, std::uint32_t expected) : expected_(expected) {
    wire::CreateJobRequest create;
    create.name = "train";
    create.policy = policy;
    create.expected_workers = expected;
    create.min_workers = 1;
    expect<wire::Ok>(create);
    for (int i = 0; i < 2; ++i) join(static_cast<std::int32_t>(expected) - 2 + i);
    for (const wire::WorkerRef& ref : refs_) ask(wire::Begin{ref, 0});
    look();
    pass(100'000'000);
    EXPECT_TRUE(engine_.snapshot(1, snapshot_));
    EXPECT_EQ(snapshot_.state, JobState::kRunning) << policy;
  }

  // Some iterations of the loop, in which one waits for the other, and then the daemon's end.
  void run() {
    for (Iteration k = 0; k < 4; ++k) {
      for (const wire::WorkerRef& ref : refs_) {
        ask(wire::Begin{ref, k});
        pass(2'000);
        ask(wire::Targets{ref, k});
        ask(wire::Push{ref, k, 0.5, 1, 1});
        ask(wire::Collect{ref, k});
        ask(wire::Consumed{ref, k});
        look();
      }
    }
    EXPECT_GT(engine_.stats().pushes, 2U);
    JobSnapshot snapshot;
    EXPECT_TRUE(engine_.snapshot(1, snapshot));
    restore(&snapshot, {});
    restore(nullptr, records_);
    ask(wire::Leave{refs_[0]});
    ask(wire::StopJobRequest{"train", ""});
    look();
  }

 private:
  void restore(const JobSnapshot* snapshot, std::span<const Record> records) {
    Engine again({});
    std::string error;
    EXPECT_TRUE(again.restore(snapshot, records, error)) << error;
    again.finish_restore(now_);
    Effects effects;
    again.tick(now_, effects);
    JobSnapshot restored;
    EXPECT_TRUE(again.snapshot(1, restored));
    EXPECT_EQ(restored.workers.size(), 2U);
  }

  void join(std::int32_t rank) {
    wire::Join join;
    join.job = "train";
    join.name = "w" + std::to_string(refs_.size());
    join.host = "h";
    join.rank = rank;
    join.world_size = expected_;
    refs_.push_back(expect<wire::Joined>(join).worker);
  }
  // All that shows it.
  void look() {
    expect<wire::JobsReply>(wire::JobsRequest{});
    const auto workers = expect<wire::WorkersReply>(wire::WorkersRequest{"train"});
    EXPECT_EQ(workers.workers.size(), 2U);
    for (const wire::WorkerRef& ref : refs_) {
      ask(wire::Explain{ref});
      ask(wire::MembersRequest{ref});
    }
    std::vector<JobFigures> figures;
    engine_.figures(1, figures);
  }
  template <class T>
  T expect(wire::Body body) {
    ask(std::move(body));
    return std::get<T>(effects_.replies.at(0).body);
  }
  void ask(wire::Body body) {
    engine_.step(Request{{1, next_request_++}, std::move(body)}, now_, effects_);
    keep();
  }
  void pass(Micros time) {
    now_ += time;
    engine_.tick(now_, effects_);
    keep();
  }
  void keep() {
    records_.insert(records_.end(), effects_.records.begin(), effects_.records.end());
    // As the daemon does, on another thread.
    const std::vector<Plan> plans = effects_.plans;
    for (const Plan& plan : plans) {
      engine_.step(PlanReady{plan.job, plan.id, plan.work->run()}, now_, effects_);
      keep();
    }
  }

  std::uint32_t expected_;
  Engine engine_{{}};
  Effects effects_;
  Micros now_ = 0;
  RequestId next_request_ = 1;
  std::vector<wire::WorkerRef> refs_;
  std::vector<Record> records_;
  JobSnapshot snapshot_;
};

TEST(StrayRanks, CostWhatOthersDoUnderEveryPolicy) {
  for (const char* policy :
       {"asp", "bsp", "bsp:2,backup=0", "ssp:1", "dssp:1-3", "elastic_bsp:2",
        "specsync:adaptive+asp", "specsync:fixed,5,0.1+ssp:1", "naive_wait:1+bsp",
        "hop:ring,max_ig=1,backup=1", "hop:ring_based,staleness=2", "hop:star",
        "hop:clustered,backup.3-900=2", "notify_ack:root_expander", "notify_ack:halton"}) {
    const auto cost = [&](std::uint32_t expected) {
      return bytes_of([&] { Strays(policy, expected).run(); });
    };
    const std::size_t few = cost(1'000);
    const std::size_t many = cost(limits::kWorkersPerJobMax);
    // Longer numbers in texts.
    EXPECT_LT(many, few + few / 10 + 1'000) << policy;
    EXPECT_LT(many, 1'000'000U) << policy;
  }
}

TEST(StrayRanks, AGraphThatNoJobTakesIsRefusedAsFastForAMillion) {
  const auto cost = [](std::uint32_t expected) {
    Engine engine({});
    Effects effects;
    wire::CreateJobRequest create;
    create.name = "train";
    create.policy = "hop:halton";
    create.expected_workers = expected;
    return bytes_of([&] {
      engine.step(Request{{1, 1}, create}, 0, effects);
      EXPECT_THAT(std::get<wire::Error>(effects.replies.at(0).body).message,
                  ::testing::HasSubstr("not strongly connected"));
    });
  };
  EXPECT_LT(cost(999'998), cost(6) + 1'000);
}

// ---- listings

// A job in which so many workers have asked to begin and so many others have not.
std::size_t listing_cost(std::uint32_t expected, std::uint32_t ready, std::uint32_t others) {
  Engine engine({});
  Effects effects;
  RequestId next = 1;
  for (std::uint32_t i = 0; i < ready + others; ++i) {
    wire::Join join;
    join.job = "train";
    join.name = "w" + std::to_string(i);
    join.host = "h";
    join.world_size = expected;
    engine.step(Request{{1, next++}, join}, 0, effects);
    const wire::WorkerRef ref = std::get<wire::Joined>(effects.replies.at(0).body).worker;
    if (i < ready) engine.step(Request{{1, next++}, wire::Begin{ref, 0}}, 0, effects);
  }
  return bytes_of([&] {
    engine.step(Request{{1, next++}, wire::JobsRequest{}}, 0, effects);
    const auto jobs = std::get<wire::JobsReply>(effects.replies.at(0).body);
    EXPECT_THAT(jobs.jobs.at(0).note, ::testing::HasSubstr("waiting for "));
    engine.step(Request{{1, next++}, wire::WorkersRequest{"train"}}, 0, effects);
    const auto workers = std::get<wire::WorkersReply>(effects.replies.at(0).body);
    EXPECT_THAT(workers.workers.at(0).reason, ::testing::HasSubstr("workers are ready"));
  });
}

// A running job, half of whose workers wait for the other half.
std::size_t waits_cost(const std::string& policy, std::uint32_t workers) {
  Engine engine({});
  Effects effects;
  RequestId next = 1;
  std::vector<wire::WorkerRef> refs;
  for (std::uint32_t i = 0; i < workers; ++i) {
    wire::Join join;
    join.job = "train";
    join.policy = policy;
    join.name = "w" + std::to_string(i);
    join.host = "h";
    join.world_size = workers;
    engine.step(Request{{1, next++}, join}, 0, effects);
    refs.push_back(std::get<wire::Joined>(effects.replies.at(0).body).worker);
  }
  for (const wire::WorkerRef& ref : refs)
    engine.step(Request{{1, next++}, wire::Begin{ref, 0}}, 0, effects);
  for (std::uint32_t i = 0; i < workers / 2; ++i) {
    for (Iteration k = 0; k < 2; ++k) {  // the second one for who is not held at once
      engine.step(Request{{1, next++}, wire::Push{refs[i], k, {}, 0, 0}}, 0, effects);
      engine.step(Request{{1, next++}, wire::Begin{refs[i], k + 1}}, 0, effects);
    }
  }
  return bytes_of([&] {
    engine.step(Request{{1, next++}, wire::WorkersRequest{"train"}}, 0, effects);
    const auto reply = std::get<wire::WorkersReply>(effects.replies.at(0).body);
    EXPECT_EQ(reply.workers.at(0).waiting_for,
              std::to_string(workers / 2) + "-" + std::to_string(workers - 1));
  });
}

TEST(Listings, OfWorkersThatWaitCostNoMoreForMore) {
  for (const char* policy : {"bsp", "ssp:0", "dssp:0-3", "elastic_bsp:1"}) {
    const std::size_t few = waits_cost(policy, 1'000);
    EXPECT_LT(waits_cost(policy, 10'000), few + few / 10 + 1'000) << policy;
  }
}

TEST(Listings, CostWhatTheyShow) {
  const std::size_t few = listing_cost(200, 60, 60);
  EXPECT_LT(listing_cost(limits::kWorkersPerJobMax, 60, 60), few + few / 10 + 1'000);
  // Pages are full with fewer workers than these.
  const std::size_t full = listing_cost(20'000, 1'000, 100);
  EXPECT_LT(listing_cost(20'000, 10'000, 1'000), full + full / 10 + 1'000);
}

}  // namespace
}  // namespace syncd::test
