// A daemon's part in a cluster, until it leads and from then on: it keeps its lease and its copy,
// takes the leader key when that is free, and hands out the store that appends to the shard's log.
// follow() polls etcd: what a member waits for changes rarely, and a poll has no state that could
// be lost. One thread at a time but where noted.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/cluster/format.h"
#include "daemon/core/cluster/leadership.h"
#include "daemon/core/engine/effects.h"
#include "daemon/edge/cluster/copy.h"
#include "daemon/edge/cluster/etcd.h"
#include "daemon/edge/cluster/lease_keeper.h"
#include "daemon/edge/cluster/member_view.h"
#include "daemon/edge/cluster/shard_store.h"
#include "daemon/edge/store/store.h"

namespace syncd::cluster {

struct MembershipOptions {
  std::string cluster;  // its name: keys lie under /syncd/<name>/v1/
  Shard shard = 0;      // that this process follows or leads
  std::string member;   // unique in the cluster
  std::string version;  // of this daemon
  // Between the ports that it listens on, to which each shard's process adds its number.
  std::uint32_t port_gap = UINT32_MAX;
  std::vector<std::string> addresses;  // how clients reach it when it leads: "tls:node-a:7117"
  bool is_hidden = false;              // they are a guess: it listens on all addresses
  Micros lease = 5'000'000;
  bool old_etcd = false;  // 3.4 is accepted
  std::uint64_t etcd_quota_bytes = UINT64_MAX;
  std::uint64_t auth_hash = 0;              // see auth_hash() in administration.h
  store::Options store;                     // of the copy
  std::function<void(const LogLine&)> log;  // any thread
  // Of an earlier process, which etcd refused an entry: it leads only after so long.
  Micros unfit_for = 0;
  bool cannot_read = false;  // there is a job that it could not read: others lead if they are fit
  // Whether the files by which etcd knows this member are others than when it started.
  std::function<bool()> has_new_access;
  // Any thread: it leads no longer. Nothing may leave from then on. `is_unfit`: it should not lead
  // again soon.
  std::function<void(const std::string& reason, bool is_unfit)> on_deposed;
};

class Membership {
 public:
  // `etcd` must outlive it.
  Membership(MembershipOptions options, Etcd& etcd);
  ~Membership();

  enum class Outcome : std::uint8_t {
    kLeads,
    kStopped,
    kFailed,  // `error` says what an operator must do; starting again does not help by itself
  };
  // Returns when this member leads, or `is_stopped` (asked several times a second). The store is
  // opened and nothing else done with it.
  Outcome follow(const std::function<bool()>& is_stopped, std::unique_ptr<store::Store>& store,
                 std::string& error);

  // Of who leads, on any one thread: looks at the cluster until `is_stopped`, or until this member
  // is to hand the shard over to another one, whose name it returns. If it `is_going`, to any that
  // is ready; empty: none is.
  std::string attend(const std::function<bool()>& is_stopped,
                     const std::function<bool()>& is_going);

  // After kFailed: what is wrong is in this member's configuration.
  bool is_misconfigured() const { return is_misconfigured_; }

  // Any thread.
  MemberView view() const;
  // Any thread: the rules by which clients are admitted have been read anew.
  void set_auth_hash(std::uint64_t hash) { auth_hash_ = hash; }
  // The cluster's shards. Of who leads.
  Shard shards() const { return config_.shards; }
  // How clients reach the leader of another shard: "tls:node-b:7120,tcp:..."; empty: nobody leads
  // it, as far as is known. Any thread.
  std::string whereabouts(Shard shard) const;

  // Of who leads. The loop's thread calls it at the start of each turn, and before anything leaves.
  // False: it leads no longer, and nothing may leave.
  bool may_answer();
  // While the store is read, which may take longer than a lease.
  void hold_lease(bool held) { keeper_->hold(held); }
  // Some of it has been read.
  void turned() { keeper_->turned(); }
  // Gives the shard up at once, after the store was closed: others need not wait for the lease.
  // `successor`, if not empty, is the one that takes it.
  void leave(const std::string& successor = {});

