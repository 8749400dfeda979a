// What a user gets to see of finished runs: a table, CSV files, JSON, a page. Pure functions but
// for writing the files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference_trainer/run/run.h"

namespace syncd::trainer {

// A name and a value, for people.
struct Fact {
  std::string name;
  std::string value;
};

// What the runs of one call have in common.
struct ReportContext {
  std::string workload;
  std::string loss_name;
  std::string data;  // one line
  int workers = 0;
  std::uint64_t seed = 0;
  HopOrder hop_order = HopOrder::kParallel;
  std::string slowdown;
  double iteration_ms = 0;
  std::string virtual_iteration_time = {};  // of runs in virtual time; empty: real time
  // What else is not as usual: "decay 0.5@100", "aggregate mean", ...
  std::vector<std::string> more_settings = {};
  std::optional<double> target_loss;
  std::string target_source;             // where the target comes from, for people
  std::vector<Fact> configuration = {};  // all settings
};

// Text in columns, the first one left-aligned, the others right-aligned, two spaces between.
// All rows must have as many cells as the header.
std::string format_table(const std::vector<std::string>& header,
                         const std::vector<std::vector<std::string>>& rows);

// "12.3%" for 0.123.
std::string format_percent(double share);

// The figures of the comparison: one row per run, as many cells as the header has.
struct SummaryTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};
SummaryTable summarize(const ReportContext& context, const std::vector<RunResult>& results);

// What the runs have in common, as one line: "mf, 4 workers, seed 1, 20 ms per iteration, ...".
std::string describe_setting(const ReportContext& context);

// A line for each thing that went wrong in a run; empty if nothing did.
std::string problems_of(const RunResult& result);

// The comparison: a heading, one row per run, and a line for each thing that went wrong.
std::string render_report(const ReportContext& context, const std::vector<RunResult>& results);

// The same as one JSON document, with a newline at its end. Numbers that are not known are null.
std::string render_json(const ReportContext& context, const std::vector<RunResult>& results);

// Columns time_s,iterations,loss; accuracy where the workload has one, loss_of_one_worker and
// transfers where they are known.
std::string curve_csv(const RunResult& result);

// One line per worker: what it did and where its time went.
std::string workers_csv(const RunResult& result);

// Columns staleness_low,staleness_high,grants.
std::string staleness_csv(const RunResult& result);

// What the workers did in the run's timeline. Columns worker,what,iteration,start_s,end_s,barrier,
// late,skip; seconds since the first grant, the last three 0 or 1.
std::string spans_csv(const RunResult& result);

// The series of all runs, a JSON object a line. Each has "type" (run, loss, worker, staleness,
// span), "run" (from 0), and the names of the CSV columns.
std::string render_json_lines(const ReportContext& context, const std::vector<RunResult>& results);

// Writes, per run, DIR/<workload>-<policy>-loss.csv, ...-workers.csv, ...-staleness.csv and
// ...-spans.csv (with -2, -3, ... behind the policy where one is compared with itself). Returns the
// paths of all files. Throws DataError.
std::vector<std::filesystem::path> write_csv_files(const std::filesystem::path& directory,
                                                   const ReportContext& context,
                                                   const std::vector<RunResult>& results);

// ---- The page

// Where, when and how the runs were made.
struct ReportDetails {
  std::string date;     // when the first run began
  std::string command;  // as a shell would take it
  std::vector<Fact> configuration;
  std::vector<Fact> machine;
  std::vector<Fact> versions;
};

struct Options;

// What a report says about where and how its runs were made: the command, the settings, the
// machine, the versions. Reads /proc; `arguments` with the program's name first. The date is now,
// in UTC.
ReportDetails describe_runs(const Options& options, const std::vector<std::string>& arguments);

// One argument as a POSIX shell takes it: in single quotes unless it is plain.
std::string shell_quoted(std::string_view argument);

// The processor's name in the text of /proc/cpuinfo; "unknown" if none is there.
std::string processor_name(std::string_view cpuinfo);

// Kibibytes of "MemTotal:" in the text of /proc/meminfo, for people: "15.6 GiB".
std::string memory_size(std::string_view meminfo);

// The results as the page's script reads them: one JSON value. No more than so many points of a
// curve and so many workers of a timeline are in it, so that a page has some hundred kilobytes a
// policy at most.
inline constexpr std::size_t kReportPointsMax = 2'000;
inline constexpr std::size_t kReportRowsMax = 24;
std::string report_data(const ReportContext& context, const ReportDetails& details,
                        const std::vector<RunResult>& results);

// The report as one HTML page that needs nothing else: no network and no other file. It is
// report.html with Chart.js and the results in it; both are in the program (embedded at build).
// Text from elsewhere cannot end the element that holds the results.
std::string render_html(const ReportContext& context, const ReportDetails& details,
                        const std::vector<RunResult>& results);

}  // namespace syncd::trainer
