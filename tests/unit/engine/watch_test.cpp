// A ring of workers under observation, in virtual time: they compute, exchange until the slowest has
// come, push, and begin again. Whoever is made to hang must be named, at its time and to all; nobody
// may be named while all only vary.
//
//   SYNCD_PROPERTY_RUNS=<n>  n times as many runs
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "tests/support/property_runs.h"
#include "tests/support/random.h"

namespace syncd::test {
namespace {

constexpr Micros kSecond = 1'000'000;
constexpr Micros kReport = kSecond;  // what a client of a long hang_after waits before it says so

class Ring {
 public:
  Ring(std::uint32_t workers, Micros hang_after_us) : refs_(workers) {
    wire::Join join;
    join.job = "ring";
    join.policy = "asp";
    join.world_size = workers;
    join.hang_after_us = hang_after_us;
    join.notices = wire::kNoticeHang;
    for (std::uint32_t rank = 0; rank < workers; ++rank) {
      join.name = "w" + std::to_string(rank);
      join.host = "node-" + std::to_string(rank);
      join.rank = static_cast<std::int32_t>(rank);
      ask(rank, join);
    }
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(refs_.size()); }
  Micros now() const { return now_; }
  Iteration iteration() const { return iteration_; }
  void pass_until(Micros time) {
    while (engine_.next_deadline() <= time) {
      now_ = std::max(now_, engine_.next_deadline());
      engine_.tick(now_, effects_);
      take();
    }
    now_ = std::max(now_, time);
  }

  void begin_all() {
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      ask(rank, wire::Begin{refs_[rank], iteration_});
    }
  }
  // From `now` on: who has computed says that it exchanges, again and again, until `end`. Those of
  // whom compute_us is kNever never do, and the iteration does not end.
  void run_until(const std::vector<Micros>& compute_us, Micros end) {
    const Micros start = now_;
    std::multimap<Micros, std::uint32_t> says;
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      if (compute_us[rank] != kNever) says.emplace(start + compute_us[rank] + kReport, rank);
    }
    while (!says.empty() && says.begin()->first < end) {
      const auto [at, rank] = *says.begin();
      says.erase(says.begin());
      pass_until(at);
      ask(rank, wire::Exchanging{refs_[rank], iteration_, at - start - compute_us[rank]});
      says.emplace(at + kReport, rank);
    }
    pass_until(end);
  }
  void iterate(const std::vector<Micros>& compute_us) {
    begin_all();
    run_until(compute_us, now_ + *std::max_element(compute_us.begin(), compute_us.end()));
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      ask(rank, wire::Push{refs_[rank], iteration_, {}, 0, 0});
    }
    ++iteration_;
  }
  void cut(std::uint32_t rank) {
    engine_.step(Disconnected{rank + 1}, now_, effects_);
    take();
  }
  void leave(std::uint32_t rank) { ask(rank, wire::Leave{refs_[rank]}); }

  std::uint64_t hangs() const {
    std::vector<JobFigures> figures;
    engine_.figures(1, figures);
    return figures.at(0).counters.hangs;
  }

  struct Told {
    Micros at = 0;
    std::uint32_t whom = 0;
    std::int32_t rank = 0;
    std::string text;
  };
  std::vector<Told> told;
  std::size_t records = 0;

 private:
  void ask(std::uint32_t rank, wire::Body body) {
    engine_.step(Request{{rank + 1, ++requests_}, std::move(body)}, now_, effects_);
    take();
  }
  void take() {
    for (const Reply& reply : effects_.replies) {
      if (const auto* joined = std::get_if<wire::Joined>(&reply.body)) {
        refs_[joined->worker.rank] = joined->worker;
      }
      const auto* error = std::get_if<wire::Error>(&reply.body);
      ASSERT_EQ(error, nullptr) << error->message;
    }
    for (const Notification& notice : effects_.notifications) {
      const auto* hang = std::get_if<wire::HangNotice>(&notice.body);
      if (hang == nullptr) continue;
      told.push_back({now_, hang->worker.rank, hang->rank, hang->text});
    }
    for (const Record& record : effects_.records) records += record.kind == RecordKind::kHang;
  }

  Engine engine_{EngineOptions{}};
  Effects effects_;
  Micros now_ = 0;
  Iteration iteration_ = 0;
  std::uint64_t requests_ = 0;
  std::vector<wire::WorkerRef> refs_;
};

double uniform(Random& random) {
  return static_cast<double>(random.below(1U << 30)) / (1U << 30);
}
// Lognormal with this sigma, and in one of 64 iterations six times as much.
double noise(Random& random, double sigma) {
  const double normal = std::sqrt(-2 * std::log(1 - uniform(random))) *
                        std::cos(2 * 3.14159265358979 * uniform(random));
  return std::exp(sigma * normal) * (random.one_in(64) ? 6 : 1);
}

