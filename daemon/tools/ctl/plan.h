// syncctl plan: runs the daemon's planners on what a file says, without a daemon. JSON in, JSON
// out; times in milliseconds with fractions, kept to the microsecond. One thread.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

namespace syncd::ctl {

enum class PlanKind { kZipline, kSpecsync, kDssp };

// What the command line says; it wins over what the input says.
struct PlanOptions {
  std::string input = "-";  // a file; "-": standard input
  // zipline
  std::optional<std::string> algorithm;
  std::optional<std::string> objective;
  std::optional<std::int64_t> beta;
  std::optional<std::int64_t> r;
  // specsync
  std::optional<std::string> scope;
  std::optional<std::string> cap;  // milliseconds, or a name
};

// The formats, for --help.
extern const char* const kPlanZiplineHelp;
extern const char* const kPlanSpecsyncHelp;
extern const char* const kPlanDsspHelp;
std::string plan_algorithms();

// The answer to `text`, one line of JSON without a line break. Nothing, and in `error` which field
// is wrong and what is allowed, if the input or an option makes no sense.
std::optional<std::string> plan_text(PlanKind kind, const std::string& text,
                                     const PlanOptions& options, std::string& error);

// Reads the input, writes the answer to `out` or the error to `err`; returns the exit code.
int run_plan(PlanKind kind, const PlanOptions& options, std::istream& standard_input,
             std::ostream& out, std::ostream& err);

}  // namespace syncd::ctl
