// What a report says about where and how its runs were made: the command, the settings, the
// machine, the versions. Reads /proc once; everything else is a pure function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reference_trainer/options.h"
#include "reference_trainer/report/report_html.h"

namespace syncd::trainer {

// All of it; `arguments` with the program's name first. The date is now, in UTC.
ReportDetails describe_runs(const Options& options, const std::vector<std::string>& arguments);

// One argument as a POSIX shell takes it: in single quotes unless it is plain.
std::string shell_quoted(std::string_view argument);

// The processor's name in the text of /proc/cpuinfo; "unknown" if none is there.
std::string processor_name(std::string_view cpuinfo);

// Kibibytes of "MemTotal:" in the text of /proc/meminfo, for people: "15.6 GiB".
std::string memory_size(std::string_view meminfo);

}  // namespace syncd::trainer
