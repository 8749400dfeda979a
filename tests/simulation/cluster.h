// The members of a cluster, for one shard: the parts of daemon/core/cluster against a model etcd,
// between a network, clocks, processes and operators that go wrong. What a member keeps a copy of,
// and what it serves while it leads, is its Replica's affair. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agenda.h"
#include "daemon/core/cluster/leadership.h"
#include "daemon/core/cluster/lease.h"
#include "daemon/core/cluster/shard_log.h"
#include "daemon/core/cluster/take_over.h"
#include "tests/support/model_etcd.h"
#include "tests/support/random.h"

namespace syncd::simulation {

// What is broken on purpose, which a run must notice.
enum class ClusterMistake : std::uint8_t {
  kNone,
  kSkipsTheFence,  // transactions do not compare the leader key
  kSkipsTheTail,   // nor the tail
  kGrantsTooLong,  // the lease counts from its answer, not from its sending
  kServesOn,       // who hands the shard over serves until the key has gone
  kOutlivesLease,  // who leads does so until etcd says that another one does
};

// What happened, so that a test sees that it did.
struct ClusterFigures {
  std::uint64_t acknowledged = 0;
  std::uint64_t terms = 0;
  std::uint64_t entries = 0;
  std::uint64_t removals = 0;
  std::uint64_t rebuilt = 0;  // copies, from snapshots
  std::uint64_t deposed = 0;  // logs
  std::uint64_t unknown = 0;  // answers
  std::uint64_t late = 0;     // transactions that landed long after they were sent
  std::uint64_t failed = 0;   // recoveries
  std::uint64_t large = 0;    // entries in parts
  std::uint64_t given = 0;    // terms of a member that the leader before had chosen
};

// One entry of the log, as etcd took it.
struct Link {
  cluster::Tail at;
  cluster::Term term;
  std::string records;
};

// A member's copy of the log, and what it does while it leads. The copy outlives processes.
class Replica {
 public:
  virtual ~Replica() = default;
  virtual cluster::Tail stamp() const = 0;  // of the copy
  // False: a snapshot's parts are gone, so that a later pointer is there.
  virtual bool catch_up(const cluster::TakeOver& read) = 0;
  // It leads, from its copy on, until stop_leading(); `log` lives as long.
  virtual void lead(cluster::ShardLog& log, const cluster::TakeOver& read) = 0;
  virtual void stop_leading() = 0;
  // While it leads, each time that the log may have come further.
  virtual void settle() = 0;
  // While it leads, the first entry that snapshots in etcd do not cover.
  virtual cluster::Index covered_before() = 0;
  // It hands the shard over: takes nothing more from clients, and is idle once all that it took is
  // in the log.
  virtual void stop_serving() = 0;
  virtual bool is_idle() const = 0;
  // Of the copy, what a crash takes, while it does not lead. `all`: a new disk.
  virtual void lose_copy(bool all) = 0;
  // The process is stopped, or its network to clients is, until then.
  virtual void freeze(Micros) {}
  virtual void cut_off(Micros) {}
};

class Cluster {
 public:
  static constexpr Micros kLease = 2'000'000;

  Cluster(Agenda& agenda, test::Random& random, ClusterMistake mistake);
  // The members' processes start now, and things go wrong from now on.
  void start(std::vector<std::unique_ptr<Replica>> replicas);
  // Nothing goes wrong any more.
  void become_calm() { is_calm_ = true; }
  bool is_calm() const { return is_calm_; }

  const cluster::ShardKeys& keys() const { return keys_; }
  const test::ModelEtcd& etcd() const { return etcd_; }
  ClusterFigures& figures() { return figures_; }
  // Called when etcd has taken an entry.
  std::function<void(const Link&)> on_entry;

  // Of a member by its place among the replicas. Its process runs, it leads, and by its lease it
  // may say so.
  bool may_answer(std::size_t member) const;
  // The same, and it takes requests.
  bool serves(std::size_t member) const;
  // etcd has its key.
  bool holds_key(std::size_t member) const;
  // It has given its log something.
  void append(std::size_t member);
  // It has found that it may not answer any more: its process starts anew.
  void depose(std::size_t member);
  // Lets it do something when it runs, in the same life of its process.
  void when_running(std::size_t member, std::function<void()> action) {
    when_running(members_[member], std::move(action));
  }
  bool is_up(std::size_t member) const { return members_[member].is_up; }

  // Who may grant holds the key, so there is one at most; and it has all that is committed, but for
  // its own batch that is under way.
  void check_grants() const;

 private:
  struct Member {
    std::string name;
    std::uint64_t life = 0;
    bool is_up = true;
    Micros frozen_until = 0;
    Micros cut_off_until = 0;
    // Its clocks: what CLOCK_BOOTTIME missed, how CLOCK_REALTIME was set, and parts in a thousand
    // by which they are fast.
    Micros missed = 0;
    Micros set_by = 0;
    Micros drift = 0;

    cluster::Nonce nonces;
    test::LeaseId lease_id = 0;
    std::optional<cluster::Lease> lease;
    std::optional<cluster::Leadership> leadership;
    std::optional<cluster::ShardLog> log;
    bool recovers = false;
    std::unique_ptr<Replica> replica;
    bool has_chosen = false;  // whom it hands over to; it serves on for a while
    bool hands_over = false;  // it serves nobody, and its process ends soon
  };

  bool chance(std::uint64_t n) { return !is_calm_ && random_.one_in(n); }
  cluster::Clocks clocks(const Member& m) const;
  bool may_grant(const Member& m) const;
  bool leads(const Member& m) const;
  bool serves(const Member& m) const;
  bool holds_key(const Member& m) const;
  void start(Member& m);
  void new_lease(Member& m);
  void stop_leading(Member& m);
  void crash(Member& m);
  void trouble();
  void expire();
  void when_running(Member& m, std::function<void()> action);

  Micros delay();
  bool is_cut_off(const Member& m) const { return agenda_.now() < m.cut_off_until; }
  void ask(Member& m, std::function<cluster::Answer()> request,
           std::function<void(const cluster::Answer&)> answered);
  void send(Member& m, const cluster::Attempt& attempt, bool of_log);
  void keep_alive(Member& m);

  void tick(Member& m, std::uint64_t life);
  void watch(Member& m);
  void turn(Member& m);
  void announce(Member& m, const std::string& to);
  void hand_over(Member& m, const std::string& to);
  void give_away(Member& m, std::uint64_t life, const std::string& to, Micros give_up_at);
  void leave(Member& m, int tries);
  void recover(Member& m);
  void on_change();

  Agenda& agenda_;
  test::Random& random_;
  const ClusterMistake mistake_;
  const cluster::ShardKeys keys_{"lab", 0};
  test::ModelEtcd etcd_;
  std::vector<Member> members_;
  bool pauses_ = false;  // or clocks are set: a pause after one was set back is seen by neither
  bool is_calm_ = false;
  std::set<test::LeaseId> granted_;
  ClusterFigures figures_;
  std::vector<Link> chain_;
  cluster::Revision term_ = 0;
  std::string successor_;  // whom the last leader chose
  // By operators; empty: none.
  std::string wanted_;
  std::string drained_;
};

// The bytes of a snapshot in etcd. False: they are not all there.
bool fetch_snapshot(const Cluster& cluster, JobId job, const cluster::Pointer& pointer,
                    std::string& bytes);

}  // namespace syncd::simulation
