// Workers that do nothing but iterate, many of them over each connection, through the client
// library's driver. One thread drives them; the drivers' threads only report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "daemon/tools/bench/figures.h"
#include "daemon/tools/ctl/commands.h"

namespace syncd::bench {

struct LoadOptions {
  std::size_t workers = 8;
  std::size_t connections = 1;
  std::string job;  // empty: one of its own
  std::string policy = "bsp";
  std::string iteration_time = "0";  // 0: no computing; else as of sim::parse_iteration_time()
  std::string slowdown = "none";
  std::uint64_t seed = 1;
  double seconds = 10;
  std::uint64_t iterations = 0;  // of each worker, instead of the time; 0: by time
  std::string ask = "explain";   // what is asked aside, each as often: of kQuestionNames
  double ask_share = 0;          // in this share of iterations
  std::size_t member_bytes = 0;  // data that each worker shows to the others
};

// Why the load ended before its time, and the exit code (those of syncctl).
class LoadError : public std::runtime_error {
 public:
  LoadError(int code, const std::string& what) : std::runtime_error(what), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

// Runs it all: joins, iterates, leaves. Throws LoadError.
Figures run_load(const ctl::Options& connection, const LoadOptions& options);

}  // namespace syncd::bench
