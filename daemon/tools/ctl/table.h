// Tables and times for people, and the exports of history for programs. Pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/engine/record.h"
#include "proto/wire/wire.h"

namespace syncd::ctl {

// `text` within so many columns of a terminal: wide characters count two, combining ones none; what
// was cut ends with "…". Control characters, also those of Unicode, and bytes that are no UTF-8
// become "?", so that no name can talk to the terminal.
std::string fit(std::string_view text, std::size_t columns);
// The columns that fit() would need for all of it.
std::size_t columns_of(std::string_view text);

// The same with blanks, behind it or before it, so that it takes all of them.
std::string padded(std::string_view text, std::size_t columns, bool right);

// Columns as wide as their widest cell; a column of numbers is set to the right. Every row has a
// cell per title. Cells are shown by plain(): what a worker calls itself is the worker's choice.
// Ends with a line break; no trailing blanks.
//
// It takes no more than `columns` of a terminal, as far as that can be done: of a table that is too
// wide the first column is broken after commas, colons and pluses, and if that is not enough, the
// columns that have no room follow below, with the first one again.
std::string format_table(const std::vector<std::string>& header,
                         const std::vector<std::vector<std::string>>& rows,
                         std::size_t columns = SIZE_MAX);

// As JSON that is plain text, with a line break at the end; bytes that are no UTF-8 are replaced.
// An indent of -1: on one line.
std::string json_text(const nlohmann::json& json, int indent = 2);

// How many characters standard output has in a line: those of the terminal, else what the variable
// COLUMNS says, else 80.
std::size_t output_columns();

// "-" for an empty text.
std::string or_dash(const std::string& text);

// "2026-11-21T09:15:02.123456Z"; "-" for a negative time.
std::string format_time(std::int64_t us);

// "12.3 s ago"; "-" for a negative time.
std::string format_age(std::int64_t now_us, std::int64_t then_us);

// What a worker shows to the others, for people: text as it is, other bytes in hexadecimal
// ("0x...").
std::string data_text(const std::vector<std::uint8_t>& data);
// Whether it is text: at least one character, and none that a terminal would not print.
bool is_text(const std::vector<std::uint8_t>& data);
std::string hexadecimal(const std::vector<std::uint8_t>& data);

// The columns of `history export --format csv`, in order; they are also the keys of the JSON lines.
struct RecordColumn {
  std::string_view name;
  const char* meaning;
  // The kinds of records, a bit for each, that have it; and those that have it if it is set.
  std::uint32_t always = 0;
  std::uint32_t if_set = ~std::uint32_t{0};
};
const std::vector<RecordColumn>& record_columns();
std::vector<std::string> record_column_names();

// One record, a cell per column; an empty cell where the record's kind has no such fact.
std::vector<std::string> record_cells(const Record& record);

// The same as an object; facts that the record's kind does not have are left out.
nlohmann::json record_json(const Record& record);

// One line of RFC 4180, with its line break (\r\n).
std::string csv_line(const std::vector<std::string>& cells);

// What a record says beyond time, kind, worker and iteration, for people.
std::string record_details(const Record& record);

// The name of a kind back to the kind; kNone: there is none of that name.
RecordKind record_kind(const std::string& name);

}  // namespace syncd::ctl
