// Checkpoints on disk: what is saved is read again, and what is damaged, incomplete or another
// training's is not used.
#include "reference_trainer/run/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "reference_trainer/run/process.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

constexpr int kWorkers = 2;

class CheckpointTest : public ::testing::Test {
 protected:
  static WorkloadConfig config() {
    return {.kind = WorkloadKind::kMf, .workers = kWorkers, .batch = 8, .learning_rate = 0.5};
  }
  static TrainingIdentity identity(const WorkloadConfig& config) {
    return identity_of(config, "bsp", HopOrder::kParallel, 3);
  }
  fs::path save(CheckpointId id, int rank, std::int64_t iteration) {
    const auto value = static_cast<float>(iteration);
    return save_shard(place_.path(), identity(config()), id,
                      {.rank = rank,
                       .iteration = iteration,
                       .iterations = iteration + rank,
                       .parameters = {value, 0.1F, -0.0F},
                       .state = {value / 3}});
  }
  void save_all(CheckpointId id, std::int64_t iteration) {
    for (int rank = 0; rank < kWorkers; ++rank) save(id, rank, iteration);
  }
  std::optional<Checkpoint> newest(const WorkloadConfig& wanted = config()) {
    const CheckpointDirectory directory(place_.path());
    return directory.newest(identity(wanted), wanted.workers,
                            [this](const std::string& line) { told_.push_back(line); });
  }
  std::string refusal(const WorkloadConfig& wanted) {
    return error_of<CheckpointError>([&] { newest(wanted); });
  }
  std::size_t files() const {
    const fs::directory_iterator all(place_.path());
    return static_cast<std::size_t>(std::count_if(begin(all), end(all), [](const auto& entry) {
      return entry.path().extension() == ".ckpt";
    }));
  }

  static void truncate(const fs::path& file, std::uintmax_t bytes) {
    ASSERT_LT(bytes, fs::file_size(file));
    fs::resize_file(file, bytes);
  }
  static void flip_bit(const fs::path& file, std::size_t place) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(place));
    const auto byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(static_cast<std::streamoff>(place));
    stream.put(byte);
  }

  const TemporaryDirectory place_;
  std::vector<std::string> told_;
};

TEST_F(CheckpointTest, AShardIsReadAsItWasSaved) {
  const StoredShard stored = read_shard(save({3, 2}, 1, 40));
  EXPECT_EQ(stored.identity, identity(config()));
  EXPECT_EQ(stored.shard.rank, 1);
  EXPECT_EQ(stored.shard.iteration, 40);
  EXPECT_EQ(stored.shard.iterations, 41);
  EXPECT_THAT(stored.shard.parameters, ElementsAre(40.0F, 0.1F, -0.0F));
  EXPECT_TRUE(std::signbit(stored.shard.parameters[2]));
  EXPECT_THAT(stored.shard.state, ElementsAre(40.0F / 3));
}

TEST_F(CheckpointTest, AnEmptyDirectoryHasNone) {
  EXPECT_FALSE(newest().has_value());
  EXPECT_EQ(CheckpointDirectory(place_.path()).next_start(), 1U);
}

TEST_F(CheckpointTest, TheNewestCompleteOneIsUsed) {
  save_all({1, 9}, 90);
  save_all({2, 1}, 95);
  save({2, 2}, 0, 99);  // the other worker was killed before it saved
  const auto found = newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->id, (CheckpointId{2, 1}));
  EXPECT_EQ(found->iteration, 95);
  EXPECT_THAT(found->iterations, ElementsAre(95, 96));
  EXPECT_EQ(found->all_iterations(), 191);
  EXPECT_EQ(found->parameters[0], 95.0F);
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_EQ(CheckpointDirectory(place_.path()).next_start(), 3U);
  EXPECT_EQ(find_shard(place_.path(), found->id, 1).filename(), "2-1-95-1of2.ckpt");
  EXPECT_THAT(error_of<CheckpointError>([&] {
                find_shard(place_.path(), {2, 2}, 1);
              }),
              HasSubstr("the shard of worker 1 of checkpoint 2 is gone from"));
}

TEST_F(CheckpointTest, AllGoOnAtTheLowestIterationOfItsShards) {
  save({1, 1}, 0, 12);
  save({1, 1}, 1, 10);
  EXPECT_EQ(newest()->iteration, 10);
}

