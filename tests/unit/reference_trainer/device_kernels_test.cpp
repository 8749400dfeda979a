// How a GPU's threads share the places of a step: the kernels' own code, run by threads of the CPU,
// one block after the other.
#include "reference_trainer/model/device_kernels.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <memory>
#include <thread>
#include <vector>

namespace syncd::trainer {
namespace {

constexpr Index kThreads = 2 * kWarp;  // of a block

// What the threads of one block share.
struct HostBlock {
  std::barrier<> all{kThreads};
  std::vector<std::unique_ptr<std::barrier<>>> warps;
  std::vector<float> values = std::vector<float>(kThreads);
  std::vector<char> says = std::vector<char>(kThreads);

  HostBlock() {
    for (Index warp = 0; warp < kThreads / kWarp; ++warp) {
      warps.push_back(std::make_unique<std::barrier<>>(kWarp));
    }
  }
};

struct HostTeam {
  HostBlock& shared;
  Index my_block, all_blocks, my_row, all_rows, my_thread;

  Index block() const { return my_block; }
  Index blocks() const { return all_blocks; }
  Index row() const { return my_row; }
  Index rows() const { return all_rows; }
  Index thread() const { return my_thread; }
  Index threads() const { return kThreads; }

  bool any_of_warp(bool mine) { return any(mine, warp(), first(), kWarp); }
  bool any_of_block(bool mine) { return any(mine, shared.all, 0, kThreads); }
  float sum_of_warp(float mine) { return sum(mine, warp(), first(), kWarp); }
  float sum_of_block(float mine) { return sum(mine, shared.all, 0, kThreads); }

 private:
  std::barrier<>& warp() { return *shared.warps[my_thread / kWarp]; }
  Index first() const { return my_thread / kWarp * kWarp; }

  bool any(bool mine, std::barrier<>& barrier, Index from, Index count) {
    shared.says[my_thread] = mine ? 1 : 0;
    barrier.arrive_and_wait();
    bool found = false;
    for (Index i = from; i < from + count; ++i) found = found || shared.says[i] != 0;
    barrier.arrive_and_wait();
    return found;
  }
  // Like the GPU's, of use to the first thread alone.
  float sum(float mine, std::barrier<>& barrier, Index from, Index count) {
    shared.values[my_thread] = mine;
    barrier.arrive_and_wait();
    float total = 0;
    for (Index i = from; i < from + count; ++i) total += shared.values[i];
    barrier.arrive_and_wait();
    return my_thread == from ? total : -1e9F;
  }
};

// kernel(team) on a grid.
template <typename Kernel>
void launch(Index blocks, Index rows, const Kernel& kernel) {
  for (Index row = 0; row < rows; ++row) {
    for (Index block = 0; block < blocks; ++block) {
      HostBlock shared;
      std::vector<std::jthread> threads;
      for (Index thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
          HostTeam team{shared, block, blocks, row, rows, thread};
          kernel(team);
        });
      }
    }
  }
}

struct Visit {
  std::atomic<int>* visits;
  void operator()(Index i) const { ++visits[i]; }
};

// Row i of a triangle: sums up 1 to terms(i).
struct Triangle {
  Index scale;
  float* sums;
  Index terms(Index i) const { return i * scale; }
  float operator()(Index, Index t) const { return static_cast<float>(t + 1); }
  void store(Index i, float sum) const { sums[i] += sum; }

  float expected(Index i) const {
    return static_cast<float>(std::size_t{terms(i)} * (terms(i) + 1) / 2);
  }
};

class Kernels : public ::testing::Test {
 protected:
  std::uint32_t flag = 0;
  std::uint32_t dropped = 0;
  std::uint32_t stopped = 0;
  StopRule rule{.flag = &flag, .dropped = &dropped, .stopped = &stopped, .minibatch = 3};

  std::vector<int> visits(std::size_t count, const StopRule& stop, Index blocks = 0) const {
    std::vector<std::atomic<int>> seen(count);
    if (blocks == 0) blocks = blocks_for(count, kThreads, stop);
    launch(blocks, 1, [&](HostTeam& team) {
      for_each_place(team, static_cast<Index>(count), Visit{seen.data()}, stop);
    });
    return {seen.begin(), seen.end()};
  }

  void expect_sums(Index count, Index scale, const StopRule& stop, Index blocks = 0) const {
    if (blocks == 0) blocks = blocks_for(count, kThreads / kWarp, stop);
    std::vector<float> sums(count);
    const Triangle triangle{scale, sums.data()};
    launch(blocks, 1, [&](HostTeam& team) { reduce_by_warp(team, count, triangle, stop); });
    for (Index i = 0; i < count; ++i) EXPECT_EQ(sums[i], triangle.expected(i)) << i;
  }

