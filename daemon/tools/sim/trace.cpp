// See trace.h.
#include "daemon/tools/sim/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "daemon/core/engine/limits.h"
#include "proto/base/number.h"

namespace syncd::sim {
namespace {

// Why the file could not be opened or read. A folder can be opened, but not read.
std::string why() {
  return errno != 0 ? std::generic_category().message(errno) : "input error";
}

class Reader {
 public:
  Reader(std::istream& in, const std::string& name,
         const std::function<void(const RecordedPush&)>& on_push)
      : in_(in), name_(name), on_push_(on_push) {}

  bool read(std::string& error) {
    const int first = (in_ >> std::ws).peek();
    const bool read = !in_.bad() && (first == '{' ? read_json_lines() : read_csv());
    if (in_.bad()) {
      error_ = name_ + ": cannot be read: " + why();
    } else if (read && counts_.empty()) {
      error_ = name_ + ": no push with a span_us is in it";
    }
    if (error_.empty()) return true;
    error = error_;
    return false;
  }

 private:
  bool fail(std::size_t line, const std::string& what) {
    error_ = fmt::format("{}:{}: {}", name_, line, what);
    return false;
  }

  bool add(std::size_t line, std::int64_t rank, std::int64_t span,
           std::optional<std::int64_t> iteration, std::int64_t computed, bool in_phase) {
    if (rank < 0 || rank >= static_cast<std::int64_t>(limits::kWorkersPerJobMax)) {
      return fail(line, fmt::format("rank is {}, allowed are 0 to {}", rank,
                                    limits::kWorkersPerJobMax - 1));
    }
    if (span < 0 || span > limits::kSpanMax) {
      return fail(line, fmt::format("span_us is {}, allowed are 0 to {}", span, limits::kSpanMax));
    }
    if (computed < -1 || computed > limits::kSpanMax) {
      return fail(
          line, fmt::format("computed_us is {}, allowed are 0 to {}", computed, limits::kSpanMax));
    }
    const std::int64_t before = counts_[rank]++;
    on_push_({rank, iteration.value_or(before), std::max<Micros>(span, 1), computed, in_phase});
    return true;
  }

  bool read_json_lines() {
    std::string text;
    for (std::size_t line = 1; std::getline(in_, text); ++line) {
      if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
      const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
      if (!json.is_object()) return fail(line, "not a JSON object");
      if (json.value("kind", nlohmann::json()) != "push") continue;
      const auto span = json.find("span_us");
      if (span == json.end()) continue;
      const auto rank = json.find("rank");
      if (rank == json.end() || !rank->is_number_integer()) {
        return fail(line, "rank of this push is missing or not a whole number");
      }
      if (!span->is_number_integer()) return fail(line, "span_us is not a whole number");
      const auto iteration = json.find("iteration");
      std::optional<std::int64_t> k;
      if (iteration != json.end() && iteration->is_number_integer()) k = *iteration;
      std::int64_t computed_us = -1;
      if (const auto computed = json.find("computed_us"); computed != json.end()) {
        if (!computed->is_number_integer()) return fail(line, "computed_us is not a whole number");
        computed_us = *computed;
      }
      const bool in_phase = json.value("in_phase", nlohmann::json()) == true;
      if (!add(line, rank->get<std::int64_t>(), span->get<std::int64_t>(), k, computed_us,
               in_phase)) {
        return false;
      }
    }
    return true;
  }

  // One row of RFC 4180, whose quoted cells may hold line breaks. False: the end, or an error.
  bool next_row(std::vector<std::string>& cells) {
    cells.assign(1, {});
    row_line_ = line_;
    bool quoted = false;
    bool any = false;
    for (int c = in_.get(); c != std::istream::traits_type::eof(); c = in_.get()) {
      any = true;
      if (c == '\n') ++line_;
      if (quoted) {
        if (c != '"') {
          cells.back() += static_cast<char>(c);
        } else if (in_.peek() == '"') {
          cells.back() += static_cast<char>(in_.get());
        } else {
          quoted = false;
        }
      } else if (c == '"' && cells.back().empty()) {
        quoted = true;
      } else if (c == ',') {
        cells.emplace_back();
      } else if (c == '\n') {
        return true;
      } else if (c != '\r') {
        cells.back() += static_cast<char>(c);
      }
    }
    if (quoted) return fail(row_line_, "a quoted cell that begins here has no end");
    return any;
  }