TEST_F(CheckpointTest, ATruncatedShardIsRefusedAtEveryLengthAndTheOneBeforeIsUsed) {
  save_all({1, 1}, 10);
  save_all({1, 2}, 20);
  const fs::path file = find_shard(place_.path(), {1, 2}, 1);
  for (std::uintmax_t bytes = fs::file_size(file); bytes-- > 0;) {
    SCOPED_TRACE(bytes);
    truncate(file, bytes);
    told_.clear();
    const auto found = newest();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->iteration, 10);
    EXPECT_THAT(told_, ElementsAre(AllOf(HasSubstr("1-2-20-1of2.ckpt is damaged: "),
                                         HasSubstr("; the checkpoint before it is tried"))));
  }
}

TEST_F(CheckpointTest, AShardWithAWrongBitIsRefusedWhereverItIs) {
  save_all({1, 1}, 10);
  save_all({1, 2}, 20);
  const fs::path file = find_shard(place_.path(), {1, 2}, 0);
  const std::uintmax_t size = fs::file_size(file);
  for (std::size_t place = 0; place < size; ++place) {
    SCOPED_TRACE(place);
    flip_bit(file, place);
    EXPECT_EQ(newest()->iteration, 10);
    flip_bit(file, place);
  }
  EXPECT_EQ(newest()->iteration, 20);
  EXPECT_EQ(told_.size(), size);
}

TEST_F(CheckpointTest, WhereAllAreDamagedNothingBeginsAnew) {
  save_all({1, 1}, 10);
  truncate(find_shard(place_.path(), {1, 1}, 0), 60);
  EXPECT_THAT(refusal(config()),
              AllOf(HasSubstr("--checkpoint: "),
                    HasSubstr("1-1-10-0of2.ckpt is damaged: it has 60 "
                              "bytes and should have "),
                    HasSubstr("no complete checkpoint before it; allowed: another directory")));
}

TEST_F(CheckpointTest, AnotherTrainingIsRefusedAndSaysWhatDiffers) {
  save_all({1, 1}, 10);
  save_all({1, 2}, 20);
  const auto refusal_of = [&](auto change) {
    WorkloadConfig wanted = config();
    change(wanted);
    return refusal(wanted);
  };
  EXPECT_THAT(refusal_of([](auto& wanted) { wanted.seed = 5; }),
              HasSubstr("1-2-20-0of2.ckpt is of another training: its seed is 1, here it is 5; "
                        "allowed: the same training, or another directory"));
  EXPECT_THAT(refusal_of([](auto& wanted) { wanted.kind = WorkloadKind::kSvm; }),
              HasSubstr("its workload is mf, here it is svm"));
  EXPECT_THAT(refusal_of([](auto& wanted) { wanted.workers = 3; }),
              HasSubstr("its number of workers is 2, here it is 3"));
  EXPECT_THAT(refusal_of([](auto& wanted) { wanted.learning_rate = 0.25; }),
              HasSubstr("its learning rate is 0.5, here it is 0.25"));
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(CheckpointTest, AWorkerKeepsItsShardsOfTheTwoNewestCompleteOnes) {
  for (std::uint64_t number = 1; number <= 4; ++number) {
    save_all({1, number}, static_cast<std::int64_t>(10 * number));
  }
  // The first worker saved the fourth when the other had only three.
  EXPECT_EQ(files(), 5U);
  EXPECT_EQ(find_shard(place_.path(), {1, 2}, 0).filename(), "1-2-20-0of2.ckpt");
  EXPECT_EQ(newest()->iteration, 40);
}

TEST_F(CheckpointTest, WhatCannotBeWrittenIsNamed) {
  const fs::path missing = place_.path() / "gone";
  EXPECT_THAT(error_of<CheckpointError>([&] {
                save_shard(missing, identity(config()), {1, 1}, Shard());
              }),
              AllOf(HasSubstr("checkpoint 1 cannot be saved: "), HasSubstr("No such file")));
  std::ofstream(place_.path() / "file") << "text";
  EXPECT_THAT(
      error_of<CheckpointError>([&] { const CheckpointDirectory none(place_.path() / "file/x"); }),
      HasSubstr("/file/x cannot be made: Not a directory"));
}

TEST_F(CheckpointTest, OneTrainerUsesADirectory) {
  const CheckpointDirectory first(place_.path());
  EXPECT_THAT(error_of<CheckpointError>([&] { const CheckpointDirectory second(place_.path()); }),
              HasSubstr("--checkpoint: another trainer uses "));
}

}  // namespace
}  // namespace syncd::trainer
