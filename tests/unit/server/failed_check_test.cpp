// What a failed check does to the program syncd: it logs it and aborts. The program is the whole
// daemon, built with a check that fails when it is told to reload.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>

namespace syncd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(FailedCheck, IsLoggedAndAbortsTheDaemon) {
  std::string directory = (std::filesystem::temp_directory_path() / "syncd-check-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  std::array<int, 2> log{};
  ASSERT_EQ(pipe2(log.data(), O_CLOEXEC), 0);
  const std::string store = directory + "/store";
  const std::string unix_path = directory + "/s";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit none{};
    setrlimit(RLIMIT_CORE, &none);
    dup2(log[1], STDERR_FILENO);
    execl(SYNCD_FAILING_DAEMON, "syncd", "--tcp", "off", "--unix", unix_path.c_str(), "--store",
          store.c_str(), "--admin", "off", static_cast<char*>(nullptr));
    _exit(127);
  }
  close(log[1]);
  std::string lines;
  bool told = false;
  std::array<char, 4096> buffer{};
  // To its end, which is the daemon's.
  for (ssize_t count = 0; (count = read(log[0], buffer.data(), buffer.size())) > 0;) {
    lines.append(buffer.data(), static_cast<std::size_t>(count));
    if (!told && lines.find(" ready\n") != std::string::npos) {
      told = true;
      kill(child, SIGHUP);
    }
  }
  close(log[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(told) << lines;
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
  EXPECT_THAT(lines, HasSubstr("error server_failed reason=\"internal error: a check has failed: "
                               "stopping_ (main.cpp:"));
  EXPECT_THAT(lines, Not(HasSubstr("terminate called")));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace syncd
