// See table.h.
#include "daemon/tools/ctl/table.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "daemon/edge/store/record_fields.h"
#include "proto/base/clock.h"
#include "proto/base/number.h"
#include "proto/base/plain_text.h"

namespace syncd::ctl {
namespace {

constexpr std::string_view kUnknown = "?";
constexpr std::string_view kCut = "…";

struct Range {
  char32_t first;
  char32_t last;
};
constexpr std::array kWide = {
    Range{0x1100, 0x115F},   Range{0x2E80, 0x303E},   Range{0x3041, 0xA4CF},
    Range{0xAC00, 0xD7A3},   Range{0xF900, 0xFAFF},   Range{0xFE30, 0xFE6F},
    Range{0xFF00, 0xFF60},   Range{0xFFE0, 0xFFE6},   Range{0x1F300, 0x1F64F},
    Range{0x1F680, 0x1F6FF}, Range{0x1F900, 0x1FAFF}, Range{0x20000, 0x3FFFD}};
constexpr std::array kCombining = {
    Range{0x0300, 0x036F}, Range{0x0483, 0x0489}, Range{0x0591, 0x05BD}, Range{0x064B, 0x065F},
    Range{0x1AB0, 0x1AFF}, Range{0x1DC0, 0x1DFF}, Range{0x20D0, 0x20FF}, Range{0xFE20, 0xFE2F}};

template <std::size_t N>
bool in(const std::array<Range, N>& ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [c](const Range& range) { return c >= range.first && c <= range.last; });
}

struct Character {
  std::string_view bytes;  // kUnknown if it must not be shown as it is
  std::size_t columns = 1;
  std::size_t taken = 1;  // bytes of the text
};

Character first_character(std::string_view text) {
  const TextCharacter c = first_text_character(text);
  if (!is_plain(c)) return {kUnknown, 1, c.bytes};
  const std::size_t columns = in(kCombining, c.code) ? 0 : in(kWide, c.code) ? 2 : 1;
  return {text.substr(0, c.bytes), columns, c.bytes};
}

// A number, or the dash that stands for none.
bool looks_like_number(const std::string& cell) {
  return !cell.empty() && cell.find_first_not_of("0123456789.-+") == std::string::npos;
}

// In lines no wider than `most` if its pieces are: each ends with a comma, a colon or a plus. All
// but the first are indented.
std::vector<std::string> broken(const std::string& cell, std::size_t most) {
  if (columns_of(cell) <= most) return {cell};
  const std::string indent = "  ";
  std::vector<std::string> lines{{}};
  for (std::size_t at = 0; at < cell.size();) {
    const std::size_t stop = std::min(cell.find_first_of(",:+", at), cell.size() - 1) + 1;
    const std::string piece = cell.substr(at, stop - at);
    if (at > 0 && columns_of(lines.back()) + columns_of(piece) > most) lines.push_back(indent);
    lines.back() += piece;
    at = stop;
  }
  return lines;
}

bool is_worker_kind(RecordKind kind) {
  return kind == RecordKind::kPush || kind == RecordKind::kWorkerJoined ||
         kind == RecordKind::kWorkerLeft || kind == RecordKind::kWorkerLost;
}

using Kinds = std::uint32_t;
constexpr Kinds bit(RecordKind kind) {
  return Kinds{1} << static_cast<unsigned>(kind);
}

// Whether a field of a record says anything. A negative number does not where that is its default.
template <class F>
bool is_set(const typename F::Type& value) {
  if constexpr (std::is_same_v<typename F::Type, std::int64_t>) {
    if (kAbsent<F::member> < 0) return value >= 0;
  }
  return value != kAbsent<F::member>;
}

constexpr std::size_t kColumnGap = 2;

// Columns from .. to, beside the first, which is broken so that it is no wider than first_width.
std::string format_columns(const std::vector<std::string>& header,
                           const std::vector<std::vector<std::string>>& rows,
                           const std::vector<std::size_t>& widths, std::size_t first_width,
                           std::size_t from, std::size_t to) {
  // A column of numbers, and its title, stand to the right.
  std::vector<bool> right;
  for (std::size_t c = 0; c < header.size(); ++c) {
    right.push_back(std::all_of(rows.begin(), rows.end(),
                                [c](const auto& row) { return looks_like_number(row[c]); }));
  }
  std::string out;
  const auto add_row = [&](const std::vector<std::string>& row) {
    const std::vector<std::string> first = broken(row[0], first_width);
    for (std::size_t l = 0; l < first.size(); ++l) {
      std::string line = padded(first[l], first_width, right[0]);
      for (std::size_t c = from; c < to && l + 1 == first.size(); ++c) {
        line += std::string(kColumnGap, ' ') + padded(row[c], widths[c], right[c]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
  };
  add_row(header);
  for (const auto& row : rows) add_row(row);
  return out;
}

}  // namespace

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Character c = first_character(text);
    columns += c.columns;
    text.remove_prefix(c.taken);
  }
  return columns;
}

std::string fit(std::string_view text, std::size_t columns) {
  std::string out;
  std::size_t used = 0;
  std::size_t cut_at = 0;  // the bytes of `out` that leave room for the mark of a cut
  while (!text.empty()) {
    const Character c = first_character(text);
    if (used + c.columns > columns) {
      out.resize(cut_at);
      return columns == 0 ? std::string() : out + std::string(kCut);
    }
    out += c.bytes;
    used += c.columns;
    if (used < columns) cut_at = out.size();
    text.remove_prefix(c.taken);
  }
  return out;
}

std::string padded(std::string_view text, std::size_t columns, bool right) {
  const std::string shown = fit(text, columns);
  const std::string fill(columns - columns_of(shown), ' ');
  return right ? fill + shown : shown + fill;
}

std::string format_table(const std::vector<std::string>& header,
                         const std::vector<std::vector<std::string>>& given, std::size_t columns) {
  auto rows = given;
  for (auto& row : rows) {
    for (std::string& cell : row) cell = plain(cell);
  }
  std::vector<std::size_t> widths;
  for (const std::string& title : header) widths.push_back(columns_of(title));
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c)
      widths[c] = std::max(widths[c], columns_of(row[c]));
  }
  // Where each part of the table ends if the first column is so wide.
  const auto parts = [&](std::size_t first_width) {
    std::vector<std::size_t> ends;
    std::size_t used = first_width;
    for (std::size_t c = 1; c < widths.size(); ++c) {
      const std::size_t needed = kColumnGap + widths[c];
      if (used > first_width && columns - std::min(columns, used) < needed) {
        ends.push_back(c);
        used = first_width;
      }
      used += needed;
    }
    ends.push_back(widths.size());
    return ends;
  };
  std::size_t narrowest = 1;
  const auto pieces_of = [&](const std::string& cell) {
    for (const std::string& piece : broken(cell, 0)) {
      narrowest = std::max(narrowest, columns_of(piece));
    }
  };
  pieces_of(header[0]);
  for (const auto& row : rows) pieces_of(row[0]);
  // As few parts as can be, and with them the first column as wide as can be.
  std::size_t first_width = widths[0];
  const std::size_t fewest = parts(std::min(narrowest, widths[0])).size();
  while (first_width > narrowest && parts(first_width).size() > fewest) --first_width;
  std::string out;
  std::size_t from = 1;
  for (const std::size_t end : parts(first_width)) {
    if (!out.empty()) out += "\n";
    out += format_columns(header, rows, widths, first_width, from, end);
    from = end;
  }
  return out;
}

