// See daemon_link.h.
#include "daemon/tools/ctl/daemon_link.h"

#include "proto/base/shard.h"

namespace syncd::ctl {

using client::Ask;
using client::Session;

std::unique_ptr<client::Driver> make_driver(const Address& address,
                                            const client::SessionOptions& given) {
  client::SessionOptions options = given;
  options.link.client_version = SYNCD_VERSION;
  options.link.token = address.token;
  return std::make_unique<client::Driver>(address.endpoints, options, address.tls);
}

bool DaemonLink::open(const Address& address, std::int64_t timeout_ms) {
  timeout_ms_ = timeout_ms;
  connect_timeout_ms_ = timeout_ms * static_cast<std::int64_t>(address.endpoints.size());
  client::SessionOptions options;
  options.link.client_name = "syncctl";
  options.link.client_version = SYNCD_VERSION;
  options.link.token = address.token;
  options.one_round = true;
  options.take_over_us = timeout_ms * 1000;
  const bool opened = take(client::Drivers::open(address.endpoints, options, address.tls,
                                                 connect_timeout_ms_ * 1000, drivers_));
  if (opened) {
    driver_ = drivers_->first();
    shard_ = drivers_->first_shard();
    endpoint_ = std::get<client::ConnectResult>(completion_.result).endpoint;
  } else if (failure_ == Failure::kUnreachable) {
    const bool is_refused = error_.find("connection refused") != std::string::npos;
    error_ += ": is syncd running? Name its address with --addr";
    if (is_refused) {
      error_ +=
          ". A member of a cluster that follows takes no connection: name all members with --addr, "
          "or ask `syncctl cluster status`";
    }
  }
  return opened;
}

bool DaemonLink::choose(const std::string& job) {
  return choose(shard_of(job, shards()));
}

bool DaemonLink::choose(std::uint32_t shard) {
  if (shard == shard_) return true;
  const std::int64_t timeout_ms = missing_.erase(shard) != 0 ? 1 : connect_timeout_ms_;
  if (take(drivers_->driver_of(shard, timeout_ms * 1000, driver_))) {
    shard_ = shard;
    if (connect(timeout_ms)) return true;
  }
  missing_.insert(shard);
  return false;
}

bool DaemonLink::connect(std::int64_t timeout_ms) {
  if (!perform([](Session& session, const Ask& ask) { session.connect(ask); }, timeout_ms)) {
    return false;
  }
  endpoint_ = std::get<client::ConnectResult>(completion_.result).endpoint;
  return true;
}

bool DaemonLink::ask(const wire::Body& request) {
  return perform([&](Session& session, const Ask& ask) { session.ask(ask, request); }, timeout_ms_);
}

bool DaemonLink::perform(const client::MakeCall& make, std::int64_t timeout_ms) {
  return take(driver_->perform(make, timeout_ms * 1000));
}

bool DaemonLink::take(client::Completion completion) {
  completion_ = std::move(completion);
  switch (completion_.status) {
    case Status::kOk:
      return true;
    case Status::kUnreachable:
    case Status::kTimeout:
      return fail(Failure::kUnreachable, completion_.message);
    default:
      return fail(Failure::kRefused,
                  completion_.message + " (" + std::string(status_name(completion_.status)) + ")");
  }
}

bool DaemonLink::fail(Failure failure, std::string error) {
  failure_ = failure;
  error_ = std::move(error);
  return false;
}

bool read_workers(DaemonLink& link, const std::string& job,
                  std::vector<wire::WorkerStatus>& workers, std::int64_t& now_us, bool with_data) {
  workers.clear();
  for (std::int64_t next = 0; next >= 0;) {
    wire::WorkersReply page;
    const wire::WorkersRequest request{job, static_cast<std::uint32_t>(next), with_data};
    if (!link.read(request, page)) return false;
    now_us = page.now_us;
    next = page.next_rank;
    for (auto& worker : page.workers) workers.push_back(std::move(worker));
  }
  return true;
}

const wire::JobStatus* find_job(const std::vector<wire::JobStatus>& jobs,
                                const std::string& wanted) {
  const wire::JobStatus* found = nullptr;
  for (const wire::JobStatus& job : jobs) {
    if (job.name != wanted && "#" + std::to_string(job.id) != wanted) continue;
    if (found == nullptr || job.id > found->id) found = &job;
  }
  return found;
}

}  // namespace syncd::ctl