  void expect_pieces(Index count, Index scale, Index pieces, const StopRule& stop) const {
    std::vector<float> sums(count);
    std::vector<float> partial(std::size_t{count} * pieces, -1e9F);
    const Triangle triangle{scale, sums.data()};
    launch(count + looking_blocks(stop), pieces,
           [&](HostTeam& team) { reduce_pieces(team, triangle, partial.data(), stop); });
    const SumPieces<Triangle> rest{triangle, partial.data(), pieces};
    launch(blocks_for(count, kThreads / kWarp, stop), 1,
           [&](HostTeam& team) { reduce_by_warp(team, count, rest, stop); });
    for (Index i = 0; i < count; ++i) EXPECT_EQ(sums[i], triangle.expected(i)) << i;
  }
};

TEST_F(Kernels, EveryPlaceIsVisitedOnce) {
  for (const std::size_t count : {1U, 63U, 64U, 65U, 200U}) {
    EXPECT_EQ(visits(count, {}), std::vector<int>(count, 1)) << count;
    EXPECT_EQ(visits(count, rule), std::vector<int>(count, 1)) << count;
  }
  EXPECT_EQ(visits(500, rule, 3), std::vector<int>(500, 1)) << "a thread takes several";
  EXPECT_EQ(stopped, 0U);
}

TEST_F(Kernels, SumsAreThoseOfAllTerms) {
  expect_sums(7, 13, {});
  expect_sums(7, 13, rule);
  expect_sums(1, 1, {});
  expect_sums(9, 5, rule, 3);  // a warp takes several
  expect_pieces(3, 150, 2, {});
  expect_pieces(3, 150, 3, rule);
}

TEST_F(Kernels, OneBlockLooksAndTheOthersStopFromThenOn) {
  flag = 1;
  visits(200, rule);
  EXPECT_EQ(stopped, 3U) << "the minibatch at hand";
  EXPECT_EQ(visits(200, rule), std::vector<int>(200, 0));
  std::vector<float> sums(5);
  std::vector<float> partial(10);
  const Triangle triangle{50, sums.data()};
  launch(blocks_for(5, kThreads / kWarp, rule), 1,
         [&](HostTeam& team) { reduce_by_warp(team, 5, triangle, rule); });
  launch(5 + looking_blocks(rule), 2,
         [&](HostTeam& team) { reduce_pieces(team, triangle, partial.data(), rule); });
  EXPECT_EQ(sums, std::vector<float>(5));
  EXPECT_EQ(partial, std::vector<float>(10));
  EXPECT_EQ(visits(200, {}), std::vector<int>(200, 1)) << "what no rule applies to";
  StopRule next = rule;
  next.minibatch = 4;
  flag = 0;
  EXPECT_EQ(visits(200, next), std::vector<int>(200, 1)) << "nothing has to be cleared for it";
}

TEST_F(Kernels, EverySortOfReduceLooks) {
  dropped = 3;
  std::vector<float> sums(5);
  std::vector<float> partial(10);
  const Triangle triangle{50, sums.data()};
  launch(blocks_for(5, kThreads / kWarp, rule), 1,
         [&](HostTeam& team) { reduce_by_warp(team, 5, triangle, rule); });
  EXPECT_EQ(stopped, 3U);
  stopped = 0;
  launch(5 + looking_blocks(rule), 2,
         [&](HostTeam& team) { reduce_pieces(team, triangle, partial.data(), rule); });
  EXPECT_EQ(stopped, 3U);
}

TEST(KernelShapes, SumsAreCutWhereThatPays) {
  EXPECT_LE(pieces_of(256, 512), 1U) << "a warp each";
  EXPECT_EQ(pieces_of(32, 32'768), 32U);
  EXPECT_EQ(pieces_of(1, 1'000'000'000), kPiecesMax);
  EXPECT_LE(pieces_of(100'000, 1'000'000), 1U) << "there are enough sums";
  for (const std::size_t count : {1U, 10U, 32U, 64U, 257U, 5000U}) {
    EXPECT_LE(count * pieces_of(count, 1'000'000), kPartialSums);
  }
  EXPECT_EQ(blocks_for(std::size_t{1} << 31, 256, {}), kBlocksMax);
}

}  // namespace
}  // namespace syncd::trainer
