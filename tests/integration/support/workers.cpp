// See workers.h.
#include "support/workers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace syncd::test {

WorkerGroup::WorkerGroup(const TempDir& directory, WorkerGroupOptions options)
    : directory_(directory), options_(std::move(options)) {
  if (options_.world_size == 0) options_.world_size = options_.workers;
  for (int rank = options_.first_rank; rank < end_rank(); ++rank) {
    std::map<std::string, std::string> settings = {
        {"address", options_.address},
        {"job", options_.job},
        {"policy", options_.policy},
        {"journal", journal_path(rank)},
        {"rank", std::to_string(rank)},
        {"world_size", std::to_string(options_.world_size)},
        {"iterations", std::to_string(options_.iterations)},
        {"iteration_ms", std::to_string(options_.iteration_ms)}};
    if (const auto special = options_.special.find(rank); special != options_.special.end()) {
      for (const auto& [key, value] : special->second) settings[key] = value;
    }
    Command command;
    command.argv = {SYNCD_TEST_WORKER};
    for (const auto& [key, value] : settings) command.argv.push_back(key + "=" + value);
    command.environment = options_.environment;
    command.stdout_path = journal_path(rank) + ".out";
    processes_.emplace_back(command);
    commands_.push_back(std::move(command));
  }
}

void WorkerGroup::restart(int rank) {
  process(rank).kill();
  process(rank) = Process(commands_.at(static_cast<std::size_t>(rank - options_.first_rank)));
}

std::string WorkerGroup::journal_path(int rank) const {
  return directory_.file(options_.job + "-worker-" + std::to_string(rank));
}

std::vector<std::string> WorkerGroup::journal(int rank) const {
  return lines_of(read_file(journal_path(rank)));
}

bool WorkerGroup::has_line(int rank, const std::string& beginning) const {
  const auto lines = journal(rank);
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.starts_with(beginning); });
}

std::vector<std::int64_t> WorkerGroup::acknowledged(int rank) const {
  std::vector<std::int64_t> iterations;
  for (const std::string& line : journal(rank)) {
    std::istringstream in(line);
    std::string word;
    std::int64_t iteration = -1;
    if (in >> word >> iteration && word == "pushed") iterations.push_back(iteration);
  }
  return iterations;
}

std::size_t WorkerGroup::acknowledged_by_all() const {
  std::size_t total = 0;
  for (int rank = options_.first_rank; rank < end_rank(); ++rank)
    total += acknowledged(rank).size();
  return total;
}

void WorkerGroup::wait_for_line(int rank, const std::string& beginning, Milliseconds timeout) {
  const std::string what = "'" + beginning + "' of worker " + std::to_string(rank);
  wait_until(
      what, [&] { return has_line(rank, beginning); }, timeout);
}

std::string WorkerGroup::show(int rank) const {
  return "worker " + std::to_string(rank) + " of job " + options_.job + " said:\n" +
         read_file(journal_path(rank)) + read_file(journal_path(rank) + ".out");
}

void WorkerGroup::expect_all_finish(const std::vector<int>& but, Milliseconds timeout) {
  const Deadline deadline(timeout);
  for (int rank = options_.first_rank; rank < end_rank(); ++rank) {
    if (std::find(but.begin(), but.end(), rank) != but.end()) continue;
    try {
      EXPECT_EQ(process(rank).wait(Milliseconds(deadline.left_ms())), exited(0)) << show(rank);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << "\n" << show(rank);
    }
  }
}

}  // namespace syncd::test
