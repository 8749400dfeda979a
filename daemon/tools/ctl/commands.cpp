// See commands.h.
#include "daemon/tools/ctl/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <set>

#include "daemon/edge/config/duration.h"
#include "daemon/tools/ctl/asking.h"
#include "daemon/tools/ctl/chrome_trace.h"
#include "daemon/tools/ctl/daemon_link.h"
#include "daemon/tools/ctl/fields_json.h"
#include "daemon/tools/ctl/table.h"
#include "daemon/tools/ctl/top_view.h"
#include "proto/base/plain_text.h"
#include "proto/base/shard.h"

namespace syncd::ctl {
namespace {

constexpr std::int64_t kCopyTimeoutMs = 600'000;

void print(const nlohmann::json& json) {
  std::cout << json_text(json);
}

// After what silence in an iteration; "-" if that is not said.
std::string threshold(std::int64_t us) {
  return us < 0 ? "-" : us == 0 ? "never" : format_duration(us);
}

nlohmann::json to_json(const wire::StatusReply& s) {
  nlohmann::json out = fields_json(s);
  out["version"] = s.server_version;
  out.erase("server_version");
  return out;
}

nlohmann::json worker_json(const wire::WorkerStatus& w) {
  nlohmann::json out = fields_json(w);
  out.erase("heard_us");
  out.erase("data");
  return out;
}

// Who it is, without how far it is.
nlohmann::json member_json(const wire::WorkerStatus& w) {
  nlohmann::json out = fields_json(
      w, {"rank", "name", "host", "state", "connected", "incarnation", "heard_us", "data"});
  out["data_text"] = is_text(w.data) ? nlohmann::json(data_text(w.data)) : nlohmann::json();
  return out;
}

void print_status(const wire::StatusReply& s, const std::string& endpoint) {
  std::cout << fmt::format(
      "syncd {} at {}, pid {}, up {}\n"
      "store    {} ({}{})\n"
      "jobs     {}\n"
      "workers  {}\n"
      "sessions {}\n"
      "pushes   {}\n"
      "frames   {} in, {} out\n",
      plain(s.server_version), endpoint, s.pid, format_duration(s.now_us - s.started_us),
      plain(s.store), s.mode, s.read_only ? ", READ-ONLY" : "", s.jobs, s.workers, s.sessions,
      s.pushes, s.frames_in, s.frames_out);
  if (s.read_only) {
    std::cout << fmt::format("problem  pushes are refused for {}: {}\n",
                             format_duration(s.now_us - s.store_error_since_us),
                             plain(s.store_error));
  }
}

// Tells the daemon to do something.
int order(const Options& options, const wire::Body& request) {
  DaemonLink link;
  if (const int code = open_link(link, options); code != kExitOk) return code;
  wire::Ok ok;
  return link.call(request, ok) ? kExitOk : failed(link);
}

// Each item as an object of a JSON list, or as a row of a table.
template <class Item, class ToJson, class ToRow>
void print_all(const Options& options, const std::vector<Item>& items, const ToJson& to_json,
               const std::vector<std::string>& header, const ToRow& to_row) {
  if (options.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const Item& item : items) all.push_back(to_json(item));
    return print(all);
  }
  std::vector<std::vector<std::string>> rows;
  for (const Item& item : items) rows.push_back(to_row(item));
  std::cout << format_table(header, rows);
}

int list_workers(const Options& options, bool with_data, std::vector<wire::WorkerStatus>& workers,
                 std::int64_t& now_us) {
  DaemonLink link;
  if (const int code = open_link(link, options); code != kExitOk) return code;
  return read_workers(link, options.job, workers, now_us, with_data) ? kExitOk : failed(link);
}

}  // namespace

int run_status(const Options& options) {
  DaemonLink link;
  if (const int code = open_link(link, options); code != kExitOk) return code;
  const bool has_shards = link.shards() > 1;
  nlohmann::json all = nlohmann::json::array();
  const auto show = [&] {
    wire::StatusReply s;
    if (!link.read(wire::StatusRequest{}, s)) return false;
    if (options.json) {
      all.push_back(to_json(s));
      if (has_shards) all.back()["shard"] = link.shard();
      return true;
    }
    if (has_shards) std::cout << fmt::format("shard {} of {}\n", link.shard(), link.shards());
    print_status(s, link.endpoint());
    return true;
  };
  const int code = for_each_shard(link, show);
  if (options.json && has_shards) print(all);
  if (options.json && !has_shards && code == kExitOk) print(all.front());
  return code;
}

