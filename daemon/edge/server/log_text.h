// Log lines as text: "event key=value key="a value with spaces"". Pure functions; any thread.
#pragma once

#include <string>

#include "daemon/core/engine/effects.h"

namespace syncd::server {

// The event and its fields, on one line whatever the values hold.
std::string log_text(const LogLine& line);

// Whether the line says who changed what: it is written whatever log.level is.
bool is_audit(const LogLine& line);

}  // namespace syncd::server
