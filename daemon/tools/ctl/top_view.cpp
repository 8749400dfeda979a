// See top_view.h.
#include "daemon/tools/ctl/top_view.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "daemon/tools/ctl/table.h"
#include "proto/base/plain_text.h"

namespace syncd::ctl {
namespace {

constexpr std::size_t kLinesAbove = 4;  // title, totals, note, header
constexpr std::size_t kLinesBelow = 1;  // keys
// In the order of TopSort.
constexpr std::array<std::string_view, kTopSorts> kSortNames = {"rank", "clock", "waiting", "rate",
                                                                "host"};

// "0.25", "12.3", "4567".
std::string rate_text(std::optional<double> rate) {
  if (!rate) return "-";
  return fmt::format("{:.{}f}", *rate, *rate < 10 ? 2 : *rate < 1000 ? 1 : 0);
}

std::optional<double> rate_of(double difference, const TopView& view) {
  if (view.before == nullptr) return std::nullopt;
  const auto us = static_cast<double>(view.now->now_us - view.before->now_us);
  if (us <= 0 || difference < 0) return std::nullopt;
  return difference * 1e6 / us;
}

// "0.3 s", "41 s", "12 min", "3.5 h": shorter than format_duration(), for a narrow column.
std::string short_duration(std::int64_t us) {
  const double s = static_cast<double>(us) / 1e6;
  if (s < 9.95) return fmt::format("{:.1f} s", s);
  if (s < 99.5) return fmt::format("{:.0f} s", s);
  if (s < 5970) return fmt::format("{:.0f} min", s / 60);
  return fmt::format("{:.1f} h", s / 3600);
}

enum class Tone : std::uint8_t { kPlain, kWaiting, kAway, kGone };

struct Column {
  const char* title;
  bool right;
  std::size_t least;  // columns that it needs to be of use
  std::size_t most;   // it takes no more
  int weight;         // the lightest is left out first
};

struct Table {
  std::vector<Column> columns;
  std::size_t rows = 0;
  std::function<std::vector<std::string>(std::size_t row)> cells;
  std::function<Tone(std::size_t row)> tone;
};

std::string toned(const std::string& line, Tone tone, bool colours) {
  if (!colours || tone == Tone::kPlain) return line;
  const char* code = tone == Tone::kWaiting ? "33" : tone == Tone::kAway ? "31" : "2";
  return std::string("\x1b[") + code + "m" + line + "\x1b[0m";
}

// The columns that have room, by index, and how wide each is.
struct Layout {
  std::vector<std::size_t> shown;
  std::vector<std::size_t> widths;  // by column
};

Layout lay_out(const Table& table, const std::vector<std::vector<std::string>>& rows,
               std::size_t width) {
  Layout layout;
  std::vector<std::size_t> wanted;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const Column& column = table.columns[c];
    std::size_t needed = std::max(column.least, columns_of(column.title));
    for (const auto& row : rows) needed = std::max(needed, columns_of(row[c]));
    wanted.push_back(std::min(needed, std::max(column.most, column.least)));
    layout.widths.push_back(column.least);
    layout.shown.push_back(c);
  }
  const auto used = [&] {
    std::size_t sum = layout.shown.empty() ? 0 : layout.shown.size() - 1;
    for (const std::size_t c : layout.shown) sum += layout.widths[c];
    return sum;
  };
  while (layout.shown.size() > 1 && used() > width) {
    layout.shown.erase(std::min_element(layout.shown.begin(), layout.shown.end(),
                                        [&](std::size_t a, std::size_t b) {
                                          return table.columns[a].weight < table.columns[b].weight;
                                        }));
  }
  // What is left goes to those that want more, the heaviest first.
  std::vector<std::size_t> by_weight = layout.shown;
  std::sort(by_weight.begin(), by_weight.end(), [&](std::size_t a, std::size_t b) {
    return table.columns[a].weight > table.columns[b].weight;
  });
  for (const std::size_t c : by_weight) {
    const std::size_t left = width - std::min(width, used());
    layout.widths[c] += std::min(left, wanted[c] - layout.widths[c]);
  }
  return layout;
}

std::string line_of(const Table& table, const Layout& layout,
                    const std::vector<std::string>& cells) {
  std::string line;
  for (const std::size_t c : layout.shown) {
    if (c != layout.shown.front()) line += ' ';
    line += padded(cells[c], layout.widths[c], table.columns[c].right);
  }
  return line;
}

void add_table(const Table& table, const TopView& view, std::vector<std::string>& lines) {
  const std::size_t first = std::min(view.scroll, top_scroll_max(view));
  const std::size_t last = std::min(table.rows, first + top_rows(view));
  std::vector<std::vector<std::string>> rows;
  for (std::size_t row = first; row < last; ++row) rows.push_back(table.cells(row));
  const Layout layout = lay_out(table, rows, view.width);
  std::vector<std::string> titles;
  for (const Column& column : table.columns) titles.emplace_back(column.title);
  const std::string header = padded(line_of(table, layout, titles), view.width, false);
  lines.push_back(view.colours ? "\x1b[7m" + header + "\x1b[0m" : header);
  for (std::size_t row = first; row < last; ++row) {
    std::string line = fit(line_of(table, layout, rows[row - first]), view.width);
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(toned(line, table.tone(row), view.colours));
  }
}

bool present(const wire::WorkerStatus& w) {
  return w.state != "left" && w.state != "lost";
}

std::int64_t lowest_clock(const std::vector<wire::WorkerStatus>& workers) {
  std::int64_t lowest = std::numeric_limits<std::int64_t>::max();
  for (const wire::WorkerStatus& w : workers) {
    if (present(w)) lowest = std::min(lowest, w.clock);
  }
  return lowest;
}

// By index into now->workers: iterations a second.
std::vector<std::optional<double>> worker_rates(const TopView& view) {
  std::vector<std::optional<double>> rates(view.now->workers.size());
  if (view.before == nullptr) return rates;
  // Both lists are in rank order.
  auto before = view.before->workers.begin();
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const wire::WorkerStatus& w = view.now->workers[i];
    while (before != view.before->workers.end() && before->rank < w.rank) ++before;
    if (before == view.before->workers.end() || before->rank != w.rank) continue;
    rates[i] = rate_of(static_cast<double>(w.clock - before->clock), view);
  }
  return rates;
}

