// What syncctl can do: one function a command, each prints to standard output, errors to standard
// error, and returns the program's exit code. One thread.
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
  std::string addresses;   // empty: SYNCD_ADDR, else the default ones
  std::string token_file;  // this and the next four: empty: the variable of the client library
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
  std::string server_name;
  std::int64_t timeout_ms = 5000;
  bool json = false;

  std::string job;
  std::string store;  // history, stragglers: read this directory instead of asking a daemon
  std::string other;  // store backup: where to; store restore: where from
  // history
  std::uint64_t from = 1;
  std::uint64_t limit = 0;  // 0: all
  std::vector<std::string> kinds;
  std::string format;
  std::string output;
  // stragglers
  std::string input;      // an exported history, instead of a job; empty: none
  std::string since;      // a duration; empty: all
  std::uint32_t top = 0;  // 0: all
  // top
  std::string interval = "1s";
  std::string sort = "rank";
  bool once = false;
  // job create, job stop, set-policy
  std::string policy;
  std::uint32_t workers = 0;
  std::uint32_t min_workers = 0;
  std::string reason;
  // drain, kick, phase
  std::string worker;
  std::string phase;
  std::string lease;
  // exclude
  std::string host;
  bool undo = false;
  bool force = false;
  // checkpoint
  bool wait = false;
  bool latest = false;
  // cluster
  std::string config;      // the configuration with [cluster]; empty: only the environment
  std::string from_store;  // that the cluster is made of; empty: it begins without jobs
  std::uint32_t shards = 1;
  std::uint32_t shard = 0;
  std::string member;
  bool absent = false;
  // inspect
  bool hanging = false;
  bool stored = false;
};

int run_status(const Options& options);
int run_cluster_init(const Options& options);
int run_cluster_status(const Options& options);
int run_cluster_drain(const Options& options);
int run_cluster_move(const Options& options);
int run_cluster_finish_upgrade(const Options& options);
int run_cluster_copy(const Options& options);
int run_jobs(const Options& options);
int run_workers(const Options& options);
int run_members(const Options& options);
int run_history(const Options& options);
int run_export(const Options& options);
int run_create(const Options& options);
int run_stop(const Options& options);
int run_set_policy(const Options& options);
int run_drain(const Options& options);
int run_kick(const Options& options);
int run_phase(const Options& options);
int run_exclude(const Options& options);
int run_stragglers(const Options& options);
int run_explain(const Options& options);
int run_inspect(const Options& options);
// Until `q`, or until a signal ends the process; the terminal is then as it was before.
int run_top(const Options& options);
// An agreed checkpoint of a job's workers.
int run_agreed_checkpoint(const Options& options);
// Lets the daemon copy its store to a directory on its machine.
int run_checkpoint(const Options& options);
// To a store whose daemon is down.
int run_store_check(const Options& options);
int run_store_backup(const Options& options);
int run_store_restore(const Options& options);
int run_store_compact(const Options& options);

}  // namespace syncd::ctl
