// Log lines as text: "event key=value key="a value with spaces"". Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "daemon/engine/effects.h"

namespace syncd::server {

// "debug", "info", "warn" or "error".
std::string_view level_name(LogLevel level);

// The event and its fields, on one line whatever the values hold.
std::string log_text(const LogLine& line);

}  // namespace syncd::server