TEST(WatchTest, NobodyIsNamedWhileStallsAreBelowTheThreshold) {
  for (std::uint64_t seed = 1; seed <= 100 * property_runs(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Micros hang_after = random.between(4, 60) * kSecond;
    Ring ring(static_cast<std::uint32_t>(random.between(2, 12)), hang_after);
    for (int i = 0; i < 30; ++i) {
      std::vector<Micros> compute(ring.size());
      for (Micros& one : compute) one = random.between(1, hang_after - 1);
      if (random.one_in(3)) {  // the longest stall that is allowed
        compute.assign(ring.size(), 0);
        compute[random.below(ring.size())] = hang_after - 1;
      }
      ring.iterate(compute);
    }
    ASSERT_EQ(ring.hangs(), 0U);
    ASSERT_TRUE(ring.told.empty()) << ring.told.front().text;
  }
}

TEST(WatchTest, WhoHangsIsNamedToAllWhenTheFirstHasWaitedSoLong) {
  for (std::uint64_t seed = 1; seed <= 200 * property_runs(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Micros hang_after = random.between(4, 60) * kSecond;
    Ring ring(static_cast<std::uint32_t>(random.between(3, 12)), hang_after);
    const auto draw = [&] {
      std::vector<Micros> compute(ring.size());
      for (Micros& one : compute) one = random.between(1, kSecond);
      return compute;
    };
    for (std::int64_t i = random.between(0, 5); i > 0; --i) ring.iterate(draw());
    std::vector<Micros> compute = draw();
    const auto guilty = static_cast<std::uint32_t>(random.below(ring.size()));
    compute[guilty] = kNever;
    const Micros start = ring.now();
    const Micros first = start + *std::min_element(compute.begin(), compute.end());
    const bool computes = random.one_in(2);  // or else its machine has lost the network
    ring.begin_all();
    if (!computes) ring.cut(guilty);
    ring.run_until(compute, first + hang_after - 1);
    ASSERT_EQ(ring.hangs(), 0U);
    ring.run_until(std::vector<Micros>(ring.size(), kNever), first + hang_after);
    ASSERT_EQ(ring.hangs(), 1U);
    ASSERT_EQ(ring.records, 1U);
    std::set<std::uint32_t> told;
    for (const Ring::Told& one : ring.told) {
      EXPECT_EQ(one.rank, static_cast<std::int32_t>(guilty)) << one.text;
      EXPECT_EQ(one.at, first + hang_after);
      EXPECT_NE(one.text.find("waiting for worker " + std::to_string(guilty) + " ("),
                std::string::npos)
          << one.text;
      told.insert(one.whom);
    }
    EXPECT_EQ(told.size(), ring.size() - (computes ? 0U : 1U));
  }
}

TEST(WatchTest, WhoHasLeftIsNamedAtOnce) {
  Ring ring(4, 60 * kSecond);
  ring.iterate({1, 2, 3, 4});
  ring.begin_all();
  ring.run_until({kSecond, kSecond, kNever, kSecond}, ring.now() + 3 * kSecond);
  EXPECT_EQ(ring.hangs(), 0U);
  ring.leave(2);
  ring.pass_until(ring.now());
  EXPECT_EQ(ring.hangs(), 1U);
  ASSERT_EQ(ring.told.size(), 3U);
  EXPECT_EQ(ring.told[0].text, "waiting for worker 2 (node-2), which left just now");
}

// With machines that differ by up to 1.5 for good. The threshold is the daemon's own.
TEST(WatchTest, ADayOfTrainingWithNoiseAndSpikesGivesNoAlarm) {
  for (const Micros typical : {kSecond, 10 * kSecond, 60 * kSecond}) {
    SCOPED_TRACE(typical);
    Random random(static_cast<std::uint64_t>(typical));
    Ring ring(8, kAutoSpan);
    std::vector<double> speed(ring.size());
    for (double& one : speed) one = 1 + 0.5 * uniform(random);
    Micros longest_wait = 0;
    while (ring.now() < Micros{24} * 3600 * kSecond) {
      std::vector<Micros> compute(ring.size());
      for (std::uint32_t rank = 0; rank < ring.size(); ++rank) {
        const double span = static_cast<double>(typical) * speed[rank] * noise(random, 0.1);
        compute[rank] = static_cast<Micros>(span);
      }
      const auto [least, most] = std::minmax_element(compute.begin(), compute.end());
      longest_wait = std::max(longest_wait, *most - *least);
      ring.iterate(compute);
      ASSERT_EQ(ring.hangs(), 0U) << ring.told.front().text;
    }
    EXPECT_GT(longest_wait, 5 * typical);  // there were spikes
    // The same watch sees a hang, for certain after half an hour.
    std::vector<Micros> compute(ring.size(), typical);
    compute[5] = kNever;
    ring.begin_all();
    ring.run_until(compute, ring.now() + limits::kHangAfterCeiling + 2 * typical);
    EXPECT_EQ(ring.hangs(), 1U);
    ASSERT_FALSE(ring.told.empty());
    EXPECT_EQ(ring.told.front().rank, 5);
  }
}

}  // namespace
}  // namespace syncd::test