std::string json_text(const nlohmann::json& json, int indent) {
  return plain_json(json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace)) + "\n";
}

std::size_t output_columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* said = std::getenv("COLUMNS");
  std::size_t columns = 0;
  return said != nullptr && parse_number(said, columns) && columns > 0 ? columns : 80;
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string format_time(std::int64_t us) {
  if (us < 0) return "-";
  return utc_text(us, 6);
}

std::string format_age(std::int64_t now_us, std::int64_t then_us) {
  if (then_us < 0) return "-";
  return format_duration(std::max<std::int64_t>(0, now_us - then_us)) + " ago";
}

bool is_text(const std::vector<std::uint8_t>& data) {
  const std::string text(data.begin(), data.end());
  return !text.empty() && is_plain(text);
}

std::string hexadecimal(const std::vector<std::uint8_t>& bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::string data_text(const std::vector<std::uint8_t>& data) {
  if (is_text(data)) return {data.begin(), data.end()};
  return data.empty() ? "" : "0x" + hexadecimal(data);
}

const std::vector<RecordColumn>& record_columns() {
  using enum RecordKind;
  constexpr Kinds kAll = ~Kinds{0};
  constexpr Kinds kPushes = bit(kPush);
  constexpr Kinds kJoins = bit(kWorkerJoined);
  constexpr Kinds kCreations = bit(kJobCreated);
  constexpr Kinds kStarts = bit(kJobStarted);
  constexpr Kinds kVerdicts = bit(kStragglerDetected) | bit(kStragglerRecovered);
  constexpr Kinds kSizes = kCreations | kStarts;
  constexpr Kinds kSaves = bit(kCheckpointSaved);
  constexpr Kinds kCheckpoints = bit(kCheckpointAsked) | bit(kCheckpointFixed) | kSaves |
                                 bit(kCheckpointComplete) | bit(kCheckpointIncomplete);
  static const std::vector<RecordColumn> columns = {
      {"sequence", "number of the record within its job, from 1 without gaps", kAll},
      {"time_us", "when, in microseconds since the Unix epoch", kAll},
      {"time", "the same, in UTC (ISO 8601)"},
      {"kind", "what happened: job_created, worker_joined, push, ...", kAll},
      {"epoch",
       "the job's life: 1, and one more each time that its name is used anew or it reassembles",
       kAll},
      {"rank", "the worker; absent if the record is about the whole job"},
      {"incarnation", "the worker's life: raised at every join that is not a return", 0, 0},
      {"iteration", "the iteration that the record is about, from 0; the number of a view"},
      {"clock",
       "the worker's clock after it (push, worker_joined); where a group that was started again "
       "begins (job_started)",
       kPushes | kJoins, kStarts},
      {"base", "clock minus relative clock (worker_joined)", kJoins, 0},
      {"late", "the others had gone on without this push", kPushes, 0},
      {"resumed",
       "the worker came back with the same incarnation (worker_joined); the job was started again "
       "and goes on (job_started)",
       kJoins, kStarts},
      {"returned", "the worker came back to a job that reassembles (worker_joined)", 0, kJoins},
      {"span_us",
       "from the grant to the push; the lease (worker_leased); how long the worker had been "
       "slower, "
       "or as usual again, then (straggler_detected, straggler_recovered)",
       bit(kWorkerLeased) | kVerdicts, kPushes},
      {"computed_us",
       "from the grant until the worker had computed, if it marks that; the rest of span_us is "
       "exchange (push)",
       0, kPushes},
      {"in_phase",
       "a long phase was announced in the iteration, which says nothing of the worker's speed "
       "(push)",
       0, kPushes},
      {"factor",
       "how many times its usual time its iterations took (straggler_detected, "
       "straggler_recovered)",
       kVerdicts},
      {"waited_us", "how long begin was held before that grant", kPushes, 0},
      {"staleness",
       "iterations ahead of the slowest, or of the slowest in-neighbour, at that grant", kPushes,
       0},
      {"loss", "as the trainer reported it with the push", 0, kPushes},
      {"samples", "likewise", kPushes, 0},
      {"bytes", "likewise", kPushes, 0},
      {"name", "of the worker, or of the job (job_created)"},
      {"host", "of the worker"},
      {"data", "what the worker shows to the others, each byte as two hexadecimal digits"},
      {"policy", "of the job (job_created, policy_switched)"},
      {"expected_workers",
       "of the job (job_created); those that were ready (job_started); of the group that the "
       "worker "
       "is the first of (worker_joined)",
       kSizes, kJoins},
      {"min_workers", "of the job (job_created)", kCreations, 0},
      {"superstep", "barrier, plan"},
      {"predicted_us", "when the plan foresaw the barrier, since the Unix epoch (barrier, plan)"},
      {"predicted_wait_us", "the longest wait at it that the plan foresaw (barrier, plan)"},
      {"wait_us", "the longest wait that it came to (barrier)"},
      {"restarts", "how often the iteration's work was dropped after a re-sync (push)", 0, kPushes},
      {"wasted_us", "how long was computed and dropped then (push)", 0, kPushes},
      {"declined", "the last re-sync of the iteration was not followed (push)", 0, kPushes},
      {"values", "whole numbers of the kind's own (CSV: separated by blanks)"},
      {"reason",
       "of a stop, a loss, a note; why a checkpoint was asked for, or given up "
       "(checkpoint_asked, checkpoint_incomplete)"},
      {"checkpoint", "number of the checkpoint within its job (checkpoint_...)", kCheckpoints},
      {"shard", "the shard that the worker has saved (checkpoint_saved)", kSaves, 0},
      {"shards",
       "how many the checkpoint has; 0: the worker has nothing to save (checkpoint_saved)", kSaves,
       bit(kCheckpointComplete)},
      {"location", "where the shard lies (checkpoint_saved)", 0, kSaves},
      {"config",
       "the job's other settings (job_created), the worker's launch if that is new "
       "(worker_joined), as key=value lines"},
      {"members", "of a view, in its order: rank, incarnation, flags, name, host, data", 0,
       bit(kView)},
      {"job", "the job's id", kAll},
  };
  return columns;
}

std::vector<std::string> record_column_names() {
  std::vector<std::string> names;
  for (const RecordColumn& column : record_columns()) names.emplace_back(column.name);
  return names;
}

nlohmann::json record_json(const Record& record) {
  nlohmann::json out = {{"time", format_time(record.time_us)}};
  for_each_field(record, [&](auto field, const auto& value) {
    using F = decltype(field);
    const auto column = std::ranges::find(record_columns(), F::name, &RecordColumn::name);
    const bool is_fact = (column->always & bit(record.kind)) != 0 ||
                         ((column->if_set & bit(record.kind)) != 0 && is_set<F>(value));
    if (!is_fact) return;
    nlohmann::json& to = out[std::string(column->name)];
    if constexpr (std::is_same_v<typename F::Type, RecordKind>) {
      to = to_string(value);
    } else if constexpr (std::is_same_v<typename F::Type, std::vector<std::uint8_t>>) {
      to = hexadecimal(value);
    } else if constexpr (std::is_same_v<typename F::Type, std::vector<ViewMember>>) {
      to = nlohmann::json::array();
      for (const ViewMember& member : value) {
        to.push_back({{"rank", member.rank},
                      {"incarnation", member.incarnation},
                      {"flags", member.flags},
                      {"name", member.name},
                      {"host", member.host},
                      {"data", hexadecimal(member.data)}});
      }
    } else if constexpr (kIsOptional<typename F::Type>) {
      if (value) to = *value;
    } else {
      to = value;
    }
  });
  if (record.rank >= 0) out["incarnation"] = record.incarnation;
  return out;
}

std::vector<std::string> record_cells(const Record& record) {
  const nlohmann::json object = record_json(record);
  std::vector<std::string> cells;
  for (const RecordColumn& column : record_columns()) {
    const auto it = object.find(std::string(column.name));
    if (it == object.end()) {
      cells.emplace_back();
    } else if (it->is_string()) {
      cells.push_back(it->get<std::string>());
    } else if (it->is_number_float()) {
      cells.push_back(fmt::format("{:.17g}", it->get<double>()));
    } else if (it->is_array()) {
      std::string list;
      for (const auto& item : *it) list += (list.empty() ? "" : " ") + item.dump();
      cells.push_back(list);
    } else {
      cells.push_back(it->dump());
    }
  }
  return cells;
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    if (c > 0) line += ',';
    if (cells[c].find_first_of(",\"\r\n") == std::string::npos) {
      line += cells[c];
      continue;
    }
    line += '"';
    for (const char ch : cells[c]) {
      if (ch == '"') line += '"';
      line += ch;
    }
    line += '"';
  }
  return line + "\r\n";
}