int run_jobs(const Options& options) {
  DaemonLink link;
  if (const int code = open_link(link, options); code != kExitOk) return code;
  wire::JobsReply all;
  const auto add = [&] {
    wire::JobsReply reply;
    if (!link.read(wire::JobsRequest{}, reply)) return false;
    all.omitted += reply.omitted;
    std::ranges::move(reply.jobs, std::back_inserter(all.jobs));
    return true;
  };
  const int code = for_each_shard(link, add);
  if (code != kExitOk && link.shards() == 1) return code;
  std::ranges::sort(all.jobs, {}, &wire::JobStatus::id);
  if (all.omitted > 0) {
    // On standard error, so that --json stays JSON.
    std::cerr << "syncctl: " << all.omitted
              << " more jobs do not fit an answer and are not shown; running ones come first\n";
  }
  const bool has_shards = link.shards() > 1;
  const auto shard = [&](const wire::JobStatus& j) { return shard_of(j.name, link.shards()); };
  std::vector<std::string> header = {"ID",     "JOB",    "POLICY",  "STATE", "WORKERS",
                                     "CLOCKS", "PUSHES", "WAITING", "NOTE"};
  if (has_shards) header.insert(header.begin() + 2, "SHARD");
  print_all(
      options, all.jobs,
      [&](const wire::JobStatus& j) {
        nlohmann::json out = fields_json(j);
        if (has_shards) out["shard"] = shard(j);
        return out;
      },
      header,
      [&](const wire::JobStatus& j) {
        std::vector<std::string> cells = job_cells(j);
        cells.back() = or_dash(noted(j));
        if (has_shards) cells.insert(cells.begin() + 2, fmt::to_string(shard(j)));
        return cells;
      });
  return code;
}

int run_workers(const Options& options) {
  std::vector<wire::WorkerStatus> workers;
  std::int64_t now_us = 0;
  if (const int code = list_workers(options, false, workers, now_us); code != kExitOk) return code;
  print_all(options, workers, worker_json,
            {"RANK", "HOST", "NAME", "STATE", "CLOCK", "LAST PUSH", "WAITING", "FOR", "REASON",
             "WARN", "EVICT", "WHY THEN"},
            [now_us](const wire::WorkerStatus& w) -> std::vector<std::string> {
              return {fmt::to_string(w.rank),
                      w.host,
                      w.name,
                      w.straggler_since_us < 0
                          ? w.state
                          : fmt::format("{}, slow x{:.1f}", w.state, w.straggler_factor),
                      fmt::to_string(w.clock),
                      format_age(now_us, w.last_push_us),
                      w.waiting_us < 0 ? "-" : format_duration(w.waiting_us),
                      or_dash(w.waiting_for),
                      or_dash(w.reason),
                      threshold(w.warn_after_us),
                      threshold(w.evict_after_us),
                      or_dash(w.late_rule)};
            });
  return kExitOk;
}

int run_members(const Options& options) {
  std::vector<wire::WorkerStatus> workers;
  std::int64_t now_us = 0;
  if (const int code = list_workers(options, true, workers, now_us); code != kExitOk) return code;
  print_all(options, workers, member_json,
            {"RANK", "NAME", "HOST", "STATE", "CONNECTED", "HEARD", "INCARNATION", "DATA"},
            [now_us](const wire::WorkerStatus& w) -> std::vector<std::string> {
              return {fmt::to_string(w.rank),
                      w.name,
                      w.host,
                      w.state,
                      w.connected ? "yes" : "no",
                      format_age(now_us, w.heard_us),
                      fmt::to_string(w.incarnation),
                      or_dash(data_text(w.data))};
            });
  return kExitOk;
}

int run_history(const Options& options) {
  nlohmann::json all = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows;
  const int code = for_each_record(options, [&](const Record& r) {
    if (options.json) {
      all.push_back(record_json(r));
      return;
    }
    rows.push_back({fmt::to_string(r.sequence), format_time(r.time_us), to_string(r.kind),
                    r.rank < 0 ? "-" : fmt::to_string(r.rank),
                    r.iteration < 0 ? "-" : fmt::to_string(r.iteration),
                    or_dash(record_details(r))});
  });
  if (code != kExitOk) return code;
  if (options.json) {
    print(all);
  } else {
    std::cout << format_table({"SEQ", "TIME", "KIND", "WORKER", "ITERATION", "DETAILS"}, rows);
  }
  return kExitOk;
}