 private:
  bool check_etcd(bool& is_usable, std::string& error);
  bool read_config(const Answer& answer, std::string& error);
  bool prepare(std::string& error);
  bool begin_lease(std::string& error);
  bool look(std::string& error);
  void look_for_access();
  Answer ask();
  Leadership::View view_of(const Answer& seen) const;
  bool is_draining(const Answer& seen, const std::string& member) const;
  void look_around();
  bool register_member(const Answer& seen, std::string& error);
  void note_leader(const Answer& seen);
  void note_view(const Answer& seen);
  std::string why_not_leading(Index last) const;
  Index copied() const;
  bool pointers_due() const;
  bool catch_up(const Answer& seen, std::string& error);
  bool read_piece(Index from, bool pointers, std::string& error);
  bool take_up(const TakeOver& read, bool& is_up, std::string& error);
  bool is_set_back(const Answer& seen, std::string& error) const;
  void tell_set_back();
  void note_others(const Answer& seen);
  void compare_auth(const std::string& member, std::uint64_t hash);
  bool fetch(JobId job, const Pointer& pointer, std::string& bytes, std::string& error);
  void tell_behind(const std::string& problem);
  bool take_turn(std::unique_ptr<store::Store>& store, std::string& error);
  bool lead(std::unique_ptr<store::Store>& store, std::string& error);
  std::size_t unread_bytes(const TakeOver& read);
  void depose(const std::string& reason, bool is_unfit = false);
  void say(LogLevel level, const char* event,
           std::vector<std::pair<std::string, std::string>> fields);
  void say_problem(const std::string& problem);
  Micros now() const;
  Micros call_timeout() const { return std::min<Micros>(options_.lease / 3, 5'000'000); }
  Micros look_every() const { return std::clamp<Micros>(options_.lease / 12, 100'000, 500'000); }

  static constexpr Micros kLookNext = 20'000;  // the member that is to lead next, so often
  // Of a call that reads a log, or parts of a snapshot. An endpoint that is silent is left sooner.
  static constexpr Micros kReadTimeout = 60'000'000;

  const MembershipOptions options_;
  Etcd& etcd_;
  const ShardKeys keys_;
  const std::string key_;  // of this member
  Nonce process_;
  Config config_;
  std::optional<Leadership> leadership_;
  std::unique_ptr<Copy> copy_;
  bool is_misconfigured_ = false;
  // As the latest look has it, if that succeeded.
  bool is_next_ = false;
  bool is_behind_ = false;  // its copy has yet to take up what it saw
  std::unique_ptr<LeaseKeeper> keeper_;
  Micros registered_at_ = 0;
  Micros pointers_at_ = 0;          // when its copy looked for snapshots last
  bool pointers_left_out_ = false;  // since then
  Micros access_at_ = 0;            // when has_new_access() was asked
  // Of each other member: how far its copy has come, and when that was seen last.
  std::map<std::string, std::pair<Index, Micros>> others_;
  std::atomic<std::uint64_t> auth_hash_{0};
  std::map<std::string, std::uint64_t> auth_told_;  // that differ, by member
  Nonce other_;                                     // another process that has this member's name
  Micros other_since_ = 0;
  // What the log said last.
  std::string leader_told_;
  std::string problem_told_;  // empty: etcd answers
  Micros told_at_ = 0;
  std::string take_up_problem_told_;
  std::string lease_problem_told_;
  std::string set_aside_told_;
  std::atomic<bool> deposed_{false};

  const std::shared_ptr<LogFigures> figures_ = std::make_shared<LogFigures>();
  mutable std::mutex view_mutex_;  // guards what follows
  MemberView view_;
  Micros looked_at_ = 0;
  std::map<Shard, std::string> elsewhere_;  // addresses of the leaders of other shards
};

}  // namespace syncd::cluster