std::string record_details(const Record& r) {
  std::string out;
  const auto add = [&](const char* key, const auto& value) {
    fmt::format_to(std::back_inserter(out), "{}{}={}", out.empty() ? "" : " ", key, value);
  };
  if (r.kind == RecordKind::kPush) {
    if (r.late) add("late", "yes");
    if (r.span_us >= 0) add("span", format_duration(r.span_us));
    if (r.computed_us >= 0) add("computed", format_duration(r.computed_us));
    if (r.exchange_us() >= 0) add("exchange", format_duration(r.exchange_us()));
    if (r.waited_us > 0) add("waited", format_duration(r.waited_us));
    add("staleness", r.staleness);
    if (r.restarts > 0) add("restarts", r.restarts);
    if (r.wasted_us > 0) add("wasted", format_duration(r.wasted_us));
    if (r.declined) add("declined", "yes");
    if (r.loss) add("loss", fmt::format("{:.6g}", *r.loss));
  }
  if (is_worker_kind(r.kind) && !r.name.empty()) {
    add("name", r.name);
    add("host", r.host);
    add("clock", r.clock);
  }
  if (r.kind == RecordKind::kJobCreated) add("name", r.name);
  if (r.kind == RecordKind::kStragglerDetected || r.kind == RecordKind::kStragglerRecovered) {
    add("name", r.name);
    add("host", r.host);
    add("factor", fmt::format("{:.2f}", r.factor));
    add("for", format_duration(r.span_us));
  }
  if (r.kind == RecordKind::kWorkerLeased) {
    add("phase", r.name);
    add("lease", format_duration(r.span_us));
  }
  if (r.checkpoint != 0) add("checkpoint", r.checkpoint);
  if (r.kind == RecordKind::kCheckpointSaved) {
    add("shard", fmt::format("{}/{}", r.shard, r.shards));
    add("location", r.location);
  }
  if (!r.policy.empty()) add("policy", r.policy);
  if (r.expected_workers > 0) add("workers", r.expected_workers);
  if (r.superstep >= 0) add("superstep", r.superstep);
  if (r.kind == RecordKind::kView) {
    add("view", r.iteration);
    add("members", r.members.size());
  }
  if (r.predicted_wait_us >= 0) add("predicted_wait", format_duration(r.predicted_wait_us));
  if (r.wait_us >= 0) add("wait", format_duration(r.wait_us));
  if (!r.reason.empty()) add("reason", "\"" + r.reason + "\"");
  return out;
}

RecordKind record_kind(const std::string& name) {
  for (std::uint8_t kind = 1; kind <= kRecordKindMax; ++kind) {
    if (name == to_string(static_cast<RecordKind>(kind))) return static_cast<RecordKind>(kind);
  }
  return RecordKind::kNone;
}

}  // namespace syncd::ctl
