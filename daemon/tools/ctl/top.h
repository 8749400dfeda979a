// `syncctl top`: a table of a job, or of all jobs, that keeps itself fresh. A thread asks the
// daemon, so that the keys work also while nobody answers.
#pragma once

#include "daemon/tools/ctl/commands.h"

namespace syncd::ctl {

// Until `q`, or until a signal ends the process; the terminal is then as it was before.
int run_top(const Options& options);

}  // namespace syncd::ctl
