// See commands.h.
#include "daemon/tools/ctl/commands.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "daemon/edge/config/duration.h"
#include "daemon/tools/ctl/asking.h"
#include "daemon/tools/ctl/chrome_trace.h"
#include "daemon/tools/ctl/daemon_link.h"
#include "daemon/tools/ctl/fields_json.h"
#include "daemon/tools/ctl/table.h"
#include "proto/base/plain_text.h"

namespace syncd::ctl {
namespace {

constexpr std::int64_t kCopyTimeoutMs = 600'000;

void print(const nlohmann::json& json) {
  std::cout << json_text(json);
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
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

nlohmann::json to_json(const wire::WorkerStatus& w) {
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

}  // namespace

int run_status(const Options& options) {
  DaemonLink link;
  if (const int code = open_link(link, options); code != kExitOk) return code;
  wire::StatusReply s;
  if (!link.call(wire::StatusRequest{}, s)) return failed(link);
  if (options.json) {
    print(to_json(s));
    return kExitOk;
  }
  std::cout << "syncd " << plain(s.server_version) << " at " << link.endpoint() << ", pid " << s.pid
            << ", up " << format_duration(s.now_us - s.started_us) << "\n"
            << "store    " << plain(s.store) << " (" << s.mode << (s.read_only ? ", READ-ONLY" : "")
            << ")\n"
            << "jobs     " << s.jobs << "\n"
            << "workers  " << s.workers << "\n"
            << "sessions " << s.sessions << "\n"
            << "pushes   " << s.pushes << "\n"
            << "frames   " << s.frames_in << " in, " << s.frames_out << " out\n";
  if (s.read_only) {
    std::cout << "problem  pushes are refused for "
              << format_duration(s.now_us - s.store_error_since_us) << ": " << plain(s.store_error)
              << "\n";
  }
  return kExitOk;
}

int run_jobs(const Options& options) {
  DaemonLink link;
  if (const int code = open_link(link, options); code != kExitOk) return code;
  wire::JobsReply reply;
  if (!link.call(wire::JobsRequest{}, reply)) return failed(link);
  if (reply.omitted > 0) {
    // On standard error, so that --json stays JSON.
    std::cerr << "syncctl: " << reply.omitted
              << " more jobs do not fit an answer and are not shown; running ones come first\n";
  }
  if (options.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const wire::JobStatus& job : reply.jobs) all.push_back(fields_json(job));
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
  if (const int code = open_link(link, options); code != kExitOk) return code;
  std::vector<wire::WorkerStatus> workers;
  std::int64_t now_us = 0;
  if (!read_workers(link, options.job, workers, now_us)) return failed(link);
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
                    or_dash(w.reason), threshold(w.warn_after_us), threshold(w.evict_after_us),
                    or_dash(w.late_rule)});
  }
  std::cout << format_table({"RANK", "HOST", "NAME", "STATE", "CLOCK", "LAST PUSH", "WAITING",
                             "FOR", "REASON", "WARN", "EVICT", "WHY THEN"},
                            rows);
  return kExitOk;
}

int run_members(const Options& options) {
  DaemonLink link;
  if (const int code = open_link(link, options); code != kExitOk) return code;
  std::vector<wire::WorkerStatus> workers;
  std::int64_t now_us = 0;
  if (!read_workers(link, options.job, workers, now_us, true)) return failed(link);
  if (options.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const wire::WorkerStatus& worker : workers) all.push_back(member_json(worker));
    print(all);
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows;
  for (const wire::WorkerStatus& w : workers) {
    rows.push_back({std::to_string(w.rank), w.name, w.host, w.state, w.connected ? "yes" : "no",
                    format_age(now_us, w.heard_us), std::to_string(w.incarnation),
                    or_dash(data_text(w.data))});
  }
  std::cout << format_table(
      {"RANK", "NAME", "HOST", "STATE", "CONNECTED", "HEARD", "INCARNATION", "DATA"}, rows);
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

namespace {

int ended(int code, const std::ostream& out, const std::string& output) {
  if (code == kExitOk && !out) {
    return complain(kExitStore, (output.empty() ? "standard output" : output) +
                                    std::string(" took no more: the export is not all there"));
  }
  return code;
}

int export_chrome(const Options& options, std::ostream& out) {
  ChromeTrace trace(out);
  const int code = for_each_record(options, [&](const Record& record) { trace.add(record); });
  trace.finish();
  out.flush();
  return ended(code, out, options.output);
}

}  // namespace

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
  if (options.format == "chrome") return export_chrome(options, out);
  const bool csv = options.format == "csv";
  if (csv) out << csv_line(record_column_names());
  const int code = for_each_record(options, [&](const Record& record) {
    if (csv) {
      out << csv_line(record_cells(record));
    } else {
      out << json_text(record_json(record), -1);
    }
  });
  out.flush();
  return ended(code, out, options.output);
}

int run_create(const Options& options) {
  DaemonLink link;
  if (const int code = open_link(link, options); code != kExitOk) return code;
  wire::Ok ok;
  const wire::CreateJobRequest request{options.job, options.policy, options.workers,
                                       options.min_workers};
  return link.call(request, ok) ? kExitOk : failed(link);
}

int run_stop(const Options& options) {
  DaemonLink link;
  if (const int code = open_link(link, options); code != kExitOk) return code;
  wire::Ok ok;
  return link.call(wire::StopJobRequest{options.job, options.reason}, ok) ? kExitOk : failed(link);
}

int run_checkpoint(const Options& options, const std::string& to) {
  // As long as the disk takes.
  Options patient = options;
  patient.timeout_ms = std::max<std::int64_t>(options.timeout_ms, kCopyTimeoutMs);
  DaemonLink link;
  if (const int code = open_link(link, patient); code != kExitOk) return code;
  wire::Ok ok;
  if (!link.call(wire::CheckpointRequest{to}, ok)) return failed(link);
  if (options.json) {
    print({{"backup", to}});
  } else {
    std::cout << link.endpoint() << " has copied its store to " << to
              << " (to read all of the copy, there: syncctl store check " << to << ")\n";
  }
  return kExitOk;
}

int run_set_policy(const Options& options) {
  DaemonLink link;
  if (const int code = open_link(link, options); code != kExitOk) return code;
  wire::Ok ok;
  const wire::SetPolicyRequest request{options.job, options.policy};
  return link.call(request, ok) ? kExitOk : failed(link);
}

namespace {

int manage(const Options& options, wire::WorkerAction action, const std::string& text,
           std::int64_t lease_us = 0) {
  DaemonLink link;
  if (const int code = open_link(link, options); code != kExitOk) return code;
  wire::Ok ok;
  const wire::ManageWorkerRequest request{options.job, options.worker, action, text, lease_us};
  return link.call(request, ok) ? kExitOk : failed(link);
}

}  // namespace

int run_drain(const Options& options) {
  return manage(options, wire::WorkerAction::kDrain, options.reason);
}

int run_kick(const Options& options) {
  return manage(options, wire::WorkerAction::kKick, options.reason);
}

int run_phase(const Options& options) {
  Micros lease_us = 0;
  if (!config::parse_duration(options.lease, lease_us)) {
    return complain(kExitUsage,
                    "--lease " + options.lease + " is no duration such as 90s, 10m or 2h");
  }
  return manage(options, wire::WorkerAction::kLease, options.phase, lease_us);
}

}  // namespace syncd::ctl
