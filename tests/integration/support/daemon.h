// A real syncd of one test's own: its socket, store, configuration and log lie in the test's
// directory. Killed in the destructor, which fails the test if the daemon had ended by itself or a
// sanitizer had complained, and shows the log if the test has failed. Use it from the test's main
// thread.
#pragma once

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "support/files.h"
#include "support/process.h"

namespace syncd::test {

struct DaemonOptions {
  std::string name = "syncd";  // of its files in the directory
  std::string store = {};      // empty: a directory of its own; or "memory"
  std::string mode = "durable";
  std::string tcp = "off";              // or "127.0.0.1:0"
  std::string admin = "off";            // or "127.0.0.1:0"; empty: as the configuration has it
  std::string config = {};              // text of a configuration file; empty: none
  std::vector<std::string> flags = {};  // further ones
  // Of --test-limit, such as "limits.snapshot_every_records=100".
  std::vector<std::string> test_limits = {};
  std::vector<std::pair<std::string, std::string>> environment = {};  // likewise
  std::vector<std::string> under = {};  // a program with its options that runs it, such as a tracer
  // That it is started with, as in Command; the first one's file may be socket_path().
  std::vector<int> sockets = {};
  std::string socket_names = {};
};

class Daemon {
 public:
  // Starts it and returns when it serves.
  explicit Daemon(const TempDir& directory, DaemonOptions options = {});
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // "unix:PATH"
  std::string address() const { return "unix:" + socket_path(); }
  std::string socket_path() const;
  // "127.0.0.1:PORT" of the TCP listener, as the daemon tells it.
  std::string tcp_address() const;
  // "127.0.0.1:PORT" of the admin pages, as the latest life's log tells it.
  std::string admin_address() const;
  std::string store_path() const;

  bool running() { return process_.running(); }
  pid_t pid() const { return process_.pid(); }
  void signal(int number) { process_.signal(number); }
  void kill() {
    process_.kill();
    may_have_ended_ = true;
  }
  // SIGTERM, and how it ended.
  Ending stop(Milliseconds timeout = kPatience);
  Ending wait(Milliseconds timeout = kPatience) {
    may_have_ended_ = true;
    return process_.wait(timeout);
  }
  // SIGHUP; returns when the log has this text.
  void reload(const std::string& logs) {
    signal(SIGHUP);
    wait_until("the log to say " + logs, [&] { return logged(logs); });
  }
  // Again on the same store and socket, after kill() or stop(). Returns when it serves.
  void start() {
    launch();
    await_ready();
  }
  // The two halves of start().
  void launch();
  void await_ready();
  // What all its lives have logged.
  std::string log() const;
  std::string log_of_this_life() const { return read_file(log_path(lives_)); }
  bool logged(const std::string& text) const { return log().find(text) != std::string::npos; }

  // The command that start() uses, for one that must fail.
  Command command() const;

 private:
  std::string log_path(int life) const;
  std::string ready_path() const;

  const TempDir& directory_;
  DaemonOptions options_;
  Process process_;
  int lives_ = 0;
  bool may_have_ended_ = false;
};

// Runs syncctl against a daemon.
RunResult syncctl(const TempDir& directory, const Daemon& daemon,
                  const std::vector<std::string>& arguments);

}  // namespace syncd::test
