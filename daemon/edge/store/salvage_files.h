// What can be read of a damaged store's files one by one, without RocksDB's own list of them. For
// salvage.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/edge/store/record_groups.h"

namespace syncd::store {

// Whether `from`, which was opened with Options::skip_damage, shows everything that lies in its
// directory: a table file that cannot be opened or is missing hides all others from RocksDB, and
// those that its list has lost are not looked at. If not, `why` names the file.
bool shows_all(const Database& from, const std::string& path, std::string& why);

// Puts what whole blocks of the table files in `path` hold, and after it the whole commits of its
// logs, into `to`, a new store. Of several values the latest is taken as far as that is seen: the
// later snapshot, and what says that more was removed. History that was removed may come back in
// part. `lost` names the files that cannot be opened, and what of the others cannot be read, each
// with the reason. False, with a sentence in `error`: `to` cannot be written, or a newer version
// wrote the store.
bool collect_files(const std::string& path, const Database& to, std::vector<std::string>& lost,
                   const std::function<void()>& go_on, std::string& error);

inline constexpr Sequence kStepMax = Sequence{1} << 40;

// Calls `seek` with 1, 2, ... until it returns true: the `n` for which it does so. Exact up to
// 4096, and after that for one damaged stretch. False: it does so for none up to `most`, which is
// no more than that.
bool seek_beyond(const std::function<bool(Sequence)>& seek, Sequence& n, Sequence most = kStepMax);

// Moves an iterator that damage has stopped to the first key after `last` (empty: of all) that can
// be read. False: there is none, or the family's keys tell nothing of what might follow. True and
// not Valid(): the end.
bool seek_next(Searching& it, ColumnFamily family, const std::string& last);

}  // namespace syncd::store
