// See asking.h.
#include "daemon/tools/ctl/asking.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <set>

#include "daemon/tools/ctl/history.h"
#include "daemon/tools/ctl/table.h"
#include "proto/base/plain_text.h"

namespace syncd::ctl {
namespace {

constexpr std::uint32_t kPageRecords = 2000;

// The kinds that are named. False: one of them is none, which was complained about.
bool kinds_of(const std::vector<std::string>& names, std::set<RecordKind>& kinds) {
  for (const std::string& name : names) {
    const RecordKind kind = record_kind(name);
    if (kind == RecordKind::kNone) {
      std::vector<std::string> allowed;
      for (std::uint8_t k = 1; k <= kRecordKindMax; ++k) {
        allowed.emplace_back(to_string(static_cast<RecordKind>(k)));
      }
      complain(kExitUsage,
               fmt::format("--kind {} is unknown; allowed are {}", name, fmt::join(allowed, ", ")));
      return false;
    }
    kinds.insert(kind);
  }
  return true;
}

}  // namespace

int complain(int code, const std::string& text) {
  std::cerr << "syncctl: " << plain(text) << "\n";
  return code;
}

int failed(const DaemonLink& link) {
  const bool refused = link.failure() == DaemonLink::Failure::kRefused;
  return complain(refused ? kExitRefused : kExitUnreachable, link.error());
}

int open_link(DaemonLink& link, const Options& options) {
  Address address;
  std::string error;
  if (!how_to_ask(options, address, error)) return complain(kExitUsage, error);
  return link.open(address, options.timeout_ms) ? kExitOk : failed(link);
}

int for_each_record(const Options& options, const std::function<void(const Record&)>& use) {
  std::set<RecordKind> kinds;
  if (!kinds_of(options.kinds, kinds)) return kExitUsage;
  DaemonLink link;
  std::unique_ptr<HistorySource> source;
  std::string error;
  if (!options.store.empty()) {
    source = history_in(options.store, error);
    if (!source) return complain(kExitStore, error);
    if (!source->may_have(options.job)) {
      return complain(kExitRefused,
                      fmt::format("there is no job '{}' in store {}", options.job, options.store));
    }
  } else {
    if (const int code = open_link(link, options); code != kExitOk) return code;
    source = history_of(link);
  }
  std::uint64_t left = options.limit == 0 ? UINT64_MAX : options.limit;
  Sequence next = std::max<std::uint64_t>(1, options.from);
  std::vector<Record> page;
  bool first_page = true;
  while (next != 0 && left > 0) {
    if (!source->read(options.job, next, kPageRecords, page, next, error)) {
      if (options.store.empty() && link.failure() != DaemonLink::Failure::kNone) {
        return failed(link);
      }
      return complain(kExitStore, error);
    }
    if (first_page && !page.empty() &&
        page.front().sequence > std::max<std::uint64_t>(1, options.from)) {
      // On standard error, so that what programs read stays as it is.
      std::cerr << fmt::format(
          "syncctl: the history begins with record {}: earlier ones were removed (store.retention) "
          "or lost (a salvage)\n",
          page.front().sequence);
    }
    first_page = false;
    for (const Record& record : page) {
      if (left == 0) break;
      if (!kinds.empty() && !kinds.contains(record.kind)) continue;
      use(record);
      --left;
    }
  }
  return kExitOk;
}

}  // namespace syncd::ctl
