// See waits.h.
#include "daemon/tools/ctl/waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iostream>
#include <string_view>

#include "daemon/edge/config/duration.h"
#include "daemon/tools/ctl/asking.h"
#include "daemon/tools/ctl/fields_json.h"
#include "daemon/tools/ctl/stragglers.h"
#include "daemon/tools/ctl/table.h"
#include "daemon/tools/sim/trace.h"
#include "proto/base/clock.h"
#include "proto/base/plain_text.h"

namespace syncd::ctl {
namespace {

std::string seconds(Micros us) {
  return fmt::format("{:.3f}", static_cast<double>(us) / 1e6);
}

std::string share(Micros part, Micros whole) {
  if (whole <= 0) return "-";
  return fmt::format("{:.1f}", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

nlohmann::json to_json(const StragglerShare& share) {
  nlohmann::json out = fields_json(share);
  if (share.rank == kNoRank) {
    out.erase("rank");
    out.erase("name");
  }
  return out;
}

void cut(std::vector<StragglerShare>& shares, std::uint32_t top) {
  if (top > 0 && shares.size() > top) shares.resize(top);
}

void print_table(const std::vector<StragglerShare>& shares, Micros whole_us, bool hosts) {
  std::vector<std::string> header = {"RANK",    "NAME",      "HOST",  "LOST s", "SHARE %",
                                     "ALONE s", "LONGEST s", "WAITS", "MOMENTS"};
  std::vector<std::vector<std::string>> rows;
  for (const StragglerShare& s : shares) {
    rows.push_back({fmt::to_string(s.rank), or_dash(s.name), or_dash(s.host), seconds(s.lost_us),
                    share(s.lost_us, whole_us), seconds(s.alone_us), seconds(s.longest_us),
                    fmt::to_string(s.waits), fmt::to_string(s.moments)});
  }
  if (hosts) {
    header.erase(header.begin(), header.begin() + 2);
    for (auto& row : rows) row.erase(row.begin(), row.begin() + 2);
  }
  std::cout << format_table(header, rows);
}

std::string called(const wire::WorkerStatus& w) {
  return fmt::format("worker {} ({} on {})", w.rank, plain(or_dash(w.name)),
                     plain(or_dash(w.host)));
}

// The workers that `worker` waits for, and those that wait for it.
struct Around {
  std::vector<const wire::WorkerStatus*> waited_for;
  std::vector<const wire::WorkerStatus*> waiting;
};

Around around(const std::vector<wire::WorkerStatus>& workers, const wire::WorkerStatus& worker) {
  Around found;
  for (const wire::WorkerStatus& other : workers) {
    if (other.rank == worker.rank) continue;
    if (worker.waiting_us >= 0 && names_rank(worker.waiting_for, other.rank)) {
      found.waited_for.push_back(&other);
    }
    if (other.waiting_us >= 0 && names_rank(other.waiting_for, worker.rank)) {
      found.waiting.push_back(&other);
    }
  }
  return found;
}

nlohmann::json explain_json(const std::vector<wire::WorkerStatus>& workers,
                            const wire::WorkerStatus& w, const std::string& policy) {
  const auto brief = [](const std::vector<const wire::WorkerStatus*>& of) {
    nlohmann::json list = nlohmann::json::array();
    for (const wire::WorkerStatus* other : of) {
      list.push_back(
          fields_json(*other, {"rank", "name", "host", "state", "clock", "last_push_us"}));
    }
    return list;
  };
  const Around others = around(workers, w);
  nlohmann::json out = fields_json(
      w, {"rank", "name", "host", "state", "clock", "waiting_us", "reason", "waiting_for"});
  out["policy"] = policy;
  out["waits_for"] = brief(others.waited_for);
  out["waited_for_by"] = brief(others.waiting);
  return out;
}

}  // namespace

bool names_rank(const std::string& ranks, std::uint32_t rank) {
  const char* at = ranks.data();
  const char* const end = at + ranks.size();
  while (at != end) {
    std::uint32_t first = 0;
    auto [after, code] = std::from_chars(at, end, first);
    if (code != std::errc{}) return false;  // "and N more"
    std::uint32_t last = first;
    if (after != end && *after == '-') {
      const auto range = std::from_chars(after + 1, end, last);
      if (range.ec != std::errc{}) return false;
      after = range.ptr;
    }
    if (rank >= first && rank <= last) return true;
    at = std::find_if_not(after, end, [](char c) { return c == ',' || c == ' '; });
  }
  return false;
}

const wire::WorkerStatus* find_worker(const std::vector<wire::WorkerStatus>& workers,
                                      const std::string& wanted) {
  const auto found = std::ranges::find_if(workers, [&](const wire::WorkerStatus& worker) {
    return fmt::to_string(worker.rank) == wanted;
  });
  if (found != workers.end()) return &*found;
  const auto named = std::ranges::find(workers, wanted, &wire::WorkerStatus::name);
  return named != workers.end() ? &*named : nullptr;
}

std::string explain_text(const std::vector<wire::WorkerStatus>& workers,
                         const wire::WorkerStatus& worker, const std::string& policy,
                         std::int64_t now_us) {
  const Around others = around(workers, worker);
  const std::string rule = policy.empty() ? "" : fmt::format("rule   {}\n", plain(policy));
  std::string out =
      worker.waiting_us < 0
          ? fmt::format("{} is not waiting for a grant\nstate  {}, clock {}, last push {}\n{}{}",
                        called(worker), plain(worker.state), worker.clock,
                        format_age(now_us, worker.last_push_us), rule,
                        worker.reason.empty() ? "" : "now    " + plain(worker.reason) + "\n")
          : fmt::format("{} has waited {}\n{}why    {}\nfor    {}\n", called(worker),
                        format_duration(worker.waiting_us), rule, plain(or_dash(worker.reason)),
                        plain(or_dash(worker.waiting_for)));
  if (!others.waited_for.empty()) {
    std::vector<std::vector<std::string>> rows;
    for (const wire::WorkerStatus* other : others.waited_for) {
      rows.push_back({fmt::to_string(other->rank), or_dash(other->name), or_dash(other->host),
                      fmt::to_string(other->clock), format_age(now_us, other->last_push_us),
                      other->state, other->waiting_us < 0 ? "-" : or_dash(other->waiting_for)});
    }
    out += "\n" +
           format_table({"RANK", "NAME", "HOST", "CLOCK", "LAST PUSH", "STATE", "WAITS FOR"}, rows);
  }
  if (!others.waiting.empty()) {
    std::vector<std::uint32_t> ranks;
    for (const wire::WorkerStatus* other : others.waiting) ranks.push_back(other->rank);
    std::sort(ranks.begin(), ranks.end());
    out += fmt::format("\nwaited for by {} worker{}: {}\n", ranks.size(),
                       ranks.size() == 1 ? "" : "s", compress_ranks(ranks));
  }
  return out;
}

std::string explain_job_text(const wire::JobStatus& job) {
  if (!job.hang.empty()) return plain(job.hang) + "\n";
  const std::string name = plain(job.name);
  std::string out = fmt::format(
      "no hang of job '{}' is known: nobody has waited for longer than its hang_after, or that is "
      "off\n",
      name);
  if (job.waiting > 0) {
    out += fmt::format("{} wait now: syncctl explain {} RANK says for whom\n", job.waiting, name);
  }
  if (!job.note.empty()) out += plain(job.note) + "\n";
  return out;
}

bool since_time(const std::string& since, std::int64_t now_us, std::int64_t& since_us) {
  Micros back_us = 0;
  if (!config::parse_duration(since, back_us)) return false;
  since_us = now_us - back_us;
  return true;
}

// What `stragglers --input` shows.
int show_episodes(const Options& options) {
  SlowEpisodes episodes;
  const auto add = [&](const sim::RecordedPush& push) {
    if (!push.in_phase) episodes.add(push.rank, push.iteration, push.own_span_us());
  };
  std::string error;
  if (!sim::read_pushes_file(options.input, add, error)) return complain(kExitStore, error);
  nlohmann::json out = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows;
  for (const SlowEpisode& e : episodes.found()) {
    out.push_back({{"rank", e.rank}, {"from", e.from}, {"to", nullptr}, {"factor", e.factor}});
    if (e.to) out.back()["to"] = *e.to;
    rows.push_back({fmt::to_string(e.rank), fmt::to_string(e.from),
                    e.to ? fmt::to_string(*e.to) : "-", fmt::format("{:.2f}", e.factor)});
  }
  if (options.json) {
    std::cout << json_text(out);
  } else if (rows.empty()) {
    std::cout << "no worker was slow for a while\n";
  } else {
    std::cout << format_table({"RANK", "FROM", "TO", "FACTOR"}, rows);
  }
  return kExitOk;
}

int run_stragglers(const Options& options) {
  if (!options.input.empty()) return show_episodes(options);
  if (options.job.empty()) {
    return complain(kExitUsage, "stragglers needs a job or --input FILE: syncctl stragglers JOB");
  }
  const std::int64_t now_us = wall_clock_us();
  std::int64_t since_us = 0;
  if (!options.since.empty() && !since_time(options.since, now_us, since_us)) {
    return complain(kExitUsage,
                    fmt::format("--since {} is no duration such as 90s, 10m or 2h", options.since));
  }
  Stragglers stragglers(since_us);
  const int code = for_each_record(options, [&](const Record& record) { stragglers.add(record); });
  if (code != kExitOk) return code;
  std::vector<StragglerShare> workers = stragglers.by_worker();
  std::vector<StragglerShare> hosts = stragglers.by_host();
  cut(workers, options.top);
  cut(hosts, options.top);
  if (options.json) {
    nlohmann::json out = {
        {"lost_us", stragglers.lost_us()},         {"elsewhere_us", stragglers.elsewhere_us()},
        {"computed_us", stragglers.computed_us()}, {"exchange_us", stragglers.exchange_us()},
        {"workers", nlohmann::json::array()},      {"hosts", nlohmann::json::array()}};
    for (const StragglerShare& s : workers) out["workers"].push_back(to_json(s));
    for (const StragglerShare& s : hosts) out["hosts"].push_back(to_json(s));
    std::cout << json_text(out);
    return kExitOk;
  }
  const Micros whole_us = stragglers.computed_us() + stragglers.exchange_us() +
                          stragglers.lost_us() + stragglers.elsewhere_us();
  std::cout << fmt::format(
      "waiting for workers {} s ({} % of the workers' time), for anything else {} s, computing {} "
      "s{}\n",
      seconds(stragglers.lost_us()), share(stragglers.lost_us(), whole_us),
      seconds(stragglers.elsewhere_us()), seconds(stragglers.computed_us()),
      stragglers.exchange_us() > 0
          ? fmt::format(", exchanging {} s", seconds(stragglers.exchange_us()))
          : "");
  if (workers.empty()) {
    std::cout << "no worker made another wait\n";
    return kExitOk;
  }
  std::cout << "\n";
  print_table(workers, stragglers.lost_us(), false);
  std::cout << "\n";
  print_table(hosts, stragglers.lost_us(), true);
  return kExitOk;
}

int run_explain(const Options& options) {
  DaemonLink link;
  if (const int code = open_link(link, options); code != kExitOk) return code;
  std::vector<wire::WorkerStatus> workers;
  std::int64_t now_us = 0;
  if (!read_workers(link, options.job, workers, now_us)) return failed(link);
  wire::JobsReply jobs;
  if (!link.read(wire::JobsRequest{}, jobs)) return failed(link);
  if (options.worker.empty()) {
    const wire::JobStatus* found = find_job(jobs.jobs, options.job);
    if (found == nullptr) {
      return complain(kExitRefused, fmt::format("there is no job '{}'", options.job));
    }
    std::cout << (options.json ? json_text(fields_json(*found, {"name", "state", "waiting", "note",
                                                                "hang", "hang_ranks"}))
                               : explain_job_text(*found));
    return kExitOk;
  }
  const wire::WorkerStatus* worker = find_worker(workers, options.worker);
  if (worker == nullptr) {
    return complain(
        kExitRefused,
        fmt::format("job '{0}' has no worker '{1}' by rank or name: see syncctl workers {0}",
                    options.job, options.worker));
  }
  const wire::JobStatus* job = find_job(jobs.jobs, options.job);
  const std::string policy = job == nullptr ? std::string() : job->policy;
  if (options.json) {
    std::cout << json_text(explain_json(workers, *worker, policy));
  } else {
    std::cout << explain_text(workers, *worker, policy, now_us);
    if (job != nullptr && !job->hang.empty()) std::cout << "\n" << explain_job_text(*job);
  }
  return kExitOk;
}

}  // namespace syncd::ctl
