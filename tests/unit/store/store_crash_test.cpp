// A process that writes and is killed without warning: what it told to be committed is there, in
// order and once, and the next process goes on from there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/unit/store/samples.h"
#include "tests/unit/store/store_fixture.h"

namespace syncd::store {
namespace {

using ::testing::HasSubstr;

// store_writer as a child process.
class Writer {
 public:
  Writer(const std::string& path, const char* mode, const char* record_bytes) {
    int told[2];
    EXPECT_EQ(pipe(told), 0);
    child_ = fork();
    if (child_ == 0) {
      dup2(told[1], STDOUT_FILENO);
      ::close(told[0]);
      ::close(told[1]);
      execl(SYNCD_STORE_WRITER, "store_writer", path.c_str(), mode, record_bytes, nullptr);
      _exit(127);
    }
    ::close(told[1]);
    told_ = told[0];
  }
  ~Writer() {
    if (child_ > 0) kill();
    ::close(told_);
  }

  // Reads the next committed sequence; false at the end.
  bool next(Sequence& committed) {
    return ::read(told_, &committed, sizeof committed) == static_cast<ssize_t>(sizeof committed);
  }
  void kill() {
    ::kill(child_, SIGKILL);
    int status = 0;
    waitpid(child_, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "it ended by itself: " << status;
    child_ = -1;
  }

 private:
  pid_t child_ = -1;
  int told_ = -1;
};

struct Load {
  const char* name;
  const char* mode;
  const char* record_bytes;
  Sequence records_a_round;
};

class KilledWriter : public ::testing::TestWithParam<Load> {};

TEST_P(KilledWriter, LosesNothingThatItReported) {
  const TempDir dir;
  Sequence committed = 0;
  for (int round = 1; round <= 6; ++round) {
    const Sequence until = committed + GetParam().records_a_round;
    Writer writer(dir.store(), GetParam().mode, GetParam().record_bytes);
    while (committed < until) ASSERT_TRUE(writer.next(committed));
    writer.kill();
    while (writer.next(committed)) {
    }  // what it told before it died counts too

    const auto store = open(dir.store());
    std::vector<RecoveredJob> jobs;
    std::string error;
    ASSERT_TRUE(store->load(jobs, error)) << error;
    ASSERT_EQ(jobs.size(), 1u);
    ASSERT_GE(jobs[0].records.size(), committed) << "round " << round;
    for (std::size_t i = 0; i < jobs[0].records.size(); ++i) {
      ASSERT_EQ(jobs[0].records[i].sequence, i + 1);
    }
    committed = jobs[0].records.size();
  }
}

// The large records fill several memtables a round, so that the kill also meets flushes.
INSTANTIATE_TEST_SUITE_P(Loads, KilledWriter,
                         ::testing::Values(Load{"durable_small", "durable", "10", 150},
                                           Load{"durable_large", "durable", "20000", 600},
                                           Load{"fast_small", "fast", "10", 3000},
                                           Load{"fast_large", "fast", "20000", 600}),
                         [](const auto& load) { return std::string(load.param.name); });

TEST(StoreLock, AnotherProcessIsToldThatItIsInUse) {
  const TempDir dir;
  Options options;
  options.path = dir.store();
  std::string error;
  {
    Writer writer(dir.store(), "fast", "10");
    Sequence committed = 0;
    ASSERT_TRUE(writer.next(committed));  // now it has it
    EXPECT_EQ(open_rocks_store(options, error), nullptr);
    EXPECT_THAT(error, HasSubstr("store " + dir.store() + " is in use by another process"));
    EXPECT_THAT(error, HasSubstr("name another directory"));
  }
  EXPECT_NE(open_rocks_store(options, error), nullptr) << "a dead process holds no lock: " << error;
}

}  // namespace
}  // namespace syncd::store
