// Marks and stragglers in the engine, in virtual time: an all-reduce between begin and push, in
// which every worker waits for the slowest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "tests/support/effects_text.h"

namespace syncd::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Micros kComputes = 100'000;
constexpr Micros kReduces = 20'000;

// A job whose workers exchange before they push, each on a host of two.
class Reducing {
 public:
  explicit Reducing(std::uint32_t workers, const std::string& policy = "bsp",
                    std::uint32_t notices = 0)
      : computes_(workers, kComputes) {
    JobSpec spec;
    spec.name = "train";
    spec.policy = policy;
    spec.expected_workers = workers;
    std::string error;
    EXPECT_TRUE(engine_->declare_job(spec, 0, effects_, error)) << error;
    keep();
    for (Rank rank = 0; rank < workers; ++rank) {
      wire::Join join;
      join.job = "train";
      join.name = "w" + std::to_string(rank);
      join.host = "h" + std::to_string(rank / 2);
      join.notices = notices;
      ask(rank, join);
      refs_.push_back(std::get<wire::Joined>(effects_.replies.at(0).body).worker);
    }
  }

  void iterate(int times) {
    for (int i = 0; i < times; ++i) {
      const auto workers = static_cast<Rank>(refs_.size());
      for (Rank rank = 0; rank < workers; ++rank) ask(rank, wire::Begin{refs_[rank], iteration_});
      now_ += *std::ranges::max_element(computes_) + kReduces;
      for (Rank rank = 0; rank < workers; ++rank) {
        const Micros computed_us = marks_ ? computes_[rank] : -1;
        ask(rank, wire::Push{refs_[rank], iteration_, {}, 0, 0, computed_us});
      }
      ++iteration_;
    }
  }
  void ask(Rank rank, wire::Body body) {
    engine_->step(Request{{rank + 1, next_request_++}, std::move(body)}, now_, effects_);
    keep();
    for (const Plan& plan : std::exchange(effects_.plans, {})) {
      Effects effects;
      engine_->step(PlanReady{plan.job, plan.id, plan.work->run()}, now_, effects);
      records_.insert(records_.end(), effects.records.begin(), effects.records.end());
    }
  }
  // The daemon is started again, and the workers come back to it.
  void restart(const JobSnapshot* snapshot = nullptr) {
    auto engine = std::make_unique<Engine>(EngineOptions{});
    std::string error;
    std::vector<Record> records = records_;
    if (snapshot != nullptr) {
      std::erase_if(records, [&](const Record& r) { return r.sequence <= snapshot->sequence; });
    }
    ASSERT_TRUE(engine->restore(snapshot, records, error)) << error;
    engine->finish_restore(now_);
    engine_ = std::move(engine);
    for (Rank rank = 0; rank < refs_.size(); ++rank) {
      wire::Join join;
      join.job = "train";
      join.name = "w" + std::to_string(rank);
      join.host = "h" + std::to_string(rank / 2);
      join.rank = static_cast<std::int32_t>(rank);
      join.incarnation = refs_[rank].incarnation;
      join.epoch = refs_[rank].epoch;
      join.granted = join.pushed = iteration_ - 1;
      ask(rank, join);
    }
  }
  JobSnapshot snapshot() const {
    JobSnapshot snapshot;
    EXPECT_TRUE(engine_->snapshot(1, snapshot));
    return snapshot;
  }

  std::vector<std::string> verdicts() const {
    std::vector<std::string> found;
    for (const Record& r : records_) {
      if (r.kind != RecordKind::kStragglerDetected && r.kind != RecordKind::kStragglerRecovered) {
        continue;
      }
      found.push_back(std::string(to_string(r.kind)) + " " + std::to_string(r.rank) + " from " +
                      std::to_string(r.iteration) + (r.reason.empty() ? "" : ": " + r.reason));
    }
    return found;
  }

  std::vector<Micros> computes_;
  bool marks_ = true;
  Micros now_ = 1'000'000;
  Iteration iteration_ = 0;
  std::vector<Record> records_;
  std::vector<wire::StragglerNotice> notices_;
  std::vector<ConnectionId> told_;
  Effects effects_;
  std::unique_ptr<Engine> engine_ = std::make_unique<Engine>(EngineOptions{});

