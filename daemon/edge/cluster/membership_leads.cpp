// What a member does that takes a shard, leads it and gives it up; see membership.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "daemon/edge/cluster/membership.h"

namespace syncd::cluster {
namespace {

constexpr Index kSampledEntries = 64;
// Who leads the other shards: each leader reads all of them.
constexpr Micros kLookAroundEvery = 1'000'000;
// At its peak a leader puts some 8 MB/s into etcd.
constexpr Micros kLookAtRoomEvery = 5'000'000;
// A leader that cannot write its copy for so long gives the shard to a member that can.
constexpr Micros kCopyFailsFor = 3'000'000;
// The same of a disk that says nothing.
constexpr Micros kCopyHangsFor = 10'000'000;

}  // namespace

// Takes the leader key if it is this member's turn. False: it cannot take part.
bool Membership::take_turn(std::unique_ptr<store::Store>& store, std::string& error) {
  if (keeper_->is_lost()) {
    leadership_->depose();
    std::string problem;
    if (!begin_lease(problem) && problem != lease_problem_told_) {
      say(LogLevel::kWarn, "lease_not_begun", {{"reason", problem}});
    }
    lease_problem_told_ = problem;
    return true;
  }
  if (!keeper_->may_grant()) {
    if (leadership_->state() != Leadership::State::kFollows) leadership_->depose();
    return true;
  }
  leadership_->set_copied(copied());
  // It reads a long log without the key: one whose copy is complete may lead meanwhile.
  if (is_behind_ && leadership_->state() == Leadership::State::kFollows) return true;
  if (const auto attempt = leadership_->next(now())) {
    const bool reads = leadership_->state() == Leadership::State::kReads;
    if (reads) keeper_->hold(true);
    const Answer answer =
        etcd_.transact(attempt->transaction, keeper_->id(), reads ? kReadTimeout : call_timeout());
    if (reads && answer.kind == Answer::Kind::kUnknown) {
      tell_behind("the cluster's log cannot be read: " + answer.error);
    }
    leadership_->on_answer(attempt->number, answer, now());
    if (leadership_->state() != Leadership::State::kRecovers) keeper_->hold(false);
  }
  return leadership_->state() != Leadership::State::kRecovers || lead(store, error);
}

bool Membership::lead(std::unique_ptr<store::Store>& store, std::string& error) {
  const Term term = leadership_->term();
  const TakeOver read = leadership_->read();
  keeper_->hold(true);
  bool is_up = false;
  if (!take_up(read, is_up, error)) return false;
  std::unique_ptr<store::Store> copy;
  if (is_up) copy = copy_->hand_over(error);
  if (copy == nullptr) {
    leadership_->recovered(term, false, now());
    keeper_->hold(false);
    return is_up ? false : true;
  }
  leadership_->recovered(term, true, now());
  ShardStore::Options options{keys_, config_, term, process_, call_timeout(), {}, {}, {}, figures_};
  options.limits = LogLimits{}.for_one_of(config_.shards, options_.etcd_quota_bytes);
  options.unread_bytes = unread_bytes(read);
  options.etcd_quota_bytes = options_.etcd_quota_bytes;
  options.describe = "cluster " + options_.cluster + " (copy: " + options_.store.path + ")";
  options.log = options_.log;
  options.on_deposed = [this](const std::string& reason, bool is_unfit) {
    depose(reason, is_unfit);
  };
  say(LogLevel::kInfo, "leads",
      {{"cluster", options_.cluster},
       {"term", fmt::format("{}.{}", term.generation, term.revision)},
       {"entry", std::to_string(read.tail.index)},
       {"given", leadership_->was_given() ? "true" : "false"}});
  store = std::make_unique<ShardStore>(std::move(options), read, etcd_, std::move(copy));
  const std::lock_guard lock(view_mutex_);
  view_.leads = true;
  view_.was_given = leadership_->was_given();
  view_.leader = options_.member;
  view_.term = term.revision;
  view_.problem.clear();
  return true;
}

// Of the entries that its copy had, and that were not read: by the size of some of them.
std::size_t Membership::unread_bytes(const TakeOver& read) {
  const std::size_t count = read.first.index - std::min(read.there.index, read.first.index);
  if (count == 0) return 0;
  const Index end = read.there.index + std::min<Index>(count, kSampledEntries);
  const Answer some = etcd_.transact(
      {{}, {{Op::Kind::kGet, keys_.entry(read.there.index), "", keys_.entry(end)}}, {}}, 0,
      call_timeout());
  std::size_t bytes = 0;
  for (const KeyValue& item : some.got) bytes += item.value.size();
  // Nothing is known without an answer: as if each were of a push or two.
  const std::size_t sampled = some.got.empty() ? 1 : end - read.there.index;
  return count * std::max<std::size_t>(bytes / sampled, 300);
}

std::string Membership::attend(const std::function<bool()>& is_stopped,
                               const std::function<bool()>& is_going) {
  Micros fails_since = kNever;
  Index copied = 0;
  Micros copied_at = now();
  Micros next_look_around = 0;
  Micros next_look_at_room = 0;
  for (Micros next_look = 0; !is_stopped();
       std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
    const bool goes = is_going();
    if (!goes && now() < next_look) continue;
    next_look = now() + look_every();
    if (figures_->copied == figures_->last || figures_->copied != copied) copied_at = now();
    copied = figures_->copied;
    if (!goes && now() >= next_look_at_room) {
      next_look_at_room = now() + kLookAtRoomEvery;
      Etcd::Status status;
      std::string ignored;  // etcd is asked again
      if (etcd_.status(status, call_timeout(), ignored)) {
        figures_->etcd_bytes = status.used_bytes;
        figures_->etcd_file_bytes = status.file_bytes;
      }
    }
    const Answer seen = ask();
    std::string problem;  // whether it leads is decided by its lease, and by each append
    if (seen.kind == Answer::Kind::kThen && is_set_back(seen, problem)) depose(problem);
    if (seen.kind != Answer::Kind::kThen || !register_member(seen, problem)) {
      if (goes) break;
      continue;
    }
    note_others(seen);
    const Leadership::View view = view_of(seen);
    leadership_->on_view(view, now());
    fails_since = figures_->copy_fails ? std::min(fails_since, now()) : kNever;
    const bool hangs = now() - copied_at >= kCopyHangsFor;
    const bool fails = hangs || (fails_since != kNever && now() - fails_since >= kCopyFailsFor);
    std::string other = leadership_->hands_over_to(fails || goes, now());
    if (!other.empty()) {
      const char* why = goes                                 ? "it is to stop"
                        : fails                              ? "its copy cannot be written"
                        : is_draining(seen, options_.member) ? "an operator has drained it"
                        : other == view.pin ? "an operator wants that member to lead"
                                            : "it is that member's share";
      const Answer told = etcd_.transact(leadership_->announce(other), 0, call_timeout());
      // Without etcd nobody could take it: this member stays.
      if (told.kind != Answer::Kind::kThen && !goes) continue;
      say(LogLevel::kInfo, "hands_over", {{"to", other}, {"reason", why}});
      // The store could not be closed: the lease ends, and that member leads.
      if (hangs) depose("the disk of its copy takes nothing");
      // This member serves until that one has looked, so that nobody waits for its next look.
      const Micros seen_by = now() + look_every() + kLookNext;
      while (!is_stopped() && now() < seen_by) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      return other;
    }
    if (goes) break;
    if (config_.shards > 1 && now() >= next_look_around) {
      next_look_around = now() + kLookAroundEvery;
      look_around();
    }
  }
  return {};
}

// For clients of other shards.
void Membership::look_around() {
  Transaction gets;
  for (Shard shard = 0; shard < config_.shards; ++shard) {
    const ShardKeys keys(options_.cluster, shard);
    if (shard == options_.shard) continue;
    gets.then.push_back({Op::Kind::kGet, keys.leader()});
    gets.then.push_back({Op::Kind::kGet, keys.members(), "", end_of(keys.members())});
  }
  const Answer seen = etcd_.transact(gets, 0, call_timeout());
  if (seen.kind != Answer::Kind::kThen) return;
  std::map<Shard, std::string> elsewhere;
  for (Shard shard = 0; shard < config_.shards; ++shard) {
    const ShardKeys keys(options_.cluster, shard);
    Leader leader;
    Member member;
    const KeyValue* item = seen.find(keys.leader());
    if (item == nullptr || !decode(item->value, leader)) continue;
    item = seen.find(keys.member(leader.member));
    if (item == nullptr || !decode(item->value, member)) continue;
    elsewhere[shard] = fmt::format("{}", fmt::join(member.addresses, ","));
  }
  const std::lock_guard lock(view_mutex_);
  elsewhere_ = std::move(elsewhere);
}

std::string Membership::whereabouts(Shard shard) const {
  const std::lock_guard lock(view_mutex_);
  const auto found = elsewhere_.find(shard);
  return found == elsewhere_.end() ? std::string() : found->second;
}

void Membership::depose(const std::string& reason, bool is_unfit) {
  if (!deposed_.exchange(true)) options_.on_deposed(reason, is_unfit);
}

bool Membership::may_answer() {
  keeper_->turned();
  if (deposed_.load(std::memory_order_relaxed)) return false;
  if (keeper_->may_grant()) return true;
  const std::string why = keeper_->problem();
  depose("its lease has run out: " +
         (why.empty() ? "no attempt to keep it failed, so that its process stood still" : why));
  return false;
}

void Membership::leave(const std::string& successor) {
  if (keeper_ == nullptr) return;
  if (!successor.empty()) {
    // If it does not happen, the others wait a moment to see who takes it.
    etcd_.transact(leadership_->hand_over(successor), 0, call_timeout());
  }
  const LeaseId id = keeper_->id();
  {
    const std::lock_guard lock(view_mutex_);
    view_.leads = false;
  }
  keeper_.reset();
  std::string error;
  for (int tries = 0; tries < 3; ++tries) {
    if (etcd_.revoke(id, call_timeout(), error)) return;
  }
  say(LogLevel::kWarn, "lease_not_revoked",
      {{"reason", error}, {"hint", "the others wait until it ends"}});
}

}  // namespace syncd::cluster
