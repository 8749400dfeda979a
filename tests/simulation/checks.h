// What must hold in every simulated run, whatever the workload: looked at from outside, with no
// help of the engine. One thread.
//
//  - An acknowledged push is in the history, and no push is there twice (durable: whatever
//  crashed).
//  - The history of a job has no gap and no damage, clocks in it never go down within a life, and
//    nobody pushes in a life that is over.
//  - Granted iterations of a worker rise within a life, none is granted that it has pushed, and a
//    grant keeps the staleness bound of the policy of that time against everybody who is known to
//    take part.
//  - No worker is granted anything while its job waits for a start, its first or another one. A job
//    waits for another start only when no worker takes part.
//  - Whoever waits is told why, and for nobody who has left or was given up.
//  - Nobody is advised to drop an iteration that was not granted, and no trainer is told to drop
//    another iteration than the one that the advice was for.
//  - A reduce is told of updates alone that their workers had sent before, of each worker once, and
//    of weights that sum to 1.
//  - All who are in a round are told the same of it, also by another daemon; it has as many members
//    as the policy allows. Nobody trains in a round when a later one begins, unless its job has
//    given it up, or let it go, since.
//  - With a shared store: nobody is told of its end before that is committed.
//  - The engine that comes of a snapshot and the records after it is the one that comes of all
//    records.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client.h"
#include "daemon.h"
#include "disk.h"

namespace syncd::simulation {

// What is known of a policy here.
struct Rule {
  std::string policy;
  // The most that a granted iteration may be ahead of the slowest worker's clock, both counted from
  // the worker's base. Empty: there is no such bound.
  std::optional<std::int64_t> bound = {};
  std::size_t backup = 0;                        // so many may be further behind
  bool renews = false;                           // a barrier renews the bases
  std::size_t members_min = 0, members_max = 0;  // of a round
};

class Checks final : public DaemonWatcher, public ClientWatcher {
 public:
  // `policies`: those that the job may have, the first of them at first.
  // `repeats`: a new life may do the iteration over that the one before has pushed.
  // `is_shared`: another daemon may go on from what is committed, so that a worker counts for the
  // bounds of others until on_committed() says that it has gone.
  // `trace`: where to say what happens; empty: nowhere.
  Checks(std::vector<Rule> policies, bool repeats, bool is_shared,
         std::function<void(const std::string&)> trace)
      : rules_(std::move(policies)),
        repeats_(repeats),
        is_shared_(is_shared),
        trace_(std::move(trace)) {}

  // DaemonWatcher
  void on_records(const std::vector<Record>& records) override;
  void on_push(const wire::Push& push) override;
  void on_granted(const wire::WorkerRef& worker, const wire::Granted& granted) override;
  void on_view_granted(const wire::WorkerRef& worker, const wire::ViewGranted& granted) override;
  void on_advised(const wire::WorkerRef& worker, std::int64_t iteration) override;
  void on_waits(const wire::WorkerRef& worker, const Explanation& why) override;
  void on_log(const LogLine& line) override;
  void on_sends() override {}

  // ClientWatcher
  void on_acknowledged(std::uint32_t rank, std::int64_t iteration) override;
  void on_published(std::uint32_t rank, std::int64_t iteration,
                    const std::vector<std::uint32_t>& targets) override;
  void on_collected(std::uint32_t rank, std::int64_t iteration,
                    const std::vector<wire::PeerUpdate>& updates) override;
  void on_dropped(std::uint32_t rank, std::int64_t iteration) override;
  void on_members(const std::string& name, const wire::ViewReply& view) override;
  void on_trains(const std::string& name, std::uint64_t round) override;
  void on_outcome(const std::string& name, const std::string& call, Status status) override;

  void on_committed(const std::vector<Record>& records);
  // The daemon died: what is known of the job is what the disk has.
  void on_restart(const Disk& disk);
  // A power cut may have taken what was acknowledged without a promise (mode `fast`), and such
  // acknowledgements may still be under way.
  void forgive() { promised_ = false; }
  // A power cut may take a loss or a join that was acted upon and not acknowledged to anybody: the
  // graph is another one then than workers were told.
  void note_power_cut() { loses_ends_ = true; }

  // At any time when no daemon writes.
  void check_history(const Disk& disk) const;
  static void check_recovery(const Disk& disk, const EngineOptions& options);

  // A worker has left that was in no round: it was lost while it trained, and its work was done
  // when it came back.
  bool leaves_outside() const { return leaves_outside_; }

  void count(const std::string& what, std::uint64_t times = 1);
  // How often what happened.
  const std::map<std::string, std::uint64_t>& counts() const { return counts_; }

 private:
  struct Member {
    Incarnation incarnation = 0;
    Clock clock = 0, base = 0;
    Iteration granted = kNoIteration;
    bool takes_part = false;  // has been granted something in this life, and has not gone
    bool gone = false;
    bool returned = false;  // to a job that reassembles
  };
  void apply(const Record& record);
  void begin_again(const Record& record);
  void note_gone(const std::string& name);
  bool is_in_latest_round(const Record& record) const;

  const Rule& rule_of(JobId job) const;
  void check_staleness(JobId job, Rank rank, const Member& member) const;

  bool loses_ends_ = false;
  const std::vector<Rule> rules_;
  const bool repeats_;
  const bool is_shared_;
  std::function<void(const std::string&)> trace_;
  std::map<std::pair<JobId, Rank>, Member> members_;
  std::set<JobId> started_;
  std::set<JobId> started_again_;          // or waiting for it
  std::map<JobId, Epoch> epochs_;          // of jobs that reassembled
  std::map<JobId, std::string> policies_;  // of jobs of which it was changed
  // Of all lives of the daemon: the latest grant of each life of a worker, and what iterations of a
  // rank were advised to be dropped.
  std::map<std::tuple<JobId, Rank, Incarnation>, Iteration> granted_;
  std::set<std::pair<std::uint32_t, std::int64_t>> advised_;
  std::multiset<std::pair<std::uint32_t, std::int64_t>> acknowledged_;
  std::set<std::tuple<JobId, Rank, Incarnation, Iteration>> sent_;  // pushes
  std::set<std::tuple<std::uint32_t, std::int64_t, std::uint32_t>>
      published_;  // who, what, to whom
  // Of rounds, by their numbers, which do not begin anew in another job of the name.
  std::map<std::uint64_t, std::vector<ViewMember>> rounds_;          // recorded
  std::map<std::uint64_t, std::vector<ViewMember>> granted_rounds_;  // of all lives of the daemon
  std::map<std::pair<JobId, Rank>, std::string> names_;
  // With a shared store, lives that have ended while they took part, which is not committed.
  std::map<std::tuple<JobId, Rank, Incarnation>, Member> leaving_;
  // Likewise, what is committed: the name and the incarnation of every life that has not
  // ended, how many lives of each name have, and of how many ends it was told.
  std::map<std::pair<JobId, Rank>, std::pair<std::string, Incarnation>> lives_;
  std::map<std::string, std::uint64_t> ends_;
  std::map<std::string, std::uint64_t> told_of_end_;
  std::map<std::string, std::uint64_t> gone_in_;   // the latest round when it left or was lost
  std::map<std::string, std::uint64_t> training_;  // processes, and the round that they are in
  bool leaves_outside_ = false;
  bool promised_ = true;
  std::map<std::string, std::uint64_t> counts_;
};

}  // namespace syncd::simulation
