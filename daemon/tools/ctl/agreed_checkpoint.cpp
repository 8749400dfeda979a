// syncctl checkpoint: asks for an agreed checkpoint of a job, waits for it, shows the latest one.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "daemon/tools/ctl/asking.h"
#include "daemon/tools/ctl/table.h"

namespace syncd::ctl {
namespace {

// The pauses between two looks double.
constexpr auto kLookAgainFirst = std::chrono::milliseconds(100);
constexpr auto kLookAgainMax = std::chrono::milliseconds(2000);

// All pages of it.
bool latest(DaemonLink& link, const std::string& job, wire::LatestCheckpointReply& all) {
  wire::LatestCheckpoint request{job, 0};
  for (;;) {
    wire::LatestCheckpointReply page;
    if (!link.call(request, page)) return false;
    const bool goes_on = page.number == all.number && page.epoch == all.epoch;
    if (request.first_shard != 0 && !goes_on) {
      request.first_shard = 0;  // a later one is complete meanwhile
      continue;
    }
    std::vector<wire::CheckpointShard> saved;
    if (request.first_shard != 0) saved = std::move(all.saved);
    all = std::move(page);
    all.saved.insert(all.saved.begin(), saved.begin(), saved.end());
    if (all.next_shard <= request.first_shard) return true;
    request.first_shard = static_cast<std::uint32_t>(all.next_shard);
  }
}

void show(const Options& options, const wire::LatestCheckpointReply& found) {
  if (options.json) {
    nlohmann::json shards = nlohmann::json::array();
    for (const wire::CheckpointShard& shard : found.saved) {
      shards.push_back({{"shard", shard.shard},
                        {"rank", shard.rank},
                        {"iteration", shard.iteration},
                        {"location", shard.location}});
    }
    std::cout << json_text({{"checkpoint", found.number},
                            {"epoch", found.epoch},
                            {"iteration", found.number == 0 ? -1 : found.iteration},
                            {"completed_us", found.completed_us},
                            {"shards", shards},
                            {"open", found.open},
                            {"open_text", found.open_text},
                            {"closed", found.closed},
                            {"closed_reason", found.closed_reason}},
                           2);
    return;
  }
  if (found.number == 0) {
    std::cout << fmt::format("job '{}' has no complete checkpoint\n", options.job);
  } else {
    std::cout << fmt::format("checkpoint {} of job '{}' (epoch {}), complete since {}\n",
                             found.number, options.job, found.epoch,
                             format_time(found.completed_us));
    std::vector<std::vector<std::string>> rows;
    for (const wire::CheckpointShard& shard : found.saved) {
      rows.push_back({fmt::to_string(shard.shard), fmt::to_string(shard.rank),
                      fmt::to_string(shard.iteration), shard.location});
    }
    std::cout << format_table({"SHARD", "WORKER", "ITERATION", "LOCATION"}, rows);
  }
  if (!found.open_text.empty()) std::cout << found.open_text << "\n";
  if (!found.closed_reason.empty()) {
    std::cout << fmt::format("checkpoint {} was given up: {}\n", found.closed, found.closed_reason);
  }
}

}  // namespace

int run_agreed_checkpoint(const Options& options) {
  DaemonLink link;
  if (const int code = open_link(link, options); code != kExitOk) return code;
  wire::LatestCheckpointReply found;
  if (options.latest) {
    if (!latest(link, options.job, found)) return failed(link);
    show(options, found);
    return kExitOk;
  }
  wire::CheckpointAsked asked;
  if (!link.call(wire::OrderCheckpoint{options.job, options.reason}, asked)) return failed(link);
  if (!options.wait) {
    if (options.json) {
      std::cout << json_text({{"checkpoint", asked.number}}, 2);
    } else {
      std::cout << fmt::format("checkpoint {} of job '{}' is asked for\n", asked.number,
                               options.job);
    }
    return kExitOk;
  }
  for (auto pause = kLookAgainFirst;; pause = std::min(2 * pause, kLookAgainMax)) {
    if (!link.call(wire::LatestCheckpoint{options.job, 0, 0}, found)) return failed(link);
    if (found.closed >= asked.number || found.number >= asked.number) break;
    if (found.open == 0) {
      return complain(
          kExitRefused,
          fmt::format("checkpoint {} of job '{}' is not complete: the job has ended, and "
                      "another one has its name",
                      asked.number, options.job));
    }
    std::this_thread::sleep_for(pause);
  }
  found = {};
  if (!latest(link, options.job, found)) return failed(link);
  // A later one may be closed already.
  if (found.closed == asked.number && !found.closed_reason.empty()) {
    return complain(kExitRefused, fmt::format("checkpoint {} of job '{}' was given up: {}",
                                              asked.number, options.job, found.closed_reason));
  }
  show(options, found);
  return kExitOk;
}

}  // namespace syncd::ctl
