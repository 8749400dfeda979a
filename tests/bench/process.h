// Child processes and temporary directories of the benchmarks: the server under measurement runs in
// a process of its own, so that its processor time is its own. One thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace syncd::bench {

// Keeps the calling thread on one processor (the load generator's). Nothing happens on a machine
// with one processor, or after disable_pinning().
void pin_this_thread();
// Lets every process run wherever the kernel likes (`--no-pin`).
void disable_pinning();

// Where a child may run while the load generator is pinned.
enum class Placement {
  kAnywhere,
  kApart,  // on every processor but the load generator's
};

// A running program. Killed and waited for when it goes out of scope.
class Child {
 public:
  Child() = default;
  // Starts argv[0] with its standard output and error in `log_path`.
  Child(const std::vector<std::string>& argv, const std::string& log_path, Placement placement);
  ~Child() { kill(); }
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // Ends the benchmark, showing the child's output, if it has ended.
  void check_alive() const;
  // Asks it to end (SIGTERM) and waits; kills it after 10 s.
  void stop();
  void kill();

 private:
  pid_t pid_ = -1;
  std::string name_;
  std::string log_path_;
};

// A directory that is removed with everything in it at the end, unless fail() ends the benchmark.
// One at a time.
class TempDir {
 public:
  explicit TempDir(const std::string& parent);
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string own_executable();   // this program's path
std::uint16_t free_tcp_port();  // one on 127.0.0.1 that nobody listens on at the moment

}  // namespace syncd::bench
