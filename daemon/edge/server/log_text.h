// Log lines as text: "event key=value key="a value with spaces"". Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>

#include "daemon/core/engine/effects.h"

namespace syncd::server {

// The event and its fields, on one line whatever the values hold.
std::string log_text(const LogLine& line);

// What a client has sent, no longer than the engine would take it: for a line's values.
std::string shown(const std::string& text, std::size_t bytes_max);
std::string job_shown(const std::string& name);

// Whether the line says who changed what: it is written whatever log.level is.
bool is_audit(const LogLine& line);

}  // namespace syncd::server