 private:
  void keep() {
    records_.insert(records_.end(), effects_.records.begin(), effects_.records.end());
    for (const Notification& notice : effects_.notifications) {
      const auto* straggler = std::get_if<wire::StragglerNotice>(&notice.body);
      if (straggler == nullptr) continue;
      notices_.push_back(*straggler);
      told_.push_back(notice.connection);
    }
  }

  RequestId next_request_ = 1;
  std::vector<wire::WorkerRef> refs_;
};

TEST(StragglerWatch, NamesTheOneWhoseComputingTheOthersWaitForAndSaysWhenItHasRecovered) {
  Reducing job(8);
  job.iterate(20);
  job.computes_[3] = 2 * kComputes;
  job.iterate(10);
  ASSERT_THAT(job.verdicts(), ElementsAre("straggler_detected 3 from 20"));
  const auto found = std::ranges::find(job.records_, RecordKind::kStragglerDetected, &Record::kind);
  EXPECT_NEAR(found->factor, 2, 0.01);
  EXPECT_EQ(found->host, "h1");
  EXPECT_EQ(found->span_us, 4 * (2 * kComputes + kReduces));
  job.computes_[3] = kComputes;
  job.iterate(10);
  EXPECT_THAT(job.verdicts(),
              ElementsAre("straggler_detected 3 from 20", "straggler_recovered 3 from 30"));
}

TEST(StragglerWatch, WithoutMarksNamesNobody) {
  Reducing job(8);
  job.marks_ = false;
  job.iterate(20);
  job.computes_[3] = 2 * kComputes;
  job.iterate(20);
  EXPECT_THAT(job.verdicts(), IsEmpty());
}

TEST(StragglerWatch, SaysNothingOfFiveWorkersMinusOne) {
  for (const std::uint32_t workers : {4U, 5U}) {
    Reducing job(workers);
    job.iterate(20);
    job.computes_[3] = 3 * kComputes;
    job.iterate(20);
    EXPECT_EQ(job.verdicts().empty(), workers == 4);
  }
}

TEST(StragglerWatch, NamesAHostWhoseWorkersAreSlow) {
  Reducing job(12);
  job.iterate(20);
  job.computes_[4] = job.computes_[5] = 2 * kComputes;
  job.iterate(10);
  EXPECT_THAT(job.verdicts(), ElementsAre("straggler_detected 4 from 20",
                                          "straggler_detected 5 from 20: 2 of 2 workers of host h2 "
                                          "are slow"));
}

TEST(StragglerWatch, APhaseInTheIterationIsNoVerdict) {
  Reducing job(8, "asp");
  job.iterate(20);
  for (int i = 0; i < 20; ++i) {
    const wire::WorkerRef ref{1, 3, 1, 4};
    // As it would say it after its grant: the phase ends with the push.
    for (Rank rank = 0; rank < 8; ++rank) {
      job.ask(rank, wire::Begin{{1, rank, 1, rank + 1}, job.iteration_});
    }
    job.ask(3, wire::Phase{ref, "evaluation", 60'000'000});
    job.now_ += 3 * kComputes;
    for (Rank rank = 0; rank < 8; ++rank) {
      job.ask(rank, wire::Push{{1, rank, 1, rank + 1},
                               job.iteration_,
                               {},
                               0,
                               0,
                               rank == 3 ? 3 * kComputes : kComputes});
    }
    ++job.iteration_;
  }
  EXPECT_TRUE(job.records_.back().kind == RecordKind::kPush);
  EXPECT_EQ(std::ranges::count(job.records_, true, &Record::in_phase), 20);
  EXPECT_THAT(job.verdicts(), IsEmpty());
}

TEST(StragglerWatch, TellsTheWorkerAndTheFirstThatListens) {
  Reducing job(8, "bsp", wire::kNoticeStragglers);
  job.iterate(20);
  job.computes_[3] = 2 * kComputes;
  job.iterate(10);
  EXPECT_THAT(job.told_, ElementsAre(4, 1));
  EXPECT_EQ(job.notices_[1].rank, 3U);
  EXPECT_EQ(job.notices_[1].worker.rank, 0U);
  EXPECT_FALSE(job.notices_[1].recovered);
  job.computes_[0] = 2 * kComputes;
  job.iterate(10);
  EXPECT_THAT(job.told_, ElementsAre(4, 1, 1)) << "once where both are one";
  Reducing silent(8);
  silent.iterate(20);
  silent.computes_[3] = 2 * kComputes;
  silent.iterate(10);
  EXPECT_THAT(silent.told_, IsEmpty());
}

