// `syncctl store`: what operators do to a store while its daemon is down.
#include "daemon/tools/ctl/commands.h"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "daemon/edge/store/maintenance.h"
#include "daemon/edge/store/store.h"
#include "daemon/tools/ctl/asking.h"
#include "daemon/tools/ctl/table.h"
#include "proto/base/plain_text.h"

namespace syncd::ctl {
namespace {

constexpr int kCheckAttempts = 5;

int fail(const std::string& error) {
  return complain(kExitStore, error);
}

int done(const Options& options, const nlohmann::json& json, const std::string& text) {
  std::cout << (options.json ? json.dump() : text) << '\n';
  return kExitOk;
}

// Whether the engine makes a daemon of it: the last word on whether a store is whole.
std::string why_not_recovered(const std::string& path) {
  std::string error;
  const auto store = store::open_rocks_store({.path = path, .read_only = true}, error);
  if (store == nullptr) return error;
  Engine engine{EngineOptions{}};
  const auto restore = [&](store::RecoveredJob&& job, std::string& wrong) {
    return engine.restore(job.snapshot ? &*job.snapshot : nullptr, job.records, wrong);
  };
  return store->load_each(restore, error) ? std::string() : error;
}

nlohmann::json json_of(const store::StoreCheck& check, const std::string& recovery) {
  nlohmann::json jobs = nlohmann::json::array();
  for (const store::JobCheck& job : check.jobs) {
    jobs.push_back({{"id", job.id},
                    {"name", job.name},
                    {"records", job.records},
                    {"last_sequence", job.last},
                    {"snapshot_sequence", job.snapshot},
                    {"bytes", job.bytes},
                    {"problems", job.problems}});
  }
  return {{"sound", check.sound() && recovery.empty()},
          {"recovery", recovery},
          {"jobs", jobs},
          {"kept_checkpoints", check.kept_checkpoints},
          {"problems", check.problems}};
}

std::set<std::string> names_in(const std::string& path) {
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) {
    names.insert(entry.path().filename());
  }
  return names;
}

void print(const store::StoreCheck& check, const std::string& recovery) {
  std::vector<std::vector<std::string>> rows;
  for (const store::JobCheck& job : check.jobs) {
    rows.push_back({fmt::format("#{}", job.id), job.name.empty() ? "?" : job.name,
                    fmt::to_string(job.records), fmt::to_string(job.last),
                    job.snapshot == 0 ? "-" : fmt::to_string(job.snapshot),
                    fmt::to_string(job.bytes), job.problems.empty() ? "sound" : "DAMAGED"});
  }
  std::cout << format_table({"id", "job", "records", "last", "snapshot", "bytes", "state"}, rows);
  for (const store::JobCheck& job : check.jobs) {
    for (const std::string& problem : job.problems) {
      std::cout << "job #" << job.id << ": " << plain(problem) << '\n';
    }
  }
  for (const std::string& problem : check.problems) std::cout << plain(problem) << '\n';
  if (!recovery.empty())
    std::cout << "a daemon would not start with it: " << plain(recovery) << '\n';
}

}  // namespace

int run_store_check(const Options& options) {
  store::StoreCheck check;
  std::string recovery;
  // A daemon that has the store open replaces files, also those that are being read here.
  for (int attempt = 1;; ++attempt) {
    std::string error;
    const std::set<std::string> before = names_in(options.store);
    const bool done = store::check_store(options.store, check, error);
    recovery = done ? why_not_recovered(options.store) : std::string();
    if (done && check.sound() && recovery.empty()) break;
    if (attempt < kCheckAttempts && names_in(options.store) != before) continue;
    if (!done) return fail(error);
    break;
  }
  if (options.json) {
    std::cout << json_of(check, recovery).dump() << '\n';
  } else {
    print(check, recovery);
  }
  return check.sound() && recovery.empty() ? kExitOk : kExitStore;
}

int run_store_backup(const Options& options) {
  std::string error;
  if (!store::backup_store(options.store, options.other, error)) return fail(error);
  store::StoreCheck check;
  const bool read = store::check_store(options.other, check, error);
  if (!read || !check.sound() || !why_not_recovered(options.other).empty()) {
    return fail(fmt::format(
        "the copy {} is damaged, and {} may be too: syncctl store check says where; keep your "
        "earlier backups",
        options.other, options.store));
  }
  return done(
      options, {{"backup", options.other}},
      fmt::format("copied {} to {}, and read all of the copy", options.store, options.other));
}

int run_store_restore(const Options& options) {
  std::string error;
  if (!store::restore_store(options.other, options.store, error)) return fail(error);
  return done(options, {{"store", options.store}},
              fmt::format("made {} from {}", options.store, options.other));
}

int run_store_compact(const Options& options) {
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  std::string error;
  if (!store::compact_store(options.store, before, after, error)) return fail(error);
  return done(options, {{"bytes_before", before}, {"bytes_after", after}},
              fmt::format("{}: {} bytes before, {} now", options.store, before, after));
}

}  // namespace syncd::ctl
