// What every benchmark of a running daemon can be told on its command line. Plain data.
#pragma once

#include <string>
#include <vector>

namespace syncd::bench {

struct Options {
  int rounds = 7;        // of each side, interleaved
  double seconds = 0.5;  // that a round measures
  std::vector<std::string> transports = {"unix", "tcp"};
  std::vector<int> per_connection;  // workers on one connection; empty: the benchmark has no choice
  std::vector<int> sizes;           // connections or workers, whatever the benchmark varies
  std::string store = "memory";     // "memory", "fast" or "durable"
  std::string directory = ".";      // where stores, sockets and logs go for the time being
  std::string syncd;                // the daemon to measure; default: the one built beside this
  std::vector<double> iteration_ms;  // a worker's, 0: as fast as it is answered; empty: no choice
  bool pin = true;
  int sync_us = -1;  // that a disk's sync takes longer; -1: the benchmark has no choice
};

// `about` says what is measured, `sizes` what --sizes means. Prints the help, or what is wrong, and
// ends the process where that is called for. `defaults` are kept where nothing is said.
Options parse_options(int argc, char** argv, const std::string& about, const std::string& sizes,
                      Options defaults);

}  // namespace syncd::bench
