// The one file of the admin pages that sees nlohmann's headers; see the header. Any thread.
#include "daemon/edge/admin/status_page.h"

#include <nlohmann/json.hpp>

#include "proto/base/plain_text.h"

namespace syncd::admin {
namespace {

using Json = nlohmann::ordered_json;

Json job_json(const JobFigures& job) {
  Json members;
  for (std::size_t i = 0; i < job.members.size(); ++i) {
    members[to_string(static_cast<WorkerState>(i))] = job.members[i];
  }
  Json out = {{"id", job.id},
              {"name", job.name},
              {"policy", job.policy},
              {"state", to_string(job.state)},
              {"epoch", job.epoch},
              {"expected_workers", job.expected},
              {"members", members},
              {"waiting", job.waiting},
              {"clock_min", nullptr},
              {"clock_max", nullptr},
              {"clock_lag", nullptr},
              {"pushes", job.pushes},
              {"barriers", job.barriers},
              {"workers_lost", job.counters.lost}};
  if (job.has_clocks) {
    out["clock_min"] = job.clock_min;
    out["clock_max"] = job.clock_max;
    out["clock_lag"] = job.lag;
  }
  return out;
}

}  // namespace

std::string status_json(const Snapshot& snapshot, bool for_administrator) {
  const server::ServerView& server = snapshot.server;
  Json jobs = Json::array();
  for (const JobFigures& job : server.jobs) jobs.push_back(job_json(job));
  const bool reason_shown = for_administrator || server.store_reason.empty();
  Json out = {
      {"version", server.version},
      {"ready", server.not_ready.empty()},
      {"not_ready", server.not_ready},
      {"started_us", server.started_us},
      {"now_us", server.now_us},
      {"uptime_us", server.now_us - server.started_us},
      {"endpoints", server.endpoints},
      {"store",
       {{"path", for_administrator ? Json(server.store) : Json()},
        {"mode", server.mode},
        {"writable", server.writable},
        {"reason", reason_shown ? server.store_reason : server::kReasonForClients},
        {"records_waiting", server.store_figures.records_waiting}}},
      {"sessions", server.network.sessions},
      {"connections", server.network.connections},
      {"workers", server.engine.workers},
      {"pushes", server.engine.pushes},
      {"jobs", jobs},
      {"jobs_omitted", server.jobs_left_out},
  };
  if (const auto& member = snapshot.member) {
    out["cluster"] = {{"name", member->cluster},  {"member", member->member},
                      {"leads", member->leads},   {"leader", member->leader},
                      {"term", member->term},     {"log_first", member->first},
                      {"log_last", member->last}, {"copied", member->copied}};
  }
  // What is no UTF-8, such as a path may be, is replaced.
  return plain_json(out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)) + "\n";
}

}  // namespace syncd::admin
