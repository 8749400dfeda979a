// Child processes of the integration tests. A child dies with the test, whatever way either ends:
// the destructor kills it, and the kernel does if the test itself is killed. Start children from
// the test's main thread only, because the kernel's promise is bound to the thread that forks.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/deadline.h"

namespace syncd::test {

// Path of one of our programs, such as program("syncd").
std::string program(const std::string& name);

// How a process ended: its exit code, or the signal that ended it.
struct Ending {
  int code = -1;
  int signal = 0;

  bool operator==(const Ending&) const = default;
};
inline Ending exited(int code) {
  return {code, 0};
}
inline Ending killed_by(int signal) {
  return {-1, signal};
}
std::string to_string(const Ending& ending);
void PrintTo(const Ending& ending, std::ostream* out);

struct Command {
  std::vector<std::string> argv = {};
  // Set in the child beside what it inherits. It inherits none of the variables that syncd and its
  // client read, so that the machine's own settings have no effect.
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::string directory;  // empty: the test's own
  // Run as an ordinary user even if the test is root, and, where the kernel lets us, with a network
  // of its own, in which the default ports are free.
  bool as_lone_user = false;
  // Listening sockets that it is started with, by the protocol of sd_listen_fds(3), and their
  // names.
  std::vector<int> sockets = {};
  std::string socket_names = {};  // "syncd:control"
  std::string stdout_path;        // empty: /dev/null; files are made anew
  std::string stderr_path;        // empty: with the standard output
};

class Process {
 public:
  Process() = default;
  explicit Process(const Command& command);
  ~Process() { kill(); }
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  bool running();
  void signal(int number);
  // SIGKILL, and waits for it to be gone. Nothing happens if it has ended.
  void kill();
  // Blocks until it has ended; throws at the deadline, after killing it.
  Ending wait(Milliseconds timeout = kPatience);
  // Set when it has ended and running() or wait() has seen that.
  const std::optional<Ending>& ending() const { return ending_; }

 private:
  std::string name_;
  pid_t pid_ = -1;
  std::optional<Ending> ending_;
};

// Everything a program said, when it has run to its end.
struct RunResult {
  Ending ending;
  std::string out;
  std::string err;
};

// For EXPECT_TRUE: it has ended with this code, and said this on its standard error.
testing::AssertionResult ended(const RunResult& result, int code, const std::string& part);

// Runs a program to its end. `scratch` is a directory for its output.
RunResult run(const std::vector<std::string>& argv, const std::string& scratch,
              const std::vector<std::pair<std::string, std::string>>& environment = {},
              Milliseconds timeout = kPatience);

}  // namespace syncd::test
