// A group of worker processes (integration_worker) of one job, and what their journals say. Use it
// from the test's main thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/files.h"
#include "support/process.h"

namespace syncd::test {

struct WorkerGroupOptions {
  std::string address = {};
  std::string job = "job";
  std::string policy = {};
  int workers = 16;
  int first_rank = 0;
  int world_size = 0;  // 0: as many as `workers`
  std::int64_t iterations = 20;
  std::int64_t iteration_ms = 2;
  // Keys of integration_worker for single workers, such as {5, {{"hold_at", "3"}}}.
  std::map<int, std::map<std::string, std::string>> special = {};
  std::vector<std::pair<std::string, std::string>> environment = {};
};

class WorkerGroup {
 public:
  WorkerGroup(const TempDir& directory, WorkerGroupOptions options);

  Process& process(int rank) {
    return processes_.at(static_cast<std::size_t>(rank - options_.first_rank));
  }
  // SIGKILL, and a new process in its place, which writes on in the same journal.
  void restart(int rank);
  int size() const { return options_.workers; }
  int end_rank() const { return options_.first_rank + options_.workers; }
  const WorkerGroupOptions& options() const { return options_; }

  // Lines of one worker's journal, so far.
  std::vector<std::string> journal(int rank) const;
  bool has_line(int rank, const std::string& beginning) const;
  // Iterations whose push returned SYNCD_OK, in the order in which they did.
  std::vector<std::int64_t> acknowledged(int rank) const;
  std::size_t acknowledged_by_all() const;

  void wait_for_line(int rank, const std::string& beginning, Milliseconds timeout = kPatience);
  // Expects every worker, but those named, to end with exit code 0; shows the journal of one that
  // does not.
  void expect_all_finish(const std::vector<int>& but = {}, Milliseconds timeout = kPatience);

 private:
  std::string journal_path(int rank) const;
  std::string show(int rank) const;

  const TempDir& directory_;
  WorkerGroupOptions options_;
  std::vector<Command> commands_;
  std::vector<Process> processes_;
};

}  // namespace syncd::test