TEST(StragglerWatch, ShowsWhoIsSlow) {
  Reducing job(8);
  job.iterate(20);
  job.computes_[3] = 2 * kComputes;
  job.iterate(10);
  job.ask(0, wire::JobsRequest{});
  EXPECT_THAT(to_text(job.effects_.replies.at(0).body),
              HasSubstr("note=\"slow: 3 (2.0 times)\" stragglers=1"));
  job.ask(0, wire::WorkersRequest{"train", 3});
  EXPECT_THAT(to_text(job.effects_.replies.at(0).body),
              HasSubstr("computed=0.2s exchange=0.02s straggler_since="));
  // Who leaves is slow no more.
  job.ask(3, wire::Leave{{1, 3, 1, 4}});
  job.ask(0, wire::JobsRequest{});
  EXPECT_THAT(to_text(job.effects_.replies.at(0).body), Not(HasSubstr("slow")));
}

// Behind an all-reduce all intervals are alike; marks show whose iterations are short.
TEST(Forecasts, OfElasticBspCountTheWaitsInAnExchangeAsNone) {
  for (const bool marks : {true, false}) {
    Reducing job(5, "elastic_bsp:6");
    job.marks_ = marks;
    job.computes_[0] = 3 * kComputes;
    job.iterate(3);
    const auto plan = std::ranges::find(job.records_, RecordKind::kPlan, &Record::kind);
    ASSERT_NE(plan, job.records_.end());
    ASSERT_EQ(plan->values.size(), 10U);
    // Rank and target in turn.
    for (std::size_t rank = 1; rank < 5; ++rank) {
      EXPECT_EQ(plan->values[2 * rank + 1] > plan->values[1], marks) << "rank " << rank;
    }
  }
}

// Noise, spikes, and workers that are slow for a while, at random.
void disturb(Reducing& job, std::mt19937_64& random) {
  std::lognormal_distribution<double> noise(0, 0.15);
  for (std::size_t rank = 0; rank < job.computes_.size(); ++rank) {
    const double spike = random() % 64 == 0 ? 6 : 1;
    const bool is_slow = job.iteration_ / 25 % 3 == static_cast<Iteration>(rank % 5);
    job.computes_[rank] =
        static_cast<Micros>(kComputes * noise(random) * spike * (is_slow ? 2.5 : 1));
  }
}

// The whole history gives the same verdicts as if the daemon had run on; a snapshot keeps who is
// slow, and soon finds the others.
TEST(StragglerWatch, ARestartGivesTheSameVerdicts) {
  std::size_t verdicts = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const auto run = [&](int restart_at, bool from_snapshot) {
      Reducing job(16, seed % 2 == 0 ? "bsp" : "asp");
      std::mt19937_64 random(seed);
      for (int k = 0; k < 120; ++k) {
        if (k == restart_at) {
          const JobSnapshot snapshot = job.snapshot();
          job.restart(from_snapshot ? &snapshot : nullptr);
          const JobSnapshot after = job.snapshot();
          for (std::size_t i = 0; i < after.workers.size(); ++i) {
            EXPECT_EQ(after.workers[i].slow_since_us, snapshot.workers[i].slow_since_us);
            EXPECT_EQ(after.workers[i].slow_factor, snapshot.workers[i].slow_factor);
            EXPECT_EQ(after.workers[i].usual, snapshot.workers[i].usual);
            EXPECT_EQ(after.workers[i].exchange_us, snapshot.workers[i].exchange_us);
          }
          EXPECT_EQ(after.noise, snapshot.noise);
        }
        disturb(job, random);
        job.iterate(1);
      }
      return job.verdicts();
    };
    const auto whole = run(-1, false);
    const int at = 20 + static_cast<int>(seed * 7 % 90);
    EXPECT_EQ(run(at, false), whole) << "seed " << seed;
    // A few more or less near the restart.
    const auto continued = run(at, true);
    EXPECT_LE(std::max(whole.size(), continued.size()) - std::min(whole.size(), continued.size()),
              6U)
        << "seed " << seed;
    verdicts += whole.size();
  }
  EXPECT_GT(verdicts, 200U) << "what there is to compare";
}

}  // namespace
}  // namespace syncd::test
