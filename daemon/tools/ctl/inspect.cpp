// `syncctl inspect`: where the processes of a job's workers are. One thread.
#include <fmt/format.h>

#include <iostream>
#include <string>
#include <vector>

#include "daemon/tools/ctl/asking.h"
#include "daemon/tools/ctl/fields_json.h"
#include "daemon/tools/ctl/table.h"
#include "daemon/tools/ctl/waits.h"
#include "proto/base/plain_text.h"

namespace syncd::ctl {
namespace {

// What a process said is plain but for its line breaks.
std::string inspection_text(const wire::InspectReply& reply) {
  std::string out =
      fmt::format("worker {} ({} on {}): {}\n", reply.rank, plain(or_dash(reply.name)),
                  plain(or_dash(reply.host)), plain(reply.state));
  if (!reply.failure.empty()) out += fmt::format("  {}\n", plain(reply.failure));
  std::string_view rest = reply.stacks;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    out += "  " + plain(rest.substr(0, end)) + "\n";
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  }
  return out;
}

// The workers to ask, by rank or name. Anything but kExitOk was complained about.
int find_workers(DaemonLink& link, const Options& options, std::vector<std::string>& who) {
  if (!options.worker.empty()) {
    who.push_back(options.worker);
    return kExitOk;
  }
  std::vector<wire::WorkerStatus> workers;
  std::int64_t now_us = 0;
  wire::JobsReply jobs;
  if (!read_workers(link, options.job, workers, now_us) || !link.read(wire::JobsRequest{}, jobs)) {
    return failed(link);
  }
  const wire::JobStatus* job = find_job(jobs.jobs, options.job);
  for (const wire::WorkerStatus& worker : workers) {
    const bool at_fault = job != nullptr && names_rank(job->hang_ranks, worker.rank);
    if (options.hanging ? at_fault : worker.connected) who.push_back(fmt::to_string(worker.rank));
  }
  return kExitOk;
}

}  // namespace

int run_inspect(const Options& options) {
  if (options.hanging && !options.worker.empty()) {
    return complain(kExitUsage, "inspect takes a WORKER or --hanging, not both");
  }
  DaemonLink link;
  if (const int code = open_link(link, options); code != kExitOk) return code;
  std::vector<std::string> who;
  if (const int code = find_workers(link, options, who); code != kExitOk) return code;
  nlohmann::json list = nlohmann::json::array();
  for (const std::string& worker : who) {
    wire::InspectReply reply;
    if (!link.call(wire::InspectRequest{options.job, worker, options.stored}, reply)) {
      return failed(link);
    }
    if (options.json) {
      list.push_back(fields_json(reply));
    } else {
      std::cout << inspection_text(reply) << std::flush;
    }
  }
  if (options.json) {
    std::cout << json_text(list);
  } else if (who.empty()) {
    std::cout << (options.hanging ? "no worker of the job is at fault in a hang\n"
                                  : "no worker of the job is connected\n");
  }
  return kExitOk;
}

}  // namespace syncd::ctl