  bool number(const std::string& text, const char* column, std::int64_t& value) {
    return parse_number(text, value) ||
           fail(row_line_, fmt::format("{} is '{}', not a whole number", column, text));
  }

  bool read_csv() {
    std::vector<std::string> cells;
    if (!next_row(cells)) return error_.empty() ? fail(1, "the file is empty") : false;
    const auto column = [&](const char* name) {
      return static_cast<std::size_t>(std::find(cells.begin(), cells.end(), name) - cells.begin());
    };
    const std::size_t width = cells.size();
    const std::size_t kind = column("kind");
    const std::size_t rank = column("rank");
    const std::size_t span = column("span_us");
    const std::size_t iteration = column("iteration");
    const std::size_t computed = column("computed_us");
    const std::size_t phase = column("in_phase");
    for (const auto& [at, name] : {std::pair{kind, "kind"}, {rank, "rank"}, {span, "span_us"}}) {
      if (at == width) {
        return fail(1, std::string("no column '") + name +
                           "': expected is what syncctl history export writes, as csv or jsonl");
      }
    }
    while (next_row(cells)) {
      if (cells.size() == 1 && cells[0].empty()) continue;
      if (cells.size() != width) {
        return fail(row_line_,
                    fmt::format("{} cells, but the first line has {}", cells.size(), width));
      }
      if (cells[kind] != "push" || cells[span].empty()) continue;
      std::int64_t worker = 0;
      std::int64_t us = 0;
      std::int64_t k = 0;
      std::int64_t computed_us = -1;
      const bool is_marked = computed < width && !cells[computed].empty();
      const bool has_iteration = iteration < width && !cells[iteration].empty();
      if (!number(cells[rank], "rank", worker) || !number(cells[span], "span_us", us) ||
          (has_iteration && !number(cells[iteration], "iteration", k)) ||
          (is_marked && !number(cells[computed], "computed_us", computed_us)) ||
          !add(row_line_, worker, us, has_iteration ? std::optional(k) : std::nullopt, computed_us,
               phase < width && cells[phase] == "true")) {
        return false;
      }
    }
    return error_.empty();
  }

  std::istream& in_;
  const std::string& name_;
  std::size_t line_ = 1;
  std::size_t row_line_ = 1;
  const std::function<void(const RecordedPush&)>& on_push_;
  std::map<std::int64_t, std::int64_t> counts_;
  std::string error_;
};

// f(stream) of an opened file; false, with a sentence in `error`, if it cannot be opened.
template <class F>
bool with_file(const std::string& path, std::string& error, F f) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (in) return f(in);
  error = path + ": cannot be opened: " + why();
  return false;
}

}  // namespace

bool read_pushes(std::istream& in, const std::string& name,
                 const std::function<void(const RecordedPush&)>& on_push, std::string& error) {
  return Reader(in, name, on_push).read(error);
}

bool read_pushes_file(const std::string& path,
                      const std::function<void(const RecordedPush&)>& on_push, std::string& error) {
  return with_file(path, error,
                   [&](std::istream& in) { return read_pushes(in, path, on_push, error); });
}

std::shared_ptr<const Trace> read_trace(std::istream& in, const std::string& name,
                                        std::string& error) {
  std::map<std::int64_t, std::vector<Micros>> spans;
  const auto add = [&](const RecordedPush& push) { spans[push.rank].push_back(push.span_us); };
  if (!read_pushes(in, name, add, error)) return nullptr;
  auto trace = std::make_shared<Trace>();
  for (auto& [rank, own] : spans) trace->spans.push_back(std::move(own));
  return trace;
}

std::shared_ptr<const Trace> read_trace_file(const std::string& path, std::string& error) {
  std::shared_ptr<const Trace> trace;
  with_file(path, error, [&](std::istream& in) {
    trace = read_trace(in, path, error);
    return trace != nullptr;
  });
  return trace;
}

}  // namespace syncd::sim
