// Child processes: starting them (fork and exec, no shell), watching them, saying how they ended,
// and not leaving them behind: a child dies with its parent, and a ChildProcess that goes away
// kills and reaps what it still holds. Also a temporary directory that removes itself, and signals
// as a flag. Used on the parent's main thread, which must be its only one while start() runs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncd::trainer {

class ProcessError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct SpawnOptions {
  std::string program;                 // a path; PATH is not searched
  std::vector<std::string> arguments;  // without argv[0]
  std::vector<int> inherited_fds;      // stay open, under the same numbers
  std::vector<std::string> unset;      // environment variables that the child does not get; a name
                                       // that ends in '*' removes all that begin with the rest
  int output_fd = -1;                  // becomes stdout and stderr; -1: inherited
  int death_signal = 0;                // sent to the child when the parent dies; 0: none
  bool ignore_interrupt = false;       // the child begins with SIGINT and SIGHUP ignored
  bool own_group = false;              // a terminal's Ctrl-C does not reach the child
};

class ChildProcess {
 public:
  // Throws ProcessError with the system's reason, also when exec fails.
  static ChildProcess start(const SpawnOptions& options);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // SIGKILL and reap, if it still runs

  pid_t pid() const { return pid_; }

  // How it ended (as waitpid says), or nothing while it runs. Does not block.
  std::optional<int> poll();

  // Waits for its end for at most timeout_ms.
  std::optional<int> wait(std::int64_t timeout_ms);

  // No effect once it has ended.
  void signal(int number);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_ = -1;
  std::optional<int> status_;
};

// "exit status 3", "killed by SIGKILL".
std::string describe_exit(int status);

// The path of the running program. Throws ProcessError where /proc is missing.
std::filesystem::path own_program();

// A directory under $TMPDIR or /tmp, removed with everything in it when the object goes away.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// SIGINT, SIGTERM and SIGHUP turned into a flag that the monitor reads. Handlers are installed
// once, by the parent process; by a worker only where it saves checkpoints.
//
// From now on these signals set the flag instead of ending the process, and SIGPIPE is ignored.
void watch_interrupts();

// The same for SIGTERM alone, in a worker that saves before it ends.
void watch_termination();

// The first signal that came, or 0; and how many came.
int interrupt_signal();
int interrupt_count();

}  // namespace syncd::trainer
