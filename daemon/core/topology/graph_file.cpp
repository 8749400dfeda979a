// Graphs from files; see graph_spec.h.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "daemon/core/topology/graph_spec.h"
#include "proto/base/file.h"
#include "proto/base/number.h"
#include "proto/base/text.h"

namespace syncd::topology {
namespace {

constexpr std::string_view kBlanks = " \t\r";

// The next word of `rest`, which it is taken from; empty at the end.
std::string_view take_word(std::string_view& rest) {
  rest = trimmed(rest, kBlanks);
  const std::string_view word = rest.substr(0, rest.find_first_of(kBlanks));
  rest.remove_prefix(word.size());
  return word;
}

// A whole number from 0 to `highest`.
std::optional<std::size_t> whole_number(std::string_view text, std::size_t highest) {
  std::size_t number = 0;
  if (!parse_number(text, number) || number > highest) return std::nullopt;
  return number;
}

class GraphReader {
 public:
  explicit GraphReader(const std::string& name, FileErrors errors = FileErrors::kForOwner)
      : name_(name), errors_(errors) {}

  std::optional<Graph> read(std::string_view text) {
    while (!text.empty()) {
      ++line_;
      std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      line = trimmed(line.substr(0, line.find('#')), kBlanks);
      if (line.empty()) continue;
      if (!started_)
        matrix_ = line.find(',') != std::string_view::npos || line == "0" || line == "1";
      started_ = true;
      if (!(matrix_ ? read_row(line) : read_edge(line))) return std::nullopt;
    }
    return finish();
  }

  const std::string& error() const { return error_; }

 private:
  // The beginning of what stands in the file, or what it would have to be.
  std::string quoted(std::string_view text, const char* instead) const {
    constexpr std::size_t kQuotedBytesMax = 32;
    if (errors_ == FileErrors::kForClients) return instead;
    return fmt::format("'{}{}'", text.substr(0, kQuotedBytesMax),
                       text.size() > kQuotedBytesMax ? "..." : "");
  }

  // The line number is left out where the fault is not in one line.
  bool fail(const std::string& what, bool in_line = true) {
    error_ = in_line ? fmt::format("{}:{}: {}", name_, line_, what) : name_ + ": " + what;
    return false;
  }

  bool add(std::size_t from, std::size_t to) {
    if (edges_.size() >= kEdgesMax) {
      return fail(fmt::format("more than {} edges, which is the limit", kEdgesMax));
    }
    edges_.push_back({static_cast<Node>(from), static_cast<Node>(to)});
    return true;
  }

  bool read_row(std::string_view line) {
    std::size_t column = 0;
    for (std::string_view rest = line; true; ++column) {
      const std::string_view raw = rest.substr(0, rest.find(','));
      const std::string_view cell = trimmed(raw, kBlanks);
      if (cell != "0" && cell != "1") {
        return fail(fmt::format("column {} is {}, allowed are 0 and 1", column + 1,
                                quoted(cell, "something else")));
      }
      if (cell == "1" && column != rows_ && !add(rows_, column)) return false;
      if (raw.size() == rest.size()) break;
      rest.remove_prefix(raw.size() + 1);
    }
    ++column;
    if (rows_ == 0) nodes_ = column;
    ++rows_;
    if (column != nodes_) {
      return fail(fmt::format("it has {} columns, but the first row has {}", column, nodes_));
    }
    return rows_ <= nodes_ || fail(fmt::format("there are more rows than the {} columns", nodes_));
  }

  bool read_edge(std::string_view line) {
    std::string_view rest = line;
    const std::string_view first = take_word(rest);
    const std::string_view second = take_word(rest);
    if (!trimmed(rest, kBlanks).empty() || second.empty()) {
      return fail(quoted(line, "it") + " is no edge: FROM TO, two numbers");
    }
    if (first == "nodes") return read_nodes(second);
    const std::size_t highest = (declared_ ? nodes_ : kNodesMax) - 1;
    std::size_t ends[2];
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string_view word = i == 0 ? first : second;
      const auto number = whole_number(word, highest);
      if (!number) {
        return fail(fmt::format("node {}: allowed are whole numbers from 0 to {}",
                                quoted(word, "number"), highest));
      }
      ends[i] = *number;
      if (!declared_) nodes_ = std::max(nodes_, *number + 1);
    }
    return add(ends[0], ends[1]);
  }