std::vector<std::size_t> worker_order(const TopView& view,
                                      const std::vector<std::optional<double>>& rates) {
  const std::vector<wire::WorkerStatus>& workers = view.now->workers;
  std::vector<std::size_t> order(workers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (view.sort == TopSort::kRank) return order;
  const auto is_before = [&](std::size_t a, std::size_t b) {
    const wire::WorkerStatus& one = workers[a];
    const wire::WorkerStatus& other = workers[b];
    // Those that are gone come last.
    if (present(one) != present(other)) return present(one);
    switch (view.sort) {
      case TopSort::kClock:
        return one.clock < other.clock;
      case TopSort::kWaiting:
        return one.waiting_us > other.waiting_us;
      case TopSort::kRate:
        return rates[a].value_or(1e300) < rates[b].value_or(1e300);
      default:
        return one.host < other.host;
    }
  };
  std::ranges::stable_sort(order, is_before);
  return order;
}

void add_workers(const TopView& view, std::vector<std::string>& lines) {
  const std::vector<wire::WorkerStatus>& workers = view.now->workers;
  const auto rates = worker_rates(view);
  const auto order = worker_order(view, rates);
  const std::int64_t lowest = lowest_clock(workers);
  Table table;
  table.columns = {
      {"RANK", true, 4, 10, 100},  {"NAME", false, 6, 28, 20}, {"HOST", false, 6, 28, 40},
      {"STATE", false, 7, 12, 60}, {"CLOCK", true, 7, 12, 90}, {"IT/S", true, 6, 8, 80},
      {"AHEAD", true, 5, 8, 50},   {"WAITED", true, 6, 7, 70}, {"FOR", false, 6, 60, 65}};
  // Of workers that mark when they have computed.
  const bool marked =
      std::ranges::any_of(workers, [](const wire::WorkerStatus& w) { return w.exchange_us >= 0; });
  if (marked) {
    table.columns.push_back({"COMPUTES", true, 8, 8, 77});
    table.columns.push_back({"EXCHANGE", true, 8, 8, 76});
  }
  table.rows = workers.size();
  table.cells = [&](std::size_t row) -> std::vector<std::string> {
    const std::size_t i = order[row];
    const wire::WorkerStatus& w = workers[i];
    const bool waiting = w.waiting_us >= 0;
    std::vector<std::string> cells = {fmt::to_string(w.rank),
                                      w.name,
                                      w.host,
                                      w.straggler_since_us >= 0
                                          ? fmt::format("slow x{:.1f}", w.straggler_factor)
                                      : waiting                    ? "waiting"
                                      : w.connected || !present(w) ? w.state
                                                                   : "away",
                                      fmt::to_string(w.clock),
                                      rate_text(rates[i]),
                                      present(w) ? fmt::to_string(w.clock - lowest) : "-",
                                      waiting ? short_duration(w.waiting_us) : "-",
                                      waiting ? w.waiting_for : ""};
    if (marked) {
      cells.push_back(w.exchange_us >= 0 ? short_duration(w.computed_us) : "-");
      cells.push_back(w.exchange_us >= 0 ? short_duration(w.exchange_us) : "-");
    }
    return cells;
  };
  table.tone = [&](std::size_t row) {
    const wire::WorkerStatus& w = workers[order[row]];
    if (!present(w)) return Tone::kGone;
    if (!w.connected || w.straggler_since_us >= 0) return Tone::kAway;
    return w.waiting_us >= 0 ? Tone::kWaiting : Tone::kPlain;
  };
  add_table(table, view, lines);
}

std::map<std::uint32_t, std::uint64_t> pushes_by_job(const TopSample* sample) {
  std::map<std::uint32_t, std::uint64_t> pushes;
  if (sample == nullptr) return pushes;
  for (const wire::JobStatus& job : sample->jobs) pushes[job.id] = job.pushes;
  return pushes;
}

std::optional<double> job_rate(const TopView& view, const wire::JobStatus& job,
                               const std::map<std::uint32_t, std::uint64_t>& before) {
  const auto found = before.find(job.id);
  if (found == before.end() || job.pushes < found->second) return std::nullopt;
  return rate_of(static_cast<double>(job.pushes - found->second), view);
}

void add_jobs(const TopView& view, std::vector<std::string>& lines) {
  const std::vector<wire::JobStatus>& jobs = view.now->jobs;
  const auto before = pushes_by_job(view.before);
  Table table;
  table.columns = std::vector<Column>{{"ID", true, 4, 10, 90},      {"JOB", false, 8, 64, 100},
                                      {"POLICY", false, 6, 30, 60}, {"STATE", false, 7, 10, 70},
                                      {"WORKERS", true, 7, 13, 75}, {"CLOCKS", true, 7, 23, 40},
                                      {"IT/S", true, 6, 9, 80},     {"PUSHES", true, 7, 14, 30},
                                      {"WAITING", true, 7, 7, 65},  {"NOTE", false, 8, 200, 20}};
  table.rows = jobs.size();
  table.cells = [&](std::size_t row) -> std::vector<std::string> {
    std::vector<std::string> cells = job_cells(jobs[row]);
    cells.insert(cells.begin() + 6, rate_text(job_rate(view, jobs[row], before)));
    return cells;
  };
  table.tone = [&](std::size_t row) {
    return jobs[row].state == "stopped" ? Tone::kGone : Tone::kPlain;
  };
  add_table(table, view, lines);
}

std::string title(const TopView& view) {
  if (view.now == nullptr) return "syncctl top";
  const std::string at = fmt::format("{:%H:%M:%S} UTC", fmt::gmtime(view.now->now_us / 1'000'000));
  if (!view.now->one_job) {
    const std::size_t count = view.now->jobs.size();
    return fmt::format("{}  {} job{}", at, count, count == 1 ? "" : "s");
  }
  if (view.now->jobs.empty()) return at + "  the job is not in the daemon's list";
  const wire::JobStatus& j = view.now->jobs[0];
  return fmt::format("{}  {} (#{})  {}  {}", at, j.name, j.id, j.policy, j.state);
}

std::string totals(const TopView& view) {
  if (view.now == nullptr) return {};
  std::uint64_t pushes = 0;
  std::uint64_t waiting = 0;
  std::uint64_t active = 0;
  double rate = 0;
  bool known = false;
  const auto before = pushes_by_job(view.before);
  for (const wire::JobStatus& job : view.now->jobs) {
    pushes += job.pushes;
    waiting += job.waiting;
    active += job.active_workers;
    const auto of_job = job_rate(view, job, before);
    known = known || of_job;
    rate += of_job.value_or(0);
  }
  std::string expected;
  std::string clocks;
  if (view.now->one_job && !view.now->jobs.empty()) {
    const wire::JobStatus& j = view.now->jobs[0];
    expected = fmt::format("/{}", j.expected_workers);
    clocks = fmt::format("  clocks {}..{}", j.clock_min, j.clock_max);
  }
  return fmt::format("workers {}{}  waiting {}{}  {} it/s  pushes {}", active, expected, waiting,
                     clocks, known ? rate_text(rate) : "-", pushes);
}

std::size_t row_count(const TopView& view) {
  if (view.now == nullptr) return 0;
  return view.now->one_job ? view.now->workers.size() : view.now->jobs.size();
}

std::string keys(const TopView& view) {
  const std::size_t count = row_count(view);
  const std::size_t first = std::min(view.scroll, top_scroll_max(view));
  const std::size_t last = std::min(count, first + top_rows(view));
  std::string text = "q quit  j/k scroll";
  if (view.now != nullptr && view.now->one_job) {
    text += fmt::format("  s sort: {}", to_string(view.sort));
  }
  if (count == 0) return text;
  return fmt::format("{}  rows {}-{} of {}", text, first + 1, last, count);
}

}  // namespace

