// See asking.h.
#include "daemon/tools/ctl/asking.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
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

int exit_code(const DaemonLink& link) {
  return link.failure() == DaemonLink::Failure::kRefused ? kExitRefused : kExitUnreachable;
}

int failed(const DaemonLink& link) {
  return complain(exit_code(link), link.error());
}

int open_link(DaemonLink& link, const Options& options) {
  Address address;
  std::string error;
  if (!how_to_ask(options, address, error)) return complain(kExitUsage, error);
  if (!link.open(address, options.timeout_ms)) return failed(link);
  return options.job.empty() || link.choose(options.job) ? kExitOk : failed(link);
}

std::string missing_shard(const DaemonLink& link, std::uint32_t shard) {
  std::string_view error = link.error();
  const std::string name = fmt::format("shard {}: ", shard);
  if (error.starts_with(name)) error.remove_prefix(name.size());
  return fmt::format("shard {} is missing: {}", shard, error);
}

int for_each_shard(DaemonLink& link, const std::function<bool()>& ask) {
  int code = kExitOk;
  for (std::uint32_t shard = 0; shard < link.shards(); ++shard) {
    const bool is_chosen = link.shards() == 1 || link.choose(shard);
    if (is_chosen && ask()) continue;
    if (link.shards() == 1) return failed(link);
    code = std::max(code, complain(exit_code(link), missing_shard(link, shard)));
  }
  return code;
}

int for_each_record(const Options& options, const std::function<void(const Record&)>& use) {
  std::set<RecordKind> kinds;
  if (!kinds_of(options.kinds, kinds)) return kExitUsage;
  DaemonLink link;
  ReadHistory read;
  std::string error;
  if (options.store.empty()) {
    if (const int code = open_link(link, options); code != kExitOk) return code;
    read = history_of(link, options.job);
  } else {
    JobId job = 0;
    read = history_in(options.store, options.job, job, error);
    if (!read) return complain(kExitStore, error);
    if (job == 0) {
      return complain(kExitRefused,
                      fmt::format("there is no job '{}' in store {}", options.job, options.store));
    }
  }
  const Sequence first = std::max<std::uint64_t>(1, options.from);
  std::uint64_t left = options.limit == 0 ? UINT64_MAX : options.limit;
  HistoryPage page{{}, first};
  for (Sequence from = first; from != 0 && left > 0; from = page.next) {
    if (!read(from, kPageRecords, page, error)) {
      return link.failure() == DaemonLink::Failure::kNone ? complain(kExitStore, error)
                                                          : failed(link);
    }
    const Sequence begins = page.records.empty() ? page.first : page.records.front().sequence;
    if (from == first && begins > first) {
      // On standard error, so that what programs read stays as it is.
      std::cerr << fmt::format(
          "syncctl: the history begins with record {}: earlier ones were removed "
          "(store.retention), "
          "lost (a salvage), or are on other members of a cluster only\n",
          begins);
    }
    for (const Record& record : page.records) {
      if (left == 0) break;
      if (!kinds.empty() && !kinds.contains(record.kind)) continue;
      use(record);
      --left;
    }
  }
  return kExitOk;
}

}  // namespace syncd::ctl