int run_export(const Options& options) {
  std::ofstream file;
  if (!options.output.empty()) {
    file.open(options.output, std::ios::binary | std::ios::trunc);
    if (!file) {
      return complain(kExitStore, fmt::format("--output {} cannot be written: {}", options.output,
                                              std::strerror(errno)));
    }
  }
  std::ostream& out = options.output.empty() ? std::cout : file;
  std::optional<ChromeTrace> trace;
  if (options.format == "chrome") trace.emplace(out);
  const bool csv = options.format == "csv";
  if (csv) out << csv_line(record_column_names());
  const int code = for_each_record(options, [&](const Record& record) {
    if (trace) {
      trace->add(record);
    } else {
      out << (csv ? csv_line(record_cells(record)) : json_text(record_json(record), -1));
    }
  });
  if (trace) trace->finish();
  out.flush();
  if (code != kExitOk || out) return code;
  return complain(kExitStore, (options.output.empty() ? "standard output" : options.output) +
                                  " cannot be written: the export is incomplete");
}

int run_create(const Options& options) {
  return order(options, wire::CreateJobRequest{options.job, options.policy, options.workers,
                                               options.min_workers});
}

int run_stop(const Options& options) {
  return order(options, wire::StopJobRequest{options.job, options.reason});
}

int run_set_policy(const Options& options) {
  return order(options, wire::SetPolicyRequest{options.job, options.policy});
}

int run_drain(const Options& options) {
  return order(options, wire::ManageWorkerRequest{options.job, options.worker,
                                                  wire::WorkerAction::kDrain, options.reason, 0});
}

int run_kick(const Options& options) {
  return order(options, wire::ManageWorkerRequest{options.job, options.worker,
                                                  wire::WorkerAction::kKick, options.reason, 0});
}

int run_phase(const Options& options) {
  Micros lease_us = 0;
  if (!config::parse_duration(options.lease, lease_us)) {
    return complain(kExitUsage,
                    fmt::format("--lease {} is no duration such as 90s, 10m or 2h", options.lease));
  }
  return order(options,
               wire::ManageWorkerRequest{options.job, options.worker, wire::WorkerAction::kLease,
                                         options.phase, lease_us});
}

int run_exclude(const Options& options) {
  DaemonLink link;
  if (const int code = open_link(link, options); code != kExitOk) return code;
  wire::Ok ok;
  const wire::ExcludeRequest request{options.job, options.host, options.undo, options.force,
                                     options.reason};
  if (!link.call(request, ok)) return failed(link);
  std::cout << fmt::format("host '{}' is {} job '{}'\n", plain(options.host),
                           options.undo ? "admitted to" : "excluded from", plain(options.job));
  std::vector<wire::WorkerStatus> workers;
  std::int64_t now_us = 0;
  // It is done, whether or not this can be asked.
  if (!read_workers(link, options.job, workers, now_us, false)) return kExitOk;
  std::set<std::string> hosts;
  for (const wire::WorkerStatus& worker : workers) hosts.insert(plain(worker.host));
  if (!hosts.contains(plain(options.host))) {
    std::cerr << fmt::format(
        "syncctl: no worker of the job has been on that host; {}\n",
        hosts.empty() ? "it has had none" : fmt::format("hosts: {}", fmt::join(hosts, ", ")));
  }
  return kExitOk;
}

int run_checkpoint(const Options& options) {
  // As long as the disk takes.
  Options patient = options;
  patient.timeout_ms = std::max<std::int64_t>(options.timeout_ms, kCopyTimeoutMs);
  DaemonLink link;
  if (const int code = open_link(link, patient); code != kExitOk) return code;
  wire::Ok ok;
  const std::string& to = options.other;
  if (!link.call(wire::CheckpointRequest{to}, ok)) return failed(link);
  const bool has_shards = link.shards() > 1;
  if (options.json) {
    nlohmann::json copied = {{"backup", to}};
    if (has_shards) copied["shard"] = link.shard();
    print(copied);
  } else {
    std::cout << fmt::format(
        "{0} has copied its store{2} to {1}; to check the copy, run there: syncctl store check "
        "{1}\n",
        link.endpoint(), to,
        has_shards ? fmt::format(" (shard {} of {})", link.shard(), link.shards()) : "");
  }
  return kExitOk;
}

}  // namespace syncd::ctl
