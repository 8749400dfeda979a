// A syncd of the trainer's own: found, started on a Unix socket in a temporary directory, waited
// for, watched, and stopped. Used on the parent's main thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "reference_trainer/run/process.h"

namespace syncd::trainer {

struct DaemonOptions {
  std::string store = "memory";  // --store of the daemon: a directory, or "memory"
  bool verbose = false;          // a more talkative log
};

class DaemonProcess {
 public:
  // Starts the daemon and waits until it accepts connections. Throws ProcessError, with the end of
  // the daemon's own output if it failed.
  explicit DaemonProcess(const DaemonOptions& options);

  // What clients connect to, such as "unix:/tmp/syncd-trainer-x/syncd.sock".
  std::string address() const;

  // Why it is gone, or nothing while it runs.
  std::optional<std::string> failure();

  // Asks it to stop and waits. Returns what was wrong, or nothing if it ended in good order.
  std::optional<std::string> stop();

 private:
  std::string describe_end(int status) const;

  TemporaryDirectory directory_;
  std::optional<ChildProcess> process_;
};

// The syncd beside the running program, else the first one in PATH. Throws ProcessError.
std::filesystem::path find_syncd();

}  // namespace syncd::trainer
