// Child processes: what they inherit, how their ends are told, that none is left behind.
#include "reference_trainer/run/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "reference_trainer/data/data_file.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kDeadlineMs = 20'000;

SpawnOptions shell(const std::string& script) {
  SpawnOptions options;
  options.program = "/bin/sh";
  options.arguments = {"-c", script};
  return options;
}

std::string end_of(const std::string& script) {
  ChildProcess child = ChildProcess::start(shell(script));
  const auto status = child.wait(kDeadlineMs);
  return status ? describe_exit(*status) : "still running";
}

// What the script prints.
std::string output_of(SpawnOptions options) {
  const TemporaryDirectory place;
  const auto file = place.path() / "out";
  options.output_fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ChildProcess child = ChildProcess::start(options);
  ::close(options.output_fd);
  EXPECT_TRUE(child.wait(kDeadlineMs).has_value());
  return read_data_file(file, "output");
}

TEST(Process, EndsAreTold) {
  EXPECT_EQ(end_of("exit 0"), "exit status 0");
  EXPECT_EQ(end_of("exit 3"), "exit status 3");
  EXPECT_EQ(end_of("kill -KILL $$"), "killed by SIGKILL");
  EXPECT_EQ(end_of("kill -SEGV $$"), "killed by SIGSEGV");
}

TEST(Process, AProgramThatCannotBeRunIsAnErrorWithItsReason) {
  SpawnOptions options;
  options.program = "/no/such/program";
  EXPECT_THAT(testing::error_of<ProcessError>([&] { ChildProcess::start(options); }),
              HasSubstr("/no/such/program: cannot be run: No such file"));
}

TEST(Process, UnsetVariablesAreGoneAndTheOthersStay) {
  ::setenv("TRAINER_TEST_A", "1", 1);
  ::setenv("TRAINER_TEST_B", "2", 1);
  ::setenv("TRAINER_KEPT", "3", 1);
  SpawnOptions options = shell("echo \"$TRAINER_TEST_A,$TRAINER_TEST_B,$TRAINER_KEPT\"");
  EXPECT_EQ(output_of(options), "1,2,3\n");
  options.unset = {"TRAINER_TEST_A"};
  EXPECT_EQ(output_of(options), ",2,3\n");
  options.unset = {"TRAINER_TEST_*"};
  EXPECT_EQ(output_of(options), ",,3\n");
}

TEST(Process, OnlyNamedDescriptorsAreInherited) {
  const SharedMemory given = SharedMemory::create(64, "a test");
  const SharedMemory kept = SharedMemory::create(64, "a test");
  SpawnOptions options = shell("ls -l /proc/self/fd");
  options.inherited_fds = {given.fd()};
  const std::string listing = output_of(options);
  EXPECT_THAT(listing, HasSubstr(" " + std::to_string(given.fd()) + " -> /dev/shm/syncd-"));
  EXPECT_THAT(listing, ::testing::Not(HasSubstr(" " + std::to_string(kept.fd()) + " -> /dev/shm")));
}

TEST(Process, AChildDiesWithItsObject) {
  pid_t pid = 0;
  {
    const ChildProcess child = ChildProcess::start(shell("exec sleep 600"));
    pid = child.pid();
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(Process, WaitGivesUpInTime) {
  ChildProcess child = ChildProcess::start(shell("exec sleep 600"));
  EXPECT_FALSE(child.wait(10).has_value());
  child.signal(SIGTERM);
  const auto status = child.wait(kDeadlineMs);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(describe_exit(*status), "killed by SIGTERM");
}

TEST(Process, TemporaryDirectoriesRemoveThemselvesWithTheirContents) {
  std::filesystem::path path;
  {
    const TemporaryDirectory place;
    path = place.path();
    write_data_file(path / "file", "x");
    EXPECT_TRUE(std::filesystem::exists(path / "file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace syncd::trainer
