// What the commands share that ask a daemon or read a store: the link that the options name, and
// the loops over answers that come in pages. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/core/engine/record.h"
#include "daemon/tools/ctl/commands.h"
#include "daemon/tools/ctl/connection.h"

namespace syncd::ctl {

// Says `text` on standard error, in the program's name. Returns `code`.
int complain(int code, const std::string& text);

// The same with what went wrong on the link.
int failed(const DaemonLink& link);

// "shard 5 is missing: ...", after choosing it or asking its daemon failed.
std::string missing_shard(const DaemonLink& link, std::uint32_t shard);

// Opens the link that the options name, to the daemon of their job if they name one. Anything but
// kExitOk was complained about.
int open_link(DaemonLink& link, const Options& options);

// Calls `ask` once for each shard, whose daemon is asked then; without shards, once. It complains
// about a shard for which that fails, goes on with the others, and returns an exit code.
int for_each_shard(DaemonLink& link, const std::function<bool()>& ask);

// Calls `use` for each record that the options select (job, store, from, limit, kinds), in the
// order of their sequence numbers. Anything but kExitOk was complained about.
int for_each_record(const Options& options, const std::function<void(const Record&)>& use);

}  // namespace syncd::ctl