std::vector<std::string> job_cells(const wire::JobStatus& j) {
  return {fmt::format("#{}", j.id),
          j.name,
          j.policy,
          j.state,
          fmt::format("{}/{}", j.active_workers, j.expected_workers),
          fmt::format("{}..{}", j.clock_min, j.clock_max),
          fmt::to_string(j.pushes),
          fmt::to_string(j.waiting),
          noted(j)};
}

std::string noted(const wire::JobStatus& job) {
  if (job.hang.empty()) return job.note;
  const std::string who = job.hang_ranks.empty() ? "" : " because of rank " + job.hang_ranks;
  return "hangs" + who + (job.note.empty() ? "" : "; " + job.note);
}

std::string_view to_string(TopSort sort) {
  return kSortNames[static_cast<std::size_t>(sort)];
}

TopSort next_sort(TopSort sort) {
  return static_cast<TopSort>((static_cast<std::size_t>(sort) + 1) % kTopSorts);
}

bool parse_sort(std::string_view text, TopSort& sort) {
  const auto* found = std::ranges::find(kSortNames, text);
  if (found == kSortNames.end()) return false;
  sort = static_cast<TopSort>(found - kSortNames.begin());
  return true;
}

std::size_t top_rows(const TopView& view) {
  return view.height - std::min(view.height, kLinesAbove + kLinesBelow);
}

