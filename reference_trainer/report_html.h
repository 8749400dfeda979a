// The report as one HTML page that needs nothing else: no network, no other file, no script. Pure
// functions of the results.
#pragma once

#include <string>
#include <vector>

#include "reference_trainer/report.h"

namespace syncd::trainer {

// A name and a value, for people.
struct Fact {
  std::string name;
  std::string value;
};

// Where, when and how the runs were made.
struct ReportDetails {
  std::string date;     // when the first run began
  std::string command;  // as a shell would take it
  std::vector<Fact> configuration;
  std::vector<Fact> machine;
  std::vector<Fact> versions;
};

// The page: HTML that is well-formed XML too. All text from elsewhere is escaped. O(points +
// spans); what is drawn of a run is bounded (charts.h), so a page has some hundred kilobytes a
// policy at most.
std::string render_html(const ReportContext& context, const ReportDetails& details,
                        const std::vector<RunResult>& results);

}  // namespace syncd::trainer
