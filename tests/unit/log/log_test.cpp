// A log file that cannot be written for a while. RLIMIT_FSIZE is the disk that is full.
#include "daemon/edge/log/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "support/files.h"

namespace syncd {
namespace {

using test::lines_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// No file of this process may become longer. Lifted by the destructor.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uintmax_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit = {static_cast<rlim_t>(bytes), before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

// What goes to standard error: through a pipe, which the limit above is not for.
class StandardError {
 public:
  StandardError() : before_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC | O_NONBLOCK), 0);
    dup2(ends_[1], STDERR_FILENO);
  }
  ~StandardError() {
    dup2(before_, STDERR_FILENO);
    for (const int fd : {before_, ends_[0], ends_[1]}) close(fd);
  }
  StandardError(const StandardError&) = delete;
  StandardError& operator=(const StandardError&) = delete;

  std::vector<std::string> lines() {
    char buffer[65'536];
    const ssize_t count = read(ends_[0], buffer, sizeof buffer);
    return lines_of({buffer, count > 0 ? static_cast<std::size_t>(count) : 0});
  }

 private:
  int before_;
  int ends_[2] = {-1, -1};
};

class LogFileTest : public ::testing::Test {
 protected:
  static LogLine line(const std::string& event, LogLevel level = LogLevel::kInfo) {
    return {level, event, {}};
  }
  static LogLine audit() { return {LogLevel::kInfo, "audit", {{"action", "stop_job"}}}; }
  std::unique_ptr<Log> opened(LogLevel level) const {
    std::string error;
    auto log = Log::open(path_, level, error);
    EXPECT_NE(log, nullptr) << error;
    return log;
  }
  std::uintmax_t size() const { return std::filesystem::file_size(path_); }
  std::vector<std::string> lines() const { return lines_of(test::read_file(path_)); }

  const test::TempDir directory_;
  std::string path_ = directory_.file("log");
};

TEST_F(LogFileTest, SaysWhatItLacksAndTornLinesEnd) {
  const auto log = opened(LogLevel::kInfo);
  StandardError standard_error;
  log->write(line("before"));
  {
    const FileSizeLimit full(size() + 10);
    log->write(line("torn"));
    log->write(line("lost"));
    log->write(audit());
  }
  EXPECT_THAT(standard_error.lines(),
              ElementsAre(AllOf(HasSubstr(" error log_not_written file=" + path_),
                                HasSubstr("reason=\"File too large\"")),
                          EndsWith("Z info audit action=stop_job")));
  log->write(line("after"));
  log->write(line("later"));
  EXPECT_THAT(
      lines(),
      ElementsAre(
          EndsWith("Z info before"), SizeIs(10),
          EndsWith("Z warn log_lines_lost count=3 on_standard_error=1 reason=\"File too large\""),
          EndsWith("Z info after"), EndsWith("Z info later")));
  EXPECT_THAT(standard_error.lines(), IsEmpty());
}

// What says so can be lost like any other line.
TEST_F(LogFileTest, CountsOnUntilItHasSaidSo) {
  const auto log = opened(LogLevel::kInfo);
  StandardError standard_error;
  log->write(line("before"));
  {
    const FileSizeLimit full(size() + 10);
    log->write(line("torn"));
  }
  {
    const FileSizeLimit full(size() + 1 + 7);
    log->write(line("lost"));
  }
  log->write(line("after"));
  EXPECT_THAT(lines(), ElementsAre(EndsWith("before"), SizeIs(10), SizeIs(7),
                                   HasSubstr("log_lines_lost count=2 on_standard_error=0"),
                                   EndsWith("after")));
  EXPECT_THAT(standard_error.lines(), ElementsAre(HasSubstr("log_not_written")));
  // Anew, for the next time that the disk is full.
  {
    const FileSizeLimit full(size());
    log->write(line("lost"));
  }
  log->write(line("last"));
  EXPECT_THAT(lines().at(5), HasSubstr("log_lines_lost count=1 "));
  EXPECT_THAT(standard_error.lines(), ElementsAre(HasSubstr("log_not_written")));
}

TEST_F(LogFileTest, SaysSoWhateverTheLevel) {
  const auto log = opened(LogLevel::kError);
  StandardError standard_error;
  {
    const FileSizeLimit full(0);
    log->write(line("wrong", LogLevel::kError));
    log->write(line("held_back"));
    log->write(audit());
  }
  EXPECT_THAT(standard_error.lines(),
              ElementsAre(HasSubstr("log_not_written"), HasSubstr(" info audit action=stop_job")));
  log->write(audit());
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("log_lines_lost count=2 on_standard_error=1"),
                                   EndsWith(" info audit action=stop_job")));
}

TEST_F(LogFileTest, AValueIsOneWordOfPlainTextWhateverItHolds) {
  {
    const auto log = opened(LogLevel::kInfo);
    log->write({LogLevel::kInfo,
                "join",
                {{"a", "é"},
                 {"b", ""},
                 {"c", "x y"},
                 {"d", "x=\"\\"},
                 {"e", "x\ninfo audit"},
                 {"f",
                  "\xC2\x9B"
                  "2J"},
                 {"g", "\xE2\x80\xA8"},
                 {"h", "\xff\x1b"}}});
  }
  EXPECT_THAT(lines(),
              ElementsAre(EndsWith(R"( join a=é b="" c="x y" d="x=\"\\" e="x\ninfo audit" )"
                                   R"(f="\u009b2J" g="\u2028" h="\xff\x1b")")));
}

// As the end of a daemon on a full disk leaves it.
TEST_F(LogFileTest, BeginsOnALineOfItsOwn) {
  std::ofstream(path_) << "2026-01-01T00:00:0";
  {
    const auto log = opened(LogLevel::kInfo);
    log->write(line("first"));
  }
  const auto log = opened(LogLevel::kInfo);
  log->write(line("second"));
  EXPECT_THAT(lines(),
              ElementsAre("2026-01-01T00:00:0", EndsWith("Z info first"), EndsWith("second")));
}

TEST_F(LogFileTest, TheFileThatIsOpenedAnewSaysWhatTheOneBeforeLacks) {
  const auto log = opened(LogLevel::kInfo);
  StandardError standard_error;
  log->write(line("before"));
  {
    const FileSizeLimit full(size() + 10);
    log->write(line("torn"));
  }
  std::filesystem::rename(path_, path_ + ".1");
  ASSERT_TRUE(log->reopen());
  log->write(line("after"));
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("log_lines_lost count=1 "), EndsWith("info after")));
  // Where it cannot be opened, lines go on where they went.
  std::filesystem::rename(path_, path_ + ".2");
  std::filesystem::create_directory(path_);
  EXPECT_FALSE(log->reopen());
  path_ += ".2";
  log->write(line("still"));
  EXPECT_THAT(lines().at(2), AllOf(HasSubstr("log_not_reopened"),
                                   HasSubstr("cannot be opened for writing: Is a directory")));
  EXPECT_THAT(lines().at(3), EndsWith("info still"));
}

}  // namespace
}  // namespace syncd
