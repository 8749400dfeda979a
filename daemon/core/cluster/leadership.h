// Whether this member leads a shard: takes its key when it is free, reads what there is to recover,
// gives the key up. It says what to send, and takes answers and what the member sees of the
// cluster. No clock: times are given, and rise. No I/O; one thread.
//
// What always holds:
//  - A key is led under only if the answer to this process's own create said so. A key of this
//    process under which it does not lead is deleted. No other key is touched.
//  - After deposed() or give_up() the member does not lead until it has created another key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/cluster/format.h"
#include "daemon/core/cluster/take_over.h"
#include "daemon/core/cluster/transaction.h"
#include "daemon/core/engine/types.h"

namespace syncd::cluster {

// Which of `members` (neither draining nor unfit) is to have the shard: the one that an operator
// wants, if it is among them; else all find the same one. Each member has as many shards as any
// other, or one more. Few others move when a member comes or goes (rendezvous hashing). Empty:
// there are no members. O(shards * members).
std::string preferred_member(Shard shard, Shard shards, const std::vector<std::string>& members,
                             const std::string& pin = {});

class Leadership {
 public:
  enum class State : std::uint8_t { kFollows, kCreates, kReads, kRecovers, kLeads, kGivesUp };

  static constexpr Micros kOthersWait = 1'000'000;  // and as much again at most, so as to be apart
  static constexpr Micros kBackOffMin = 1'000'000;
  static constexpr Micros kBackOffMax = 60'000'000;
  static constexpr Micros kRetryAfter = 100'000;  // what had an unknown answer
  // Who cannot read the log for so long gives the key up: another member may read it faster.
  static constexpr Micros kReadsFor = 120'000'000;
  // A shard goes to a member that has come (back) only once that has been there for so long, and as
  // much again at most, so that not all shards go at once.
  static constexpr Micros kSettledAfter = 30'000'000;

  Leadership(ShardKeys keys, Shard shard, std::string member, Nonce process,
             std::uint64_t generation, Shard shards = 1);

  // What etcd's watches say of a revision. Older ones than are known are ignored.
  struct View {
    Revision revision = 0;
    std::optional<KeyValue> leader;
    std::vector<std::string> members;  // that live, and neither drain nor are unfit for this shard
    std::vector<std::string> ready = {};  // of these: whose copies are close to the log's end
    std::string pin = {};                 // the member that an operator wants to lead; empty: none
    std::string successor = {};           // whom this leader, or the last one, chose; empty: none
  };
  void on_view(View view, Micros now);

  // What must hold beside when it takes the key: that the cluster is the one that it has seen.
  void require(Compare condition) { condition_ = std::move(condition); }
  // The member's copy has the log's entries up to this one: they are not read again. 0: none.
  void set_copied(Index copied) { copied_ = copied; }

  // What is to be sent, unless an attempt is under way or there is nothing to do; and when to ask
  // again, if nothing happens before (kNever: no time of its own). Only with a lease that lives.
  std::optional<Attempt> next(Micros now);
  Micros wakes_at() const;
  void on_answer(std::uint64_t attempt, const Answer& answer, Micros now);

  // Of who leads: the member that it is to hand the shard over to now. Empty: none. At once, if an
  // operator has just said so or has drained this member, or if this one `fails` or stops; else,
  // where there are several shards or an operator wants the other one, after a while.
  std::string hands_over_to(bool fails, Micros now);

  State state() const { return state_; }
  // Of the key that it created. Meaningful from kReads on, until it is followed again.
  const Term& term() const { return term_; }
  // What to recover from, while it recovers.
  const TakeOver& read() const { return read_; }
  // Whether the engine has recovered. Ignored unless kRecovers of this term.
  void recovered(const Term& term, bool successfully, Micros now);

  // Another leads, or the lease is over: nothing is sent about the key.
  void depose();
  // Of who leads: it will give the key to this member, who looks more often from then on.
  Transaction announce(const std::string& successor) const;
  // Whether the leader has announced this member.
  bool is_next() const { return leader_ && successor_ == member_; }
  // Of who leads: whether the leader before gave it the shard.
  bool was_given() const { return was_given_; }
  // Of who leads, and has stopped: gives the key up, to a member who takes it at once.
  Transaction hand_over(const std::string& successor) const;
  // Deletes the key, until the outcome is known.
  void give_up();
  // The same, because this member cannot lead it: it tries again after 1 s, the next time later.
  void fail(Micros now);
  // It failed in an earlier process: it does not take the key before.
  void wait_for(Micros time, Micros now) { unfit_until_ = now + time; }
  bool is_unfit(Micros now) const { return now < unfit_until_; }
  const std::string& why_unfit() const { return why_unfit_; }

 private:
  bool is_mine(const KeyValue& leader) const { return leader.value == value_; }
  // When it takes the key, which is free; kNever: it does not.
  Micros takes_at() const;
  void see_leader(Revision revision, std::optional<KeyValue> leader, Micros now);
  void back_off(Micros now);
  void start_read(const Answer& answer, Micros now);

  ShardKeys keys_;
  Shard shard_;
  Shard shards_;
  std::string member_;
  std::string value_;  // of the key
  Micros jitter_;
  State state_ = State::kFollows;
  Term term_;
  TakeOver read_;
  std::optional<Compare> condition_;
  Index copied_ = 0;
  Index read_from_ = 1;  // what is under way
  Micros reads_since_ = 0;

  Revision seen_at_ = 0;  // 0: nothing yet
  std::optional<KeyValue> leader_;
  Micros free_since_ = 0;
  std::vector<std::string> members_;
  std::vector<std::string> ready_;
  std::string pin_;
  bool is_pin_new_ = false;  // it came while this member led
  std::string successor_;
  bool was_given_ = false;  // when it created the key
  std::string better_;      // than this member, who leads
  Micros better_since_ = 0;

  Micros not_before_ = INT64_MIN;
  Micros unfit_until_ = INT64_MIN;
  Micros back_off_ = kBackOffMin;
  std::string why_unfit_;

  bool under_way_ = false;
  std::uint64_t attempt_ = 0;
};

}  // namespace syncd::cluster
