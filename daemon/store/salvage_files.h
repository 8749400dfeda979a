// What can be read of a damaged store's files one by one, without RocksDB's own list of them. For
// salvage.cpp.
#pragma once

#include <rocksdb/iterator.h>

#include <functional>
#include <string>
#include <vector>

#include "daemon/store/rocks_database.h"

namespace syncd::store {

// What cannot be read hides so many jobs in a row at most: the next one is looked for that far.
inline constexpr JobId kJobsAhead = 4096;

// Whether `from`, which was opened with Options::skip_damage, shows everything that lies in its
// directory: a table file that cannot be opened or is missing hides all others from RocksDB, and
// those that its list has lost are not looked at. If not, `why` names the file.
bool shows_all(const Database& from, const std::string& path, std::string& why);

// Puts what whole blocks of the table files in `path` hold, and after it the whole commits of its
// logs, into `to`, a new store. Of several values the latest is taken as far as that is seen: the
// later snapshot, and what says that more was removed. History that was removed may come back in
// part. `lost` names the files that cannot be opened, and why. False, with a sentence in `error`:
// `to` cannot be written, or a newer version wrote the store.
bool collect_files(const std::string& path, const Database& to, std::vector<std::string>& lost,
                   const std::function<void()>& go_on, std::string& error);

// Moves an iterator that damage has stopped to the first key beyond it. `key_at(n)`: the n-th key
// after the last good one. Exact for 4096 keys, and after that for one damaged stretch. False: no
// key up to the 2^40th can be read. True and not Valid(): the end.
bool seek_beyond(rocksdb::Iterator& it, const std::function<std::string(Sequence)>& key_at,
                 Sequence& n);

}  // namespace syncd::store
