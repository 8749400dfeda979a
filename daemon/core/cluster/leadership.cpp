// See leadership.h.
#include "daemon/core/cluster/leadership.h"

#include <algorithm>
#include <map>
#include <utility>

namespace syncd::cluster {

std::string preferred_member(Shard shard, Shard shards, const std::vector<std::string>& members,
                             const std::string& pin) {
  if (members.empty()) return {};
  if (std::ranges::find(members, pin) != members.end()) return pin;
  const std::size_t share = shards / members.size();
  std::size_t larger = shards % members.size();  // so many members may have one more
  std::map<std::string, std::size_t> has;
  for (const std::string& member : members) has[member] = 0;
  std::string best;
  for (Shard each = 0; each <= shard; ++each) {
    std::uint64_t most = 0;
    best.clear();
    for (const auto& [member, count] : has) {
      const std::uint64_t weight = hash_of(member + "/" + std::to_string(each));
      const bool has_room = count < share || (count == share && larger > 0);
      if (has_room && (best.empty() || weight > most)) {
        best = member;
        most = weight;
      }
    }
    if (has[best]++ == share) --larger;
  }
  return best;
}

Leadership::Leadership(ShardKeys keys, Shard shard, std::string member, Nonce process,
                       std::uint64_t generation, Shard shards)
    : keys_(std::move(keys)),
      shard_(shard),
      shards_(shards),
      member_(std::move(member)),
      value_(encode(Leader{process, member_})),
      jitter_(static_cast<Micros>(hash_of(value_ + std::to_string(shard)) % kOthersWait)),
      term_{generation, 0} {}

void Leadership::on_view(View view, Micros now) {
  // What it has seen is of an etcd that is no longer: that was set back.
  if (view.revision < seen_at_ && state_ == State::kFollows) seen_at_ = 0;
  if (view.revision < seen_at_) return;
  members_ = std::move(view.members);
  ready_ = std::move(view.ready);
  successor_ = std::move(view.successor);
  if (view.pin != pin_) {
    pin_ = std::move(view.pin);
    is_pin_new_ = state_ == State::kLeads;
  }
  see_leader(view.revision, std::move(view.leader), now);
}

void Leadership::see_leader(Revision revision, std::optional<KeyValue> leader, Micros now) {
  if (revision < seen_at_) return;
  if (!leader && (leader_ || seen_at_ == 0)) free_since_ = now;
  seen_at_ = revision;
  leader_ = std::move(leader);
  const bool holds =
      state_ == State::kReads || state_ == State::kRecovers || state_ == State::kLeads;
  if (holds && (!leader_ || leader_->created != term_.revision)) depose();
}

Micros Leadership::takes_at() const {
  if (seen_at_ == 0 || leader_ || std::ranges::find(members_, member_) == members_.end()) {
    return kNever;
  }
  const bool is_given = std::ranges::find(members_, successor_) != members_.end();
  const std::string& wanted = is_given ? successor_ : pin_;
  const bool preferred = preferred_member(shard_, shards_, members_, wanted) == member_;
  return std::max(unfit_until_, free_since_ + (preferred ? 0 : kOthersWait + jitter_));
}

Micros Leadership::wakes_at() const {
  if (under_way_) return kNever;
  switch (state_) {
    case State::kFollows:
      return std::max(not_before_, leader_ && is_mine(*leader_) ? not_before_ : takes_at());
    case State::kReads:
    case State::kGivesUp:
      return not_before_;
    default:
      return kNever;
  }
}

std::optional<Attempt> Leadership::next(Micros now) {
  if (now < wakes_at()) return std::nullopt;
  Transaction transaction;
  if (state_ == State::kFollows && leader_) {
    // This process's create landed, and the answer did not come.
    term_.revision = leader_->created;
    state_ = State::kGivesUp;
  }
  if (state_ == State::kFollows) {
    state_ = State::kCreates;
    was_given_ = successor_ == member_;
    transaction.compares = {{keys_.leader(), 0}};
    if (condition_) transaction.compares.push_back(*condition_);
    transaction.then = {{Op::Kind::kPutOnLease, keys_.leader(), value_},
                        {Op::Kind::kDelete, keys_.successor()}};
    transaction.otherwise = {{Op::Kind::kGet, keys_.leader()}};
  } else if (state_ == State::kReads) {
    read_from_ = copied_ + 1;
    transaction = take_over_read(keys_, read_from_);
  } else {
    transaction = hand_over({});
    transaction.otherwise = {{Op::Kind::kGet, keys_.leader()}};
  }
  under_way_ = true;
  return Attempt{++attempt_, std::move(transaction)};
}

void Leadership::on_answer(std::uint64_t attempt, const Answer& answer, Micros now) {
  if (attempt != attempt_ || !under_way_) return;
  under_way_ = false;
  const bool happened = answer.kind == Answer::Kind::kThen;
  if (answer.kind == Answer::Kind::kUnknown) not_before_ = now + kRetryAfter;
  if (state_ == State::kReads && !happened && now - reads_since_ >= kReadsFor) {
    why_unfit_ = "the cluster's log could not be read in time";
    return fail(now);
  }
  if (answer.kind == Answer::Kind::kRefused) {
    why_unfit_ = "etcd refused a transaction about " + keys_.leader();
    not_before_ = now + kRetryAfter;
    if (state_ == State::kReads) return fail(now);
    back_off(now);
    return depose();  // if there is a key, the lease's end takes it
  }
  if (answer.kind == Answer::Kind::kElse) {
    const KeyValue* leader = answer.find(keys_.leader());
    state_ = State::kFollows;
    return see_leader(answer.revision, leader == nullptr ? std::nullopt : std::optional(*leader),
                      now);
  }
  switch (state_) {
    case State::kCreates:
      if (!happened) {
        state_ = State::kFollows;
        return;
      }
      state_ = State::kReads;
      reads_since_ = now;
      term_.revision = answer.revision;
      return see_leader(answer.revision, KeyValue{keys_.leader(), value_, answer.revision}, now);
    case State::kReads:
      if (happened) start_read(answer, now);
      return;
    case State::kGivesUp:
      if (!happened) return;
      state_ = State::kFollows;
      return see_leader(answer.revision, std::nullopt, now);
    default:
      return;
  }
}

void Leadership::start_read(const Answer& answer, Micros now) {
  if (answer.revision < term_.revision) {  // of a stale etcd
    not_before_ = now + kRetryAfter;
  } else if (parse_take_over(keys_, answer, read_, why_unfit_, read_from_)) {
    state_ = State::kRecovers;
  } else {
    fail(now);
  }
}

void Leadership::recovered(const Term& term, bool successfully, Micros now) {
  if (state_ != State::kRecovers || term != term_) return;
  if (!successfully) {
    why_unfit_ = "its jobs could not be recovered";
    return fail(now);
  }
  state_ = State::kLeads;
  back_off_ = kBackOffMin;
  read_ = {};
}

std::string Leadership::hands_over_to(bool fails, Micros now) {
  if (state_ != State::kLeads) return {};
  std::vector<std::string> candidates = ready_;
  const bool gives_up = fails || std::ranges::find(members_, member_) == members_.end();
  std::erase(candidates, member_);
  if (!gives_up) candidates.push_back(member_);
  const std::string best = preferred_member(shard_, shards_, candidates, pin_);
  if (best.empty() || best == member_) {
    better_.clear();
    return {};
  }
  if (gives_up || (best == pin_ && is_pin_new_)) return best;
  if (best != better_) {
    better_ = best;
    better_since_ = now;
  }
  const Micros spread = jitter_ * (kSettledAfter / kOthersWait);
  return (shards_ > 1 || best == pin_) && now - better_since_ >= kSettledAfter + spread
             ? best
             : std::string();
}

Transaction Leadership::announce(const std::string& successor) const {
  Transaction change;
  change.compares = {{keys_.leader(), term_.revision}, {keys_.leader(), 0, value_}};
  if (!successor.empty()) change.then = {{Op::Kind::kPut, keys_.successor(), successor}};
  return change;
}

Transaction Leadership::hand_over(const std::string& successor) const {
  Transaction change = announce(successor);
  change.then.push_back({Op::Kind::kDelete, keys_.leader()});
  return change;
}

void Leadership::depose() {
  state_ = State::kFollows;
  under_way_ = false;
  read_ = {};
}

void Leadership::give_up() {
  depose();
  if (term_.revision != 0) state_ = State::kGivesUp;
}

void Leadership::back_off(Micros now) {
  unfit_until_ = now + back_off_;
  back_off_ = std::min(2 * back_off_, kBackOffMax);
}

void Leadership::fail(Micros now) {
  back_off(now);
  give_up();
}

}  // namespace syncd::cluster
