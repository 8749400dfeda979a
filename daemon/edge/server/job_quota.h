// The jobs that each identity has made since the daemon started, so that one tenant cannot use up
// what is there for all. One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "daemon/core/engine/engine.h"
#include "daemon/edge/net/admission.h"

namespace syncd::server {

class JobQuota {
 public:
  // `engine` must outlive it.
  explicit JobQuota(const Engine& engine) : engine_(engine) {}

  // Empty, or why this client may make no other job now. Null: nobody is known.
  std::string refusal(const net::Identity* client, std::uint32_t jobs_max);
  void add(const net::Identity* client, JobId made);
  // The job to forget before another one is made; 0: none, or the engine chooses.
  JobId take_one_to_forget();

 private:
  // By one client.
  struct MadeJobs {
    std::set<JobId> live;       // when it was last looked
    std::deque<JobId> stopped;  // by age, and some that the engine has forgotten
  };
  void prune_finished(MadeJobs& made) const;

  const Engine& engine_;
  std::map<std::string, MadeJobs> made_by_;
};

}  // namespace syncd::server
