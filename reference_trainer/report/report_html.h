// The report as one HTML page that needs nothing else: no network and no other file. The page is
// report.html with Chart.js and the results in it; both are in the program (embedded at build).
#pragma once

#include <string>
#include <vector>

#include "reference_trainer/report/report.h"

namespace syncd::trainer {

// Where, when and how the runs were made.
struct ReportDetails {
  std::string date;     // when the first run began
  std::string command;  // as a shell would take it
  std::vector<Fact> configuration;
  std::vector<Fact> machine;
  std::vector<Fact> versions;
};

// The results as the page's script reads them: one JSON value. No more than so many points of a
// curve and so many workers of a timeline are in it, so that a page has some hundred kilobytes a
// policy at most.
inline constexpr std::size_t kReportPointsMax = 2'000;
inline constexpr std::size_t kReportRowsMax = 24;
std::string report_data(const ReportContext& context, const ReportDetails& details,
                        const std::vector<RunResult>& results);

// The page. Text from elsewhere cannot end the element that holds the results.
std::string render_html(const ReportContext& context, const ReportDetails& details,
                        const std::vector<RunResult>& results);

}  // namespace syncd::trainer
