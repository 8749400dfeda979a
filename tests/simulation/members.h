// The members of a cluster that serve the simulated clients: each keeps a copy of the log on a disk
// of its own, and the one that leads runs a daemon over it. One thread.
//
// What must hold beside what Checks and Cluster look at:
//  - What leaves a daemon for clients leaves while etcd has its member's key.
//  - A copy is, for every job, a range of the log that ends at the copy's stamp.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "checks.h"
#include "cluster.h"
#include "daemon.h"
#include "disk.h"
#include "network.h"

namespace syncd::simulation {

class Members {
 public:
  // `log` becomes all that etcd takes: the history as the next leader recovers it.
  Members(Agenda& agenda, test::Random& random, Network& network, Disk& log, Checks& checks,
          ClusterMistake mistake);
  ~Members();

  void start(std::size_t count, const Daemon::Options& options);
  void become_calm();
  // Whether a worker waits for an answer. May be null.
  std::function<bool()> is_awaited;
  // Who serves now; null: nobody.
  Daemon* leader() const;
  // After each event.
  void check() const { cluster_.check_grants(); }
  // At the end.
  void check_copies() const;
  // At the end, too: what the cluster has come across is told to Checks.
  void count_figures();

 private:
  class Member;
  void take_over(const Member& member);
  void on_entry(const Link& link);
  void check_copy(const Disk& copy, const cluster::Tail& stamp) const;

  Agenda& agenda_;
  test::Random& random_;
  Network& network_;
  Disk& log_;
  Checks& checks_;
  Daemon::Options options_;
  Cluster cluster_;
  std::vector<Member*> members_;
  const Member* current_ = nullptr;  // the last one that has recovered
  // What it has handed to its store, and etcd has not taken.
  struct Submitted {
    JobId job = 0;
    Sequence sequence = 0;
    RecordKind kind = RecordKind::kPush;
  };
  std::vector<Submitted> submitted_;
  // After each entry the last record of every job.
  std::vector<std::map<JobId, Sequence>> ends_;
  std::map<JobId, Sequence> snapshots_;  // that etcd has a pointer to
};

}  // namespace syncd::simulation
