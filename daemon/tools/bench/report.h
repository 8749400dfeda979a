// What syncbench prints. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "daemon/tools/bench/figures.h"

namespace syncd::bench {

// For people, with a line break at the end.
std::string report_text(const Figures& figures);
nlohmann::json report_json(const Figures& figures);

// Whether the daemon has counted as many pushes of the job as were acknowledged.
bool counts_agree(const Figures& figures);

}  // namespace syncd::bench
