// The roster's figures against a count over its workers, after every change that a job may make.
// One thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/roster.h"
#include "tests/support/property_runs.h"
#include "tests/support/random.h"

namespace syncd::test {
namespace {

constexpr std::uint32_t kExpected = 5;
constexpr Rank kRanks = 9;

using Name = std::pair<std::string, std::string>;

std::vector<Clock> sorted(const RelativeClocks& clocks) {
  std::vector<Clock> all;
  for (std::uint32_t n = clocks.size(); n >= 1; --n) all.push_back(clocks.nth_largest(n));
  return all;
}

// What its header says that always holds.
void expect_consistent(const Roster& roster) {
  std::uint32_t known = 0, members = 0, draining = 0, ready = 0;
  std::vector<Rank> active, fresh, vacant;
  std::vector<std::int64_t> registered;
  std::vector<Clock> relative, absolute, all;
  for (Rank rank = 0; rank <= kRanks; ++rank) {
    const Worker* worker = roster.find(rank);
    if (worker == nullptr) {
      fresh.push_back(rank);
      continue;
    }
    ASSERT_EQ(worker->rank, rank);
    ++known;
    all.push_back(worker->clock);
    if (!is_member(worker->state)) {
      vacant.push_back(rank);
      continue;
    }
    ++members;
    if (worker->state == WorkerState::kReady) ++ready;
    if (worker->state == WorkerState::kRegistered) registered.push_back(rank);
    if (!worker->active()) continue;
    if (worker->state == WorkerState::kDraining) ++draining;
    active.push_back(rank);
    relative.push_back(worker->clock - worker->base);
    absolute.push_back(worker->clock);
  }
  for (auto* clocks : {&relative, &absolute, &all}) std::sort(clocks->begin(), clocks->end());
  EXPECT_EQ(roster.known(), known);
  EXPECT_EQ(roster.members(), members);
  EXPECT_EQ(roster.draining(), draining);
  EXPECT_EQ(roster.active(), active);
  EXPECT_EQ(roster.not_begun(), registered);
  EXPECT_EQ(sorted(roster.clocks()), relative);
  EXPECT_EQ(sorted(roster.absolute_clocks()), absolute);
  EXPECT_EQ(sorted(roster.idle_clocks()), roster.running() ? std::vector<Clock>{} : all);
  EXPECT_EQ(roster.missing().ready(), roster.state() == JobState::kWaiting ? ready : 0);
  const bool reuses = fresh.front() >= kExpected && !vacant.empty();
  EXPECT_EQ(roster.free_rank(), reuses ? vacant.front() : fresh.front());
  EXPECT_EQ(roster.highest_clock(-1), all.empty() ? -1 : all.back());
  const Clock middle = relative.empty() ? 0 : relative[relative.size() / 2];
  EXPECT_EQ(roster.active_below(middle).size(),
            std::lower_bound(relative.begin(), relative.end(), middle) - relative.begin());
}

// One job's life by chance: each step is one that a job may ask for.
class Life {
 public:
  explicit Life(std::uint64_t seed) : random_(seed) {}

  const Roster& roster() const { return roster_; }

  void step() {
    if (random_.one_in(40)) return turn();
    if (random_.one_in(30) && roster_.running()) return roster_.rebase();
    if (roster_.state() == JobState::kStopped) return;
    const auto rank = static_cast<Rank>(random_.below(kRanks));
    Worker* worker = roster_.find(rank);
    if (worker == nullptr || !is_member(worker->state)) {
      join(rank, worker);
    } else if (random_.one_in(5)) {
      roster_.remove(*worker, random_.one_in(2) ? WorkerState::kLeft : WorkerState::kLost);
    } else if (random_.one_in(5)) {
      rename(*worker);
    } else if (roster_.state() == JobState::kWaiting) {
      roster_.set_ready(*worker, worker->state != WorkerState::kReady);
    } else {
      run(*worker);
    }
  }

  // Who had each name last, unless it goes by another one now.
  void expect_names() const {
    for (const auto& [name, rank] : named_) {
      const Worker& worker = roster_.at(rank);
      const bool still = Name(worker.name, worker.host) == name;
      EXPECT_EQ(roster_.find(name.first, name.second), still ? &worker : nullptr);
    }
  }

 private:
  void turn() {
    if (roster_.state() == JobState::kWaiting) {
      roster_.start(random_.one_in(2) ? roster_.not_begun() : std::vector<std::int64_t>{}, 1);
    } else if (random_.one_in(4)) {
      roster_.stop();
    }
  }

  void join(Rank rank, Worker* known) {
    if (known != nullptr) roster_.readmit(*known);
    Worker& worker = known != nullptr ? *known : roster_.add(rank);
    rename(worker);
    roster_.set_clock(worker, worker.clock + static_cast<Clock>(random_.below(3)), worker.base);
    if (roster_.running() && random_.one_in(2)) roster_.activate(worker, 1);
  }

  void rename(Worker& worker) {
    const Name name("w" + std::to_string(random_.below(4)), "h" + std::to_string(random_.below(2)));
    roster_.rename(worker, name.first, name.second);
    named_[name] = worker.rank;
  }

  void run(Worker& worker) {
    const Clock clock = worker.clock + static_cast<Clock>(random_.below(4));
    if (!worker.active() && random_.one_in(2)) {
      roster_.activate(worker, 1);
    } else if (random_.one_in(2)) {
      roster_.set_clock(worker, clock);
    } else if (random_.one_in(2)) {
      roster_.set_clock(worker, clock, static_cast<Clock>(random_.below(4)));
    } else if (worker.active() && random_.one_in(3)) {
      roster_.deactivate(worker);
    } else if (worker.active()) {
      roster_.set_draining(worker, random_.one_in(2));
    }
  }

  Random random_;
  Roster roster_{kExpected};
  std::map<Name, Rank> named_;
};

TEST(Roster, CountsWhatItsWorkersAre) {
  for (std::uint64_t seed = 0; seed < 300 * property_runs(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Life life(seed);
    for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
      life.step();
      expect_consistent(life.roster());
      life.expect_names();
    }
    if (testing::Test::HasFailure()) return;
  }
}

// But for who is ready, which does not outlive the daemon.
TEST(Roster, IsTheSameAfterARestart) {
  for (std::uint64_t seed = 0; seed < 300 * property_runs(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Life life(seed);
    for (std::uint64_t i = 0; i < seed % 150; ++i) life.step();
    Roster again(kExpected);
    again.restore(life.roster().state());
    life.roster().each([&](const Worker& worker) { again.restore(worker); });
    expect_consistent(again);
    EXPECT_EQ(again.members(), life.roster().members());
    EXPECT_EQ(again.active(), life.roster().active());
    EXPECT_EQ(again.free_rank(), life.roster().free_rank());
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Roster, NamesTheFirstTwoByOneName) {
  using Two = std::pair<const Worker*, const Worker*>;
  Roster roster(kExpected);
  const Worker& far = roster.add(0);
  const Worker& near = roster.add(1);
  EXPECT_EQ(roster.named("w"), Two());
  roster.rename(roster.at(0), "w", "host-b");
  EXPECT_EQ(roster.named("w"), Two(&far, nullptr));
  roster.rename(roster.at(1), "w", "host-a");
  roster.rename(roster.add(2), "wx", "host-a");
  EXPECT_EQ(roster.named("w"), Two(&near, &far));
  EXPECT_EQ(roster.named("v"), Two());
}

}  // namespace
}  // namespace syncd::test
