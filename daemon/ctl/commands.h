// What syncctl can do: one function a command, each prints to standard output and returns the
// program's exit code. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace syncd::ctl {

// Exit codes, documented in --help.
inline constexpr int kExitOk = 0;
inline constexpr int kExitRefused = 1;      // the daemon refused, or there is no such job
inline constexpr int kExitUsage = 2;        // the command line is wrong
inline constexpr int kExitUnreachable = 3;  // no daemon answered
inline constexpr int kExitStore = 4;        // a store cannot be read, or a file not written

struct Options {
  std::string addresses;  // empty: SYNCD_ADDR, else the default ones
  std::string token_file;
  std::int64_t timeout_ms = 5000;
  bool json = false;

  std::string job;
  // history
  std::string store;  // read this directory instead of asking a daemon
  std::uint64_t from = 1;
  std::uint64_t limit = 0;  // 0: all
  std::vector<std::string> kinds;
  std::string format;
  std::string output;
  // job create, job stop, set-policy
  std::string policy;
  std::uint32_t workers = 0;
  std::uint32_t min_workers = 0;
  std::string reason;
};

int run_status(const Options& options);
int run_jobs(const Options& options);
int run_workers(const Options& options);
int run_history(const Options& options);
int run_export(const Options& options);
int run_create(const Options& options);
int run_stop(const Options& options);
int run_set_policy(const Options& options);

}  // namespace syncd::ctl
