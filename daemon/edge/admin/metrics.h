// The metrics, in one table: name, type, labels, help, and where each value comes from. Written in
// Prometheus' text format, version 0.0.4. Pure functions; any thread.
//
// No series is per worker: a job of ten thousand workers has as many series as one of two. Jobs
// beyond kJobsExportedMax have none, and syncd_jobs_unexported says how many these are.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "daemon/edge/admin/process_figures.h"
#include "daemon/edge/admin/snapshot.h"

namespace syncd::admin {

inline constexpr std::size_t kJobsExportedMax = 200;

std::string metrics_text(const Snapshot& snapshot, const ProcessFigures& process,
                         const AdminFigures& admin);

// What the documentation says of each, in the table's order.
struct MetricDescription {
  std::string name;
  std::string type;
  std::string labels;  // "job_name, state"; empty: none
  std::string help;
};
std::vector<MetricDescription> metric_descriptions();

}  // namespace syncd::admin
