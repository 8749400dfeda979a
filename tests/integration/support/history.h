// A job's history as `syncctl history export` shows it, in both formats. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "support/daemon.h"
#include "support/files.h"
#include "support/workers.h"

namespace syncd::test {

// One record: column (or JSON key) to value as text. A value that is absent, empty or null is not
// in the map.
using Row = std::map<std::string, std::string>;

struct History {
  std::vector<Row> rows;

  std::vector<Row> of_kind(const std::string& kind) const;
  // Iterations that a worker pushed, in the order of the history.
  std::vector<std::int64_t> pushes(int rank) const;
};

std::int64_t number(const Row& row, const std::string& column);

bool is_json(const std::string& text);
// The list of objects that a JSON object has under `key`, each like a record.
std::vector<Row> json_rows(const std::string& text, const std::string& key);

History parse_csv(const std::string& text);
History parse_json_lines(const std::string& text);

// Exports from the live daemon in both formats, checks that they say the same, and returns it.
History export_history(const TempDir& directory, const Daemon& daemon, const std::string& job);
// The same from the store's directory while no daemon runs.
History export_store(const TempDir& directory, const Daemon& daemon, const std::string& job);

// Expects sequences without a gap, and of each worker no push twice, all in order, and none missing
// that the worker saw acknowledged.
void expect_exactly_once(const History& history, const WorkerGroup& workers);

}  // namespace syncd::test
