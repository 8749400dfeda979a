// Durations in the configuration: "500ms", "10s", "2m", "1h", "7d". Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "daemon/core/engine/types.h"

namespace syncd::config {

// A whole number or a decimal fraction with a unit (us, ms, s, m, h, d), or only 0. False for
// anything else, also for a span that does not fit; `us` is then untouched.
bool parse_duration(std::string_view text, Micros& us);

// The shortest text that parse_duration() reads back as the same span: "1500ms", "10s".
std::string show_duration(Micros us);

}  // namespace syncd::config
