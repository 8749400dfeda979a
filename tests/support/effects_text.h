// What the engine says, as text: every field that is not at its default, one line per reply,
// notification, record, snapshot and log line. Golden scripts show it, and two engines said the
// same if and only if their texts are the same. No thread, no state.
#pragma once

#include <functional>
#include <string>

#include "daemon/core/engine/effects.h"
#include "daemon/core/engine/record.h"
#include "daemon/core/engine/types.h"
#include "proto/wire/wire.h"

namespace syncd::test {

// "1.5s", "0.05s", "-0.000001s": exact to the microsecond, as scripts write times.
std::string seconds_text(Micros us);

// "PULL SKIP": the flags of a grant; empty for none.
std::string flags_text(std::uint32_t flags);

// "granted 12 PULL staleness=1". A worker is "#<job>/<rank> e<epoch> i<incarnation>".
std::string to_text(const wire::Body& body);

// "push #1/0 e1 i1 seq=5 k=3 clock=4"; its time only if it is not `now`.
std::string to_text(const Record& record, Micros now);

// One line for the job and one for each worker, without a final newline.
std::string to_text(const JobSnapshot& snapshot, Micros now);

std::string to_text(const LogLine& line);

// Everything in the order of effects.h: records, snapshots, replies ("=>" for one that waits for
// its records, "->" for one that is free to go), notifications ("==" and "--"), plans, log. Each
// line begins with `indent` and ends with a newline. `name` turns whom an answer goes to into text.
using CallerName = std::function<std::string(const Caller&)>;
std::string to_text(const Effects& effects, Micros now, const std::string& indent,
                    const CallerName& name);

// With callers as "c<connection>r<request>".
std::string to_text(const Effects& effects, Micros now);

}  // namespace syncd::test