std::size_t top_scroll_max(const TopView& view) {
  return row_count(view) - std::min(row_count(view), top_rows(view));
}

std::vector<std::string> render_top(const TopView& view) {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& text, const char* code) {
    const std::string shown = fit(text, view.width);
    const bool styled = view.colours && code[0] != '\0' && !shown.empty();
    lines.push_back(styled ? std::string("\x1b[") + code + "m" + shown + "\x1b[0m" : shown);
  };
  add(title(view), "1");
  add(totals(view), "");
  if (!view.notice.empty()) {
    add(view.notice, "31");
  } else {
    const bool has_job = view.now != nullptr && view.now->one_job && !view.now->jobs.empty();
    add(has_job ? noted(view.now->jobs[0]) : std::string(), "");
  }
  if (view.now != nullptr) {
    if (view.now->one_job) {
      add_workers(view, lines);
    } else {
      add_jobs(view, lines);
    }
  }
  if (lines.size() + kLinesBelow > view.height) {
    lines.resize(view.height - std::min(view.height, kLinesBelow));
  }
  while (lines.size() + kLinesBelow < view.height) lines.emplace_back();
  if (lines.size() < view.height) add(keys(view), "2");
  return lines;
}

std::vector<TopKey> parse_keys(std::string_view bytes) {
  struct Code {
    std::string_view bytes;
    TopKey key;
  };
  static constexpr std::array kCodes = {
      Code{"\x1b[A", TopKey::kUp},      Code{"\x1bOA", TopKey::kUp},
      Code{"\x1b[B", TopKey::kDown},    Code{"\x1bOB", TopKey::kDown},
      Code{"\x1b[5~", TopKey::kPageUp}, Code{"\x1b[6~", TopKey::kPageDown},
      Code{"\x1b[H", TopKey::kFirst},   Code{"\x1b[1~", TopKey::kFirst},
      Code{"\x1b[F", TopKey::kLast},    Code{"\x1b[4~", TopKey::kLast},
      Code{"q", TopKey::kQuit},         Code{"Q", TopKey::kQuit},
      Code{"k", TopKey::kUp},           Code{"j", TopKey::kDown},
      Code{"g", TopKey::kFirst},        Code{"G", TopKey::kLast},
      Code{"s", TopKey::kSort},         Code{" ", TopKey::kPageDown}};
  std::vector<TopKey> keys;
  while (!bytes.empty()) {
    const auto* code = std::find_if(kCodes.begin(), kCodes.end(), [&](const Code& candidate) {
      return bytes.starts_with(candidate.bytes);
    });
    if (code != kCodes.end()) {
      keys.push_back(code->key);
      bytes.remove_prefix(code->bytes.size());
      continue;
    }
    // An unknown sequence is skipped to its final byte, so that none of it is taken for a key.
    std::size_t length = 1;
    if (bytes.size() > 1 && bytes[0] == '\x1b' && (bytes[1] == '[' || bytes[1] == 'O')) {
      length = 2;
      while (length < bytes.size() && (bytes[length] < '@' || bytes[length] > '~')) ++length;
      length = std::min(bytes.size(), length + 1);
    }
    bytes.remove_prefix(length);
  }
  return keys;
}

}  // namespace syncd::ctl
