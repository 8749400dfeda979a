// What `syncctl top` shows: samples of a daemon in, lines of text out. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/wire/wire.h"

namespace syncd::ctl {

// What the daemon said at one moment: of one job, or, if `one_job` is not set, of all.
struct TopSample {
  std::int64_t now_us = 0;  // the daemon's clock
  bool one_job = false;
  std::vector<wire::JobStatus> jobs;  // with one_job that one, else all
  std::vector<wire::WorkerStatus> workers;
};

enum class TopSort : std::uint8_t { kRank, kClock, kWaiting, kRate, kHost };
inline constexpr std::uint8_t kTopSorts = 5;
std::string_view to_string(TopSort sort);
TopSort next_sort(TopSort sort);
// False: there is no such order; `sort` is then untouched.
bool parse_sort(std::string_view text, TopSort& sort);

// A row of a job: ID, JOB, POLICY, STATE, WORKERS, CLOCKS, PUSHES, WAITING, NOTE.
std::vector<std::string> job_cells(const wire::JobStatus& job);
// What NOTE says: whether it hangs, and because of whom; then the daemon's own note.
std::string noted(const wire::JobStatus& job);

struct TopView {
  const TopSample* before = nullptr;  // an earlier sample, for rates; null: none yet
  const TopSample* now = nullptr;     // null: nothing has come yet
  std::size_t width = 80;             // characters of a line
  std::size_t height = 24;            // lines
  TopSort sort = TopSort::kRank;
  std::size_t scroll = 0;  // rows that are above the first one shown
  bool colours = false;
  std::string notice;  // why what is shown is old; empty: it is not
};

// At most view.height lines of at most view.width characters each, without line breaks. Only rows
// that are seen are formatted; sorting all is O(n log n). A scroll beyond the end shows the end.
std::vector<std::string> render_top(const TopView& view);

// How many rows have room, and the largest scroll that makes sense.
std::size_t top_rows(const TopView& view);
std::size_t top_scroll_max(const TopView& view);

enum class TopKey : std::uint8_t { kQuit, kUp, kDown, kPageUp, kPageDown, kFirst, kLast, kSort };
// The keys in what a terminal sent; what is none is left out.
std::vector<TopKey> parse_keys(std::string_view bytes);

}  // namespace syncd::ctl
