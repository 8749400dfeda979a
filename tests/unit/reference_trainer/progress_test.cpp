// The progress line as text, and where it is drawn.
#include "reference_trainer/report/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

RunProgress halfway() {
  return {.iterations = 300, .iterations_max = 600, .seconds = 3, .seconds_max = 0, .loss = 0.6};
}

TEST(Progress, ShowsShareRateLossAndTimeLeft) {
  EXPECT_EQ(progress_line("[1/3] bsp", halfway(), 100),
            "[1/3] bsp  [############............]   50%  100.0 it/s  loss 0.6000  3 s left");
}

TEST(Progress, ATimeLimitCountsToo) {
  RunProgress progress = halfway();
  progress.seconds_max = 4;
  EXPECT_THAT(progress_line("p", progress, 100), AllOf(HasSubstr(" 75% "), HasSubstr(" 1 s left")));
  progress.iterations_max = 0;
  EXPECT_THAT(progress_line("p", progress, 100), AllOf(HasSubstr(" 75% "), HasSubstr(" 1 s left")));
  progress.seconds_max = 0;
  EXPECT_EQ(progress_line("p", progress, 100), "p  300 it  100.0 it/s  loss 0.6000");
}

TEST(Progress, SaysLessWhereLessIsKnown) {
  EXPECT_EQ(progress_line("p", {.iterations_max = 600}, 100), "p  starting");
  RunProgress progress = halfway();
  progress.loss = std::nan("");
  EXPECT_THAT(progress_line("p", progress, 100), Not(HasSubstr("loss")));
  progress.iterations = 0;
  EXPECT_THAT(progress_line("p", progress, 100), Not(HasSubstr("left")));
  progress.iterations = 700;  // others' iterations may come on top at the end
  EXPECT_THAT(progress_line("p", progress, 100),
              AllOf(HasSubstr(" 100% "), HasSubstr(" 0 s left")));
  progress = halfway();
  progress.iterations_max = 600'000;
  EXPECT_THAT(progress_line("p", progress, 100), HasSubstr("1 h 40 min left"));
}

TEST(Progress, FitsIntoTheTerminal) {
  for (std::size_t columns = 0; columns < 120; ++columns) {
    EXPECT_LE(progress_line("[1/3] hop:ring_based,max_ig=5", halfway(), columns).size(), columns);
  }
  EXPECT_EQ(progress_line("[1/3] bsp", halfway(), 30), "[1/3] bsp   50%  100.0 it/s");
  EXPECT_EQ(progress_line("[1/3] bsp", halfway(), 5), "[1/3]");
}

class Terminal : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TERM", "xterm", 1);
    const winsize size{.ws_row = 24, .ws_col = 61, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(::openpty(&outside_, &inside_, nullptr, nullptr, &size), 0);
  }
  void TearDown() override {
    ::close(outside_);
    ::close(inside_);
  }
  // What has been written to the terminal; at least something must have been.
  std::string shown() const {
    char bytes[4096];
    const ssize_t count = ::read(outside_, bytes, sizeof bytes);
    return {bytes, count > 0 ? static_cast<std::size_t>(count) : 0};
  }
  int outside_ = -1;
  int inside_ = -1;
};

TEST_F(Terminal, TheLineIsDrawnAndErased) {
  ProgressLine line(inside_, true);
  EXPECT_TRUE(line.is_shown());
  line.show("[1/3] bsp", halfway());
  line.show("[1/3] bsp", halfway());  // too soon
  EXPECT_EQ(shown(), "\r[1/3] bsp  [###...]   50%  100.0 it/s  loss 0.6000  3 s left\x1b[K");
  line.clear();
  line.clear();
  EXPECT_EQ(shown(), "\r\x1b[K") << "once";
}

TEST_F(Terminal, NothingIsDrawnWhereItIsNotWantedOrCannotBe) {
  EXPECT_FALSE(ProgressLine(inside_, false).is_shown());
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(ProgressLine(inside_, true).is_shown());
  ::setenv("TERM", "xterm", 1);
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  {
    ProgressLine line(pipe[1], true);
    EXPECT_FALSE(line.is_shown());
    line.show("p", halfway());
  }
  ::close(pipe[1]);
  char byte = 0;
  EXPECT_EQ(::read(pipe[0], &byte, 1), 0) << "nothing was written";
  ::close(pipe[0]);
}

}  // namespace
}  // namespace syncd::trainer
