// See commands.h.
#include "daemon/ctl/commands.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "daemon/ctl/daemon_link.h"
#include "daemon/ctl/history.h"
#include "daemon/ctl/table.h"

namespace syncd::ctl {
namespace {

constexpr std::uint32_t kPageRecords = 2000;

int complain(int code, const std::string& text) {
  std::cerr << "syncctl: " << text << "\n";
  return code;
}

int failed(const DaemonLink& link) {
  const bool refused = link.failure() == DaemonLink::Failure::kRefused;
  return complain(refused ? kExitRefused : kExitUnreachable, link.error());
}

// Opens the link that the options name. Anything but kExitOk was complained about.
int open(DaemonLink& link, const Options& options) {
  std::string addresses = options.addresses;
  if (const char* env = std::getenv("SYNCD_ADDR"); addresses.empty() && env != nullptr) {
    addresses = env;
  }
  std::vector<client::Endpoint> endpoints = client::default_endpoints();
  std::string error;
  if (!addresses.empty() && !client::parse_endpoints(addresses, endpoints, error)) {
    return complain(kExitUsage, error);
  }
  std::string token;
  if (!options.token_file.empty()) {
    std::ifstream file(options.token_file);
    if (!std::getline(file, token)) {
      return complain(kExitUsage, "token file " + options.token_file + " cannot be read");
    }
  }
  return link.open(endpoints, token, options.timeout_ms) ? kExitOk : failed(link);
}

void print(const nlohmann::json& json) {
  std::cout << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

// Calls `use` for each record that the options select. Anything but kExitOk was complained about.
template <class Use>
int for_each_record(const Options& options, Use use) {
  std::set<RecordKind> kinds;
  for (const std::string& name : options.kinds) {
    const RecordKind kind = record_kind(name);
    if (kind == RecordKind::kNone) {
      std::string allowed;
      for (std::uint8_t k = 1; k <= kRecordKindMax; ++k) {
        allowed += (k > 1 ? ", " : "") + std::string(to_string(static_cast<RecordKind>(k)));
      }
      return complain(kExitUsage, "--kind " + name + " is unknown; allowed are " + allowed);
    }
    kinds.insert(kind);
  }
  DaemonLink link;
  std::unique_ptr<HistorySource> source;
  std::string error;
  if (!options.store.empty()) {
    source = history_in(options.store, error);
    if (!source) return complain(kExitStore, error);
    if (!source->may_have(options.job)) {
      return complain(kExitRefused,
                      "there is no job '" + options.job + "' in store " + options.store);
    }
  } else {
    if (const int code = open(link, options); code != kExitOk) return code;
    source = history_of(link);
  }
  std::uint64_t left = options.limit == 0 ? UINT64_MAX : options.limit;
  Sequence next = std::max<std::uint64_t>(1, options.from);
  std::vector<Record> page;
  while (next != 0 && left > 0) {
    if (!source->read(options.job, next, kPageRecords, page, next, error)) {
      if (options.store.empty() && link.failure() != DaemonLink::Failure::kNone) {
        return failed(link);
      }
      return complain(kExitStore, error);
    }
    for (const Record& record : page) {
      if (left == 0) break;
      if (!kinds.empty() && !kinds.contains(record.kind)) continue;
      use(record);
      --left;
    }
  }
  return kExitOk;
}

nlohmann::json to_json(const wire::StatusReply& s) {
  return {{"version", s.server_version},
          {"pid", s.pid},
          {"started_us", s.started_us},
          {"now_us", s.now_us},
          {"store", s.store},
          {"mode", s.mode},
          {"sessions", s.sessions},
          {"jobs", s.jobs},
          {"workers", s.workers},
          {"pushes", s.pushes},
          {"frames_in", s.frames_in},
          {"frames_out", s.frames_out},
          {"read_only", s.read_only}};
}

nlohmann::json to_json(const wire::JobStatus& j) {
  return {{"id", j.id},
          {"name", j.name},
          {"policy", j.policy},
          {"state", j.state},
          {"epoch", j.epoch},
          {"expected_workers", j.expected_workers},
          {"active_workers", j.active_workers},
          {"clock_min", j.clock_min},
          {"clock_max", j.clock_max},
          {"pushes", j.pushes},
          {"waiting", j.waiting},
          {"note", j.note},
          {"created_us", j.created_us}};
}

nlohmann::json to_json(const wire::WorkerStatus& w) {
  nlohmann::json out = {{"rank", w.rank},
                        {"name", w.name},
                        {"host", w.host},
                        {"state", w.state},
                        {"incarnation", w.incarnation},
                        {"clock", w.clock},
                        {"granted", w.granted},
                        {"connected", w.connected},
                        {"reason", w.reason}};
  out["last_push_us"] = w.last_push_us < 0 ? nlohmann::json() : nlohmann::json(w.last_push_us);
  out["waiting_us"] = w.waiting_us < 0 ? nlohmann::json() : nlohmann::json(w.waiting_us);
  out["waiting_for"] = w.waiting_for;
  return out;
}

}  // namespace

int run_status(const Options& options) {
  DaemonLink link;
  if (const int code = open(link, options); code != kExitOk) return code;
  wire::StatusReply s;
  if (!link.call(wire::StatusRequest{}, s)) return failed(link);
  if (options.json) {
    print(to_json(s));
    return kExitOk;
  }
  std::cout << "syncd " << s.server_version << " at " << link.endpoint() << ", pid " << s.pid
            << ", up " << format_duration(s.now_us - s.started_us) << "\n"
            << "store    " << s.store << " (" << s.mode << (s.read_only ? ", READ-ONLY" : "")
            << ")\n"
            << "jobs     " << s.jobs << "\n"
            << "workers  " << s.workers << "\n"
            << "sessions " << s.sessions << "\n"
            << "pushes   " << s.pushes << "\n"
            << "frames   " << s.frames_in << " in, " << s.frames_out << " out\n";
  return kExitOk;
}

int run_jobs(const Options& options) {
  DaemonLink link;
  if (const int code = open(link, options); code != kExitOk) return code;
  wire::JobsReply reply;
  if (!link.call(wire::JobsRequest{}, reply)) return failed(link);
  if (reply.omitted > 0) {
    // On standard error, so that --json stays JSON.
    std::cerr << "syncctl: " << reply.omitted
              << " more jobs do not fit an answer and are not shown; running ones come first\n";
  }
  if (options.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const wire::JobStatus& job : reply.jobs) all.push_back(to_json(job));
    print(all);
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows;
  for (const wire::JobStatus& j : reply.jobs) {
    rows.push_back({"#" + std::to_string(j.id), j.name, j.policy, j.state,
                    std::to_string(j.active_workers) + "/" + std::to_string(j.expected_workers),
                    std::to_string(j.clock_min) + ".." + std::to_string(j.clock_max),
                    std::to_string(j.pushes), std::to_string(j.waiting), or_dash(j.note)});
  }
  std::cout << format_table(
      {"ID", "JOB", "POLICY", "STATE", "WORKERS", "CLOCKS", "PUSHES", "WAITING", "NOTE"}, rows);
  return kExitOk;
}

int run_workers(const Options& options) {
  DaemonLink link;
  if (const int code = open(link, options); code != kExitOk) return code;
  std::vector<wire::WorkerStatus> workers;
  std::int64_t now_us = 0;
  for (std::int64_t next = 0; next >= 0;) {
    wire::WorkersReply page;
    if (!link.call(wire::WorkersRequest{options.job, static_cast<std::uint32_t>(next)}, page)) {
      return failed(link);
    }
    now_us = page.now_us;
    next = page.next_rank;
    for (auto& worker : page.workers) workers.push_back(std::move(worker));
  }
  if (options.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const wire::WorkerStatus& worker : workers) all.push_back(to_json(worker));
    print(all);
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows;
  for (const wire::WorkerStatus& w : workers) {
    rows.push_back({std::to_string(w.rank), w.host, w.name, w.state, std::to_string(w.clock),
                    format_age(now_us, w.last_push_us),
                    w.waiting_us < 0 ? "-" : format_duration(w.waiting_us), or_dash(w.waiting_for),
                    or_dash(w.reason)});
  }
  std::cout << format_table(
      {"RANK", "HOST", "NAME", "STATE", "CLOCK", "LAST PUSH", "WAITING", "FOR", "REASON"}, rows);
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
    rows.push_back({std::to_string(r.sequence), format_time(r.time_us), to_string(r.kind),
                    r.rank < 0 ? "-" : std::to_string(r.rank),
                    r.iteration < 0 ? "-" : std::to_string(r.iteration),
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
      return complain(kExitStore,
                      "--output " + options.output + " cannot be written: " + std::strerror(errno));
    }
  }
  std::ostream& out = options.output.empty() ? std::cout : file;
  const bool csv = options.format == "csv";
  if (csv) out << csv_line(record_column_names());
  const int code = for_each_record(options, [&](const Record& record) {
    if (csv) {
      out << csv_line(record_cells(record));
    } else {
      out << record_json(record).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
          << "\n";
    }
  });
  out.flush();
  if (code == kExitOk && !out) {
    return complain(kExitStore, (options.output.empty() ? "standard output" : options.output) +
                                    std::string(" took no more: the export is not all there"));
  }
  return code;
}

int run_create(const Options& options) {
  DaemonLink link;
  if (const int code = open(link, options); code != kExitOk) return code;
  wire::Ok ok;
  const wire::CreateJobRequest request{options.job, options.policy, options.workers,
                                       options.min_workers};
  return link.call(request, ok) ? kExitOk : failed(link);
}

int run_stop(const Options& options) {
  DaemonLink link;
  if (const int code = open(link, options); code != kExitOk) return code;
  wire::Ok ok;
  return link.call(wire::StopJobRequest{options.job, options.reason}, ok) ? kExitOk : failed(link);
}

int run_set_policy(const Options& options) {
  DaemonLink link;
  if (const int code = open(link, options); code != kExitOk) return code;
  wire::Ok ok;
  const wire::SetPolicyRequest request{options.job, options.policy};
  return link.call(request, ok) ? kExitOk : failed(link);
}

}  // namespace syncd::ctl
