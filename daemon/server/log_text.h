// Log lines as text: "event key=value key="a value with spaces"". Pure functions; any thread.
#pragma once

#include <string>

#include "daemon/engine/effects.h"

namespace syncd::server {

// The event and its fields, on one line whatever the values hold.
std::string log_text(const LogLine& line);

}  // namespace syncd::server