  bool read_nodes(std::string_view word) {
    const auto number = whole_number(word, kNodesMax);
    if (!number || *number == 0) {
      return fail(fmt::format("nodes {}: allowed are whole numbers from 1 to {}", quoted(word, "N"),
                              kNodesMax));
    }
    if (declared_ || nodes_ > 0) return fail("'nodes' must stand once, before all edges");
    declared_ = true;
    nodes_ = *number;
    return true;
  }

  std::optional<Graph> finish() {
    if (nodes_ == 0) {
      fail("it holds no graph: neither edges (FROM TO) nor an adjacency matrix", false);
      return std::nullopt;
    }
    if (matrix_ && rows_ != nodes_) {
      fail(fmt::format("the adjacency matrix has {} rows and {} columns: it must be square", rows_,
                       nodes_),
           false);
      return std::nullopt;
    }
    return Graph(nodes_, edges_);
  }

  const std::string& name_;
  const FileErrors errors_;
  std::string error_;
  std::size_t line_ = 0;
  bool started_ = false;
  bool matrix_ = false;
  bool declared_ = false;
  std::size_t nodes_ = 0;
  std::size_t rows_ = 0;
  std::vector<Edge> edges_;
};

// The path may come from an administrator elsewhere: a pipe must not block the reader for ever, nor
// a device fill its memory, and what is opened is what was looked at.
std::optional<std::string> read_whole_file(const std::string& path, FileErrors errors,
                                           std::size_t bytes_max, std::string& error) {
  const auto fail = [&](const std::string& why) {
    const bool hides = errors == FileErrors::kForClients;
    error = fmt::format("graph file {} cannot be read: ", path);
    error += hides ? fmt::format(
                         "it must be a regular file that the daemon may read, of at most {} "
                         "bytes",
                         bytes_max)
                   : why;
    return std::nullopt;
  };
  const auto fail_by_errno = [&] { return fail(std::generic_category().message(errno)); };
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd) return fail_by_errno();
  struct stat found {};
  if (fstat(fd.get(), &found) != 0) return fail_by_errno();
  if (!S_ISREG(found.st_mode)) return fail("it is not a regular file");
  const auto size = static_cast<std::size_t>(found.st_size);
  if (size > bytes_max) {
    return fail(fmt::format("it has {} bytes, allowed are at most {}", size, bytes_max));
  }
  std::string text(size, '\0');
  const ssize_t got = read_all(fd.get(), text);
  if (got < 0) return fail_by_errno();
  if (static_cast<std::size_t>(got) < size) return fail("it ended early");
  return text;
}

}  // namespace

std::optional<Graph> parse_graph_text(std::string_view text, const std::string& name,
                                      std::string& error) {
  GraphReader reader(name);
  std::optional<Graph> graph = reader.read(text);
  if (!graph) error = reader.error();
  return graph;
}

bool load_graph_file(GraphSpec& spec, std::string& error, FileErrors errors,
                     std::size_t edges_max) {
  if (spec.kind != GraphKind::kFile || spec.loaded) return true;
  const std::optional<std::string> text =
      read_whole_file(spec.path, errors, graph_file_bytes_max(edges_max), error);
  if (!text) return false;
  GraphReader reader(spec.path, errors);
  std::optional<Graph> graph = reader.read(*text);
  if (!graph) {
    error = reader.error();
    return false;
  }
  spec.loaded = std::make_shared<const Graph>(std::move(*graph));
  return true;
}

std::string to_edge_list(const Graph& graph) {
  std::string text = fmt::format("nodes {}\n", graph.size());
  for (Node from = 0; from < graph.size(); ++from) {
    for (const Node to : graph.out(from)) text += fmt::format("{} {}\n", from, to);
  }
  return text;
}

}  // namespace syncd::topology
