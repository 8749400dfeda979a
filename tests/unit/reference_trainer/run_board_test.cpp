// The board: budgets, stop levels, texts, attaching.
#include "reference_trainer/run/run_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using ::testing::HasSubstr;

RunBoard board(Budget budget, std::int64_t iterations, int workers = 3) {
  BoardConfig config{};
  config.workload.workers = workers;
  config.budget = budget;
  config.iterations = iterations;
  return RunBoard::create(config);
}

TEST(RunBoard, ASharedBudgetIsForAllTogether) {
  const RunBoard shared = board(Budget::kShared, 2);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(shared.claim_iteration(0));
  EXPECT_TRUE(shared.claim_iteration(2));
  EXPECT_FALSE(shared.claim_iteration(0));
  EXPECT_FALSE(shared.claim_iteration(1));
  shared.give_back_iteration(0);
  EXPECT_TRUE(shared.claim_iteration(1));
  EXPECT_FALSE(shared.claim_iteration(1));
}

TEST(RunBoard, ABudgetForEachIsEachOnesOwn) {
  const RunBoard each = board(Budget::kEach, 2);
  EXPECT_TRUE(each.claim_iteration(0));
  EXPECT_TRUE(each.claim_iteration(0));
  EXPECT_FALSE(each.claim_iteration(0));
  EXPECT_TRUE(each.claim_iteration(1));
}

TEST(RunBoard, NoLimitMeansNoLimit) {
  const RunBoard unlimited = board(Budget::kShared, 0);
  for (int i = 0; i < 1'000; ++i) EXPECT_TRUE(unlimited.claim_iteration(0));
}

TEST(RunBoard, TheStopLevelOnlyRises) {
  const RunBoard b = board(Budget::kShared, 1);
  EXPECT_EQ(b.stop(), StopLevel::kNone);
  b.request_stop(StopLevel::kAbandon);
  b.request_stop(StopLevel::kFinish);
  EXPECT_EQ(b.stop(), StopLevel::kAbandon);
}

TEST(RunBoard, AnotherMappingSeesTheSame) {
  const RunBoard one = board(Budget::kShared, 1);
  const RunBoard two = RunBoard::attach(::dup(one.fd()));
  two.slot(2).message.set("why");
  one.slot(1).iterations.store(7);
  EXPECT_EQ(one.slot(2).message.get(), "why");
  EXPECT_EQ(two.slot(1).iterations.load(), 7);
  EXPECT_EQ(two.workers(), 3);
}

TEST(RunBoard, LongTextsAreCutAndLongFieldsRefused) {
  const RunBoard b = board(Budget::kShared, 1);
  b.slot(0).message.set(std::string(5'000, 'x'));
  EXPECT_EQ(b.slot(0).message.get(), std::string(BoardText::kBytesMax, 'x'));
  BoardConfig config{};
  set_field(config.job, "mf-1", "job's name");
  EXPECT_STREQ(config.job.data(), "mf-1");
  EXPECT_THAT(testing::error_of<std::invalid_argument>(
                  [&] { set_field(config.job, std::string(128, 'x'), "job's name"); }),
              HasSubstr("the job's name is too long: 128 bytes, 127 are allowed"));
}

TEST(RunBoard, RefusesForeignMemoryAndTooManyWorkers) {
  const SharedMemory other = SharedMemory::create(100'000, "a test");
  EXPECT_THROW(RunBoard::attach(::dup(other.fd())), SharedMemoryError);
  EXPECT_THROW(board(Budget::kShared, 1, kWorkersMax + 1), std::invalid_argument);
  EXPECT_THROW(board(Budget::kShared, 1, 0), std::invalid_argument);
}

}  // namespace
}  // namespace syncd::trainer
