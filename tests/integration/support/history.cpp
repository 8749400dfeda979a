// See history.h.
#include "support/history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "support/json.h"

namespace syncd::test {
namespace {

// Fields of one CSV text by RFC 4180: quoted ones may hold commas, line ends and doubled quotes.
std::vector<std::vector<std::string>> split_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1);
  std::string field;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"') {
        field += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += text[++i];
      } else {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      rows.back().push_back(std::exchange(field, {}));
    } else if (c == '\n') {
      if (field.ends_with('\r')) field.pop_back();
      rows.back().push_back(std::exchange(field, {}));
      rows.emplace_back();
    } else {
      field += c;
    }
  }
  if (quoted) throw std::runtime_error("the CSV ends within quotes");
  if (!rows.back().empty() || !field.empty()) {
    throw std::runtime_error("the CSV's last line does not end");
  }
  rows.pop_back();
  return rows;
}

// The two formats may write one number with different digits: as its value says.
std::string as_number(const std::string& text) {
  char out[40];
  std::snprintf(out, sizeof out, "%.17g", std::stod(text));
  return out;
}

// As the CSV shows it: a list is its items with spaces between them.
std::string as_text(const nlohmann::json& value) {
  if (value.is_null()) return {};
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return as_number(value.dump());
  if (!value.is_array()) return value.dump();
  std::string list;
  for (const auto& item : value) list += (list.empty() ? "" : " ") + item.dump();
  return list;
}

// The output of one export, which must have gone well.
std::string exported(const TempDir& directory, const std::vector<std::string>& where,
                     const std::string& job, const std::string& format) {
  std::vector<std::string> argv = {program("syncctl")};
  argv.insert(argv.end(), {"history", "export", job, "--format", format});
  argv.insert(argv.end(), where.begin(), where.end());
  const RunResult result = run(argv, directory.path(), {{"HOME", directory.path()}});
  if (result.ending != exited(0)) {
    throw std::runtime_error("the export as " + format + " ended with " + to_string(result.ending) +
                             ": " + result.err);
  }
  return result.out;
}

History both_formats(const TempDir& directory, const std::vector<std::string>& where,
                     const std::string& job) {
  History csv = parse_csv(exported(directory, where, job, "csv"));
  const History json = parse_json_lines(exported(directory, where, job, "jsonl"));
  EXPECT_EQ(csv.rows.size(), json.rows.size());
  for (std::size_t i = 0; i < std::min(csv.rows.size(), json.rows.size()); ++i) {
    EXPECT_EQ(csv.rows[i], json.rows[i]) << "the two formats differ in record " << i + 1;
  }
  return csv;
}

std::string joined(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t n : numbers) text += (text.empty() ? "" : " ") + std::to_string(n);
  return text;
}

}  // namespace

History export_history(const TempDir& directory, const Daemon& daemon, const std::string& job) {
  return both_formats(directory, {"--addr", daemon.address()}, job);
}

History export_store(const TempDir& directory, const Daemon& daemon, const std::string& job) {
  return both_formats(directory, {"--store", daemon.store_path()}, job);
}

void expect_exactly_once(const History& history, const WorkerGroup& workers) {
  for (std::size_t i = 0; i < history.rows.size(); ++i) {
    ASSERT_EQ(number(history.rows[i], "sequence"), static_cast<std::int64_t>(i + 1));
  }
  for (int rank = workers.options().first_rank; rank < workers.end_rank(); ++rank) {
    const auto stored = history.pushes(rank);
    const auto seen = workers.acknowledged(rank);
    // Strictly rising: each at most once, and in order.
    EXPECT_TRUE(std::adjacent_find(stored.begin(), stored.end(), std::greater_equal<>()) ==
                stored.end())
        << "worker " << rank << " has in the history: " << joined(stored);
    EXPECT_TRUE(std::includes(stored.begin(), stored.end(), seen.begin(), seen.end()))
        << "worker " << rank << " saw acknowledged: " << joined(seen)
        << "\nand has in the history: " << joined(stored);
  }
}

std::int64_t number(const Row& row, const std::string& column) {
  const auto found = row.find(column);
  if (found == row.end()) throw std::runtime_error("a record has no " + column);
  return std::stoll(found->second);
}

std::string json_value(const std::string& text, const std::string& pointer) {
  return as_text(nlohmann::json::parse(text).at(nlohmann::json::json_pointer(pointer)));
}

bool is_json(const std::string& text) {
  return nlohmann::json::accept(text);
}

History parse_csv(const std::string& text) {
  const auto lines = split_csv(text);
  if (lines.empty()) throw std::runtime_error("the CSV has no header");
  History history;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].size() != lines[0].size()) {
      throw std::runtime_error("line " + std::to_string(i + 1) + " of the CSV has " +
                               std::to_string(lines[i].size()) + " fields, the header has " +
                               std::to_string(lines[0].size()));
    }
    Row row;
    for (std::size_t column = 0; column < lines[0].size(); ++column) {
      const std::string& cell = lines[i][column];
      if (!cell.empty())
        row[lines[0][column]] = lines[0][column] == "loss" ? as_number(cell) : cell;
    }
    history.rows.push_back(std::move(row));
  }
  return history;
}

namespace {

Row row_of(const nlohmann::json& object) {
  Row row;
  for (const auto& [key, value] : object.items()) {
    std::string cell = as_text(value);
    if (!cell.empty()) row[key] = std::move(cell);
  }
  return row;
}

}  // namespace

std::vector<Row> json_rows(const std::string& text, const std::string& key) {
  std::vector<Row> rows;
  // Not in the loop's head: the list would be gone before the loop begins.
  const nlohmann::json whole = nlohmann::json::parse(text);
  for (const auto& object : whole.at(key)) rows.push_back(row_of(object));
  return rows;
}

History parse_json_lines(const std::string& text) {
  History history;
  for (const std::string& line : lines_of(text)) {
    history.rows.push_back(row_of(nlohmann::json::parse(line)));
  }
  return history;
}

std::vector<Row> History::of_kind(const std::string& kind) const {
  std::vector<Row> out;
  for (const Row& row : rows) {
    if (row.at("kind") == kind) out.push_back(row);
  }
  return out;
}

std::vector<std::int64_t> History::pushes(int rank) const {
  std::vector<std::int64_t> out;
  for (const Row& row : rows) {
    if (row.at("kind") == "push" && number(row, "rank") == rank) {
      out.push_back(number(row, "iteration"));
    }
  }
  return out;
}

}  // namespace syncd::test
