// How many jobs each identity has made; see the header.
#include "daemon/edge/server/job_quota.h"

#include "daemon/core/engine/limits.h"

namespace syncd::server {

std::string JobQuota::refusal(const net::Identity* client, std::uint32_t jobs_max) {
  if (client == nullptr || client->is_owner) return {};
  for (const std::string& who : client->counted()) {
    const auto found = made_by_.find(who);
    if (found == made_by_.end()) continue;
    prune_finished(found->second);
    const std::size_t live = found->second.live.size();
    if (live < jobs_max) continue;
    return "'" + who + "' has made " + std::to_string(live) +
           " jobs that go on, the most allowed (limits.jobs_per_identity_max): one must end first, "
           "or whom auth.admin names must stop one";
  }
  return {};
}

void JobQuota::add(const net::Identity* client, JobId made) {
  if (client == nullptr || client->is_owner) return;
  for (const std::string& who : client->counted()) made_by_[who].live.insert(made);
}

// Where the oldest job would be forgotten to make room for a new one, whoever has made very many
// loses one first: nobody's finished jobs are to be washed away by somebody else's.
JobId JobQuota::take_one_to_forget() {
  if (engine_.jobs_known() < limits::kJobsMax) return 0;
  MadeJobs* most = nullptr;
  for (auto& [who, made] : made_by_) {
    prune_finished(made);
    if (most == nullptr || made.stopped.size() > most->stopped.size()) most = &made;
  }
  if (most == nullptr || most->stopped.size() <= limits::kJobsMax / 10) return 0;
  const JobId oldest = most->stopped.front();
  most->stopped.pop_front();
  return oldest;
}

void JobQuota::prune_finished(MadeJobs& made) const {
  std::erase_if(made.live, [&](JobId job) {
    const bool live = engine_.is_live(job);
    if (!live) made.stopped.push_back(job);
    return !live;
  });
  // Mostly the oldest of them.
  while (!made.stopped.empty() && !engine_.knows(made.stopped.front())) made.stopped.pop_front();
}

}  // namespace syncd::server
