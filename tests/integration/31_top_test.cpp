// syncctl top on a terminal: what signals, another size and a daemon that comes and goes make of
// it.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>

#include "support/c_api.h"
#include "support/pty.h"
#include "support/raw_client.h"
#include "support/syncctl_site.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTaken = "\x1b[?1049h";  // a screen of its own
constexpr const char* kGivenBack = "\x1b[?1049l";
constexpr const char* kCursorShown = "\x1b[?25h";

class Top : public SyncctlSite {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < 2; ++rank) {
      workers_.push_back(client_.join({.policy = "asp",
                                       .host = "node-" + std::to_string(rank) + kLongName,
                                       .rank = rank,
                                       .world_size = 2}));
    }
  }
  std::vector<std::string> command() const {
    return {program("syncctl"), "--addr", daemon_.address(), "--timeout-ms", "1000", "top", "job",
            "--interval",       "100ms"};
  }
  // From a script that outlives it, and leaves the line alone: what becomes of that is to be seen.
  std::vector<std::string> under_a_script() const {
    std::vector<std::string> argv = {
        "/bin/sh", "-c", "trap : INT QUIT TERM HUP; \"$0\" \"$@\"; echo \"code $?\"; read line"};
    const std::vector<std::string> own = command();
    argv.insert(argv.end(), own.begin(), own.end());
    return argv;
  }
  // Its first frame that shows the workers.
  static std::string first_frame(Pty& pty) {
    EXPECT_THAT(pty.read_until(kTaken), HasSubstr(kTaken));
    return pty.frame_with("node-1");
  }
  static constexpr const char* kLongName = ".a-rather-long.example";

  ApiClient client_{daemon_.address()};
  std::vector<ApiWorker> workers_;
};

TEST_F(Top, GivesTheTerminalBackAtItsEnd) {
  Pty pty(under_a_script(), 80, 24);
  first_frame(pty);
  EXPECT_FALSE(pty.is_cooked());
  pty.type("q");
  EXPECT_THAT(pty.read_until("code 0"), AllOf(HasSubstr(kGivenBack), HasSubstr(kCursorShown)));
  EXPECT_TRUE(pty.is_cooked());
}

TEST_F(Top, GivesTheTerminalBackToWhoeverEndsItBySignal) {
  for (const int number : {SIGTERM, SIGHUP, SIGINT, SIGQUIT}) {
    for (const bool by_key : {false, true}) {
      if (by_key && number != SIGINT && number != SIGQUIT) continue;
      Pty pty(under_a_script(), 80, 24);
      first_frame(pty);
      if (by_key) {
        pty.type(number == SIGINT ? "\x03" : "\x1c");
      } else {
        pty.signal(number);
      }
      EXPECT_THAT(pty.read_until("code " + std::to_string(128 + number)),
                  AllOf(HasSubstr(kGivenBack), HasSubstr(kCursorShown)));
      EXPECT_TRUE(pty.is_cooked()) << number;
    }
  }
}

// ^S stops what is written; a signal to end must not wait for ^Q.
TEST_F(Top, EndsAlsoWhileItsOutputIsStopped) {
  Pty pty(under_a_script(), 80, 24);
  first_frame(pty);
  pty.type("\x13");
  // After some more answers it is stuck in a write.
  RawClient client = greeted(daemon_.address());
  const auto frames = [&] {
    return client.call_for<wire::StatusReply>(wire::StatusRequest{}).frames_in;
  };
  std::uint64_t own = 0;
  const std::uint64_t before = frames();
  wait_until("the next questions", [&] { return frames() - before - ++own > 10; });
  pty.signal(SIGTERM);
  pty.read_until("code " + std::to_string(128 + SIGTERM));
  EXPECT_TRUE(pty.is_cooked());
}

TEST_F(Top, StopsAndGoesOnUnderAShell) {
  Pty pty({"/bin/bash", "--norc", "--noprofile", "--noediting", "-i"}, 80, 24);
  std::string line;
  for (const std::string& word : command()) line += word + " ";
  pty.type(line + "\n");
  first_frame(pty);
  pty.type("\x1a");
  EXPECT_THAT(pty.read_until("Stopped"), AllOf(HasSubstr(kGivenBack), HasSubstr(kCursorShown)));
  EXPECT_TRUE(pty.is_cooked());
  pty.type("fg\n");
  first_frame(pty);
  EXPECT_FALSE(pty.is_cooked());
  // In the background it must not touch the line.
  pty.type("\x1a");
  pty.read_until("Stopped");
  pty.type("bg; wait %1; jobs -l\n");
  pty.read_until("Stopped (tty output)");
  EXPECT_TRUE(pty.is_cooked());
  pty.type("fg\n");
  first_frame(pty);
  pty.type("q");
  pty.read_until(kGivenBack);
  pty.type("exit $?\n");
  EXPECT_EQ(pty.wait(), exited(0));
}

// Nobody could let it go on.
TEST_F(Top, DoesNotStopWhereThereIsNoShell) {
  Pty pty(command(), 80, 24);
  first_frame(pty);
  pty.type("\x1a");
  pty.read_until(kGivenBack);
  first_frame(pty);
  EXPECT_FALSE(pty.is_cooked());
  pty.type("q");
  EXPECT_EQ(pty.wait(), exited(0));
}

TEST_F(Top, FillsAWindowOfAnotherSize) {
  Pty pty(command(), 80, 24);
  const auto lines = [](const std::string& frame) {
    return std::count(frame.begin(), frame.end(), '\n') + 1;
  };
  std::string frame = first_frame(pty);
  EXPECT_EQ(lines(frame), 24);
  EXPECT_THAT(frame, Not(HasSubstr(kLongName))) << "there is no room for it";
  pty.resize(200, 50);
  frame = pty.frame_with(kLongName);
  EXPECT_EQ(lines(frame), 50);
  pty.resize(30, 6);
  while (lines(frame) != 6) frame = pty.frame_with("\x1b[2K");
  EXPECT_THAT(frame, AllOf(HasSubstr("RANK"), HasSubstr("q quit"), Not(HasSubstr("HOST"))));
  pty.type("q");
  EXPECT_EQ(pty.wait(), exited(0));
}

TEST_F(Top, SaysThatTheDaemonIsGoneAndFindsItAgain) {
  Pty pty(command(), 80, 24);
  first_frame(pty);
  EXPECT_EQ(daemon_.stop(), exited(0));
  EXPECT_THAT(pty.frame_with("no answer for"),
              AllOf(HasSubstr("trying again"), HasSubstr("node-1")))
      << "what was known stays";
  daemon_.start();
  std::string frame;
  do {
    frame = pty.frame_with("node-1");
  } while (frame.find("no answer for") != std::string::npos);
  // One that hangs is no better.
  daemon_.signal(SIGSTOP);
  pty.frame_with("no answer for");
  daemon_.signal(SIGCONT);
  do {
    frame = pty.frame_with("node-1");
  } while (frame.find("no answer for") != std::string::npos);
  pty.type("q");
  EXPECT_EQ(pty.wait(), exited(0));
}

}  // namespace
}  // namespace syncd::test
