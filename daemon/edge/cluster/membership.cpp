// What a member does until it leads, and what it does all the time; see membership.h.
#include "daemon/edge/cluster/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <thread>
#include <utility>

#include "daemon/edge/cluster/administration.h"
#include "daemon/edge/cluster/random_number.h"
#include "daemon/edge/cluster/seeding.h"
#include "proto/base/clock.h"
#include "proto/base/crc32c.h"
#include "proto/base/file.h"

namespace syncd::cluster {
namespace {

constexpr Micros kTellProgressEvery = 2'000'000;
constexpr Micros kTellAgainAfter = 10'000'000;
constexpr Micros kTellSameAfter = 60'000'000;
// While etcd has not answered yet.
constexpr Micros kRetryMin = 100'000;
constexpr Micros kRetryMax = 1'000'000;
// Another process of this member's name keeps its key for at most its lease after its end.
constexpr int kOtherLeases = 3;
// Who has not finished a look at etcd for so long is stuck: on its disk, or in a long log.
constexpr int kStallLeases = 6;
// A shard is given to a member whose copy lacks no more entries of the log, as far as that is
// known: members say so every other second, and have read on meanwhile.
constexpr Index kReadyWithin = 4'000;
// Of a log, at one time: some 15 MB at the most that a leader takes.
constexpr Index kReadAtOnce = 500;
// The log stays for so long for the copy of a member that has gone.
constexpr Micros kAwayFor = 600'000'000;
// A shard has a pointer for each of its jobs, also of those that have ended.
constexpr Micros kPointersEvery = 10'000'000;
constexpr Micros kAccessEvery = 5'000'000;
// A store needs so much of a disk to be opened.
constexpr std::uintmax_t kRoomMin = 16 << 20;

// But for the format, which operators raise while members run.
bool is_same(const Config& one, Config other) {
  other.format = one.format;
  return one == other;
}

// Holds the lease of this member's previous process. A start revokes that lease, so that the other
// members need not wait for its end.
std::string lease_file(const std::string& store) {
  return store + ".lease";
}

LeaseId read_lease_file(const std::string& path) {
  std::ifstream file(path);
  LeaseId id = 0;
  return file >> id ? id : 0;
}

bool write_lease_file(const std::string& path, LeaseId id, std::string& error) {
  const std::string fresh = path + ".new";
  {
    std::ofstream file(fresh, std::ios::trunc);
    file << id << '\n';
    if (!file.flush()) {
      error = fmt::format("cannot write {}: {}", fresh, std::strerror(errno));
      return false;
    }
  }
  if (sync_to_disk(fresh) && std::rename(fresh.c_str(), path.c_str()) == 0 &&
      sync_to_disk(parent_of(path))) {
    return true;
  }
  error = fmt::format("cannot write {}: {}", path, std::strerror(errno));
  return false;
}

// Whether a store cannot be written there because the disk is full: it may have room again. Beside
// it lies the lease's file.
bool is_full(const std::string& store) {
  for (const std::string& path : {store, parent_of(store)}) {
    std::error_code code;
    const auto space = std::filesystem::space(path, code);
    if (!code && space.available < kRoomMin) return true;
  }
  return false;
}

}  // namespace

Membership::Membership(MembershipOptions options, Etcd& etcd)
    : options_(std::move(options)),
      etcd_(etcd),
      keys_(options_.cluster, options_.shard),
      key_(keys_.member(options_.member)),
      process_{random_number(), 0} {
  view_.cluster = options_.cluster;
  view_.member = options_.member;
  view_.shard = options_.shard;
  view_.problem = "it has not reached etcd yet";
  view_.etcd_quota_bytes = options_.etcd_quota_bytes;
  view_.set_aside = count_set_aside(options_.store.path);
  auth_hash_ = options_.auth_hash;
}

Membership::~Membership() = default;

Micros Membership::now() const {
  return clock_ns(CLOCK_BOOTTIME) / 1000;
}

void Membership::say(LogLevel level, const char* event,
                     std::vector<std::pair<std::string, std::string>> fields) {
  options_.log({level, event, std::move(fields)});
}

// A problem that lasts is said again each minute, and sooner where its text changes.
void Membership::say_problem(const std::string& problem) {
  if (problem.empty()) {
    if (!problem_told_.empty())
      say(LogLevel::kInfo, "etcd_reached", {{"cluster", options_.cluster}});
    problem_told_.clear();
    return;
  }
  const Micros again = problem == problem_told_ ? kTellSameAfter : kTellAgainAfter;
  if (!problem_told_.empty() && now() - told_at_ < again) return;
  problem_told_ = problem;
  told_at_ = now();
  say(LogLevel::kWarn, "cluster_waits", {{"cluster", options_.cluster}, {"reason", problem}});
}

// ---- until it follows

bool Membership::check_etcd(bool& is_usable, std::string& error) {
  Etcd::Status status;
  std::string problem;
  is_usable = etcd_.status(status, call_timeout(), problem);
  if (!is_usable) {
    say_problem(problem);
    look_for_access();
    return true;
  }
  return is_new_enough(status.version, options_.old_etcd, error);
}

bool Membership::read_config(const Answer& answer, std::string& error) {
  Config config;
  if (!parse_config(answer, options_.cluster, config, error)) {
    Stamp stamp;
    std::string ignored;
    // A cluster that is made without this copy would lose what it has.
    if (answer.find(config_key(options_.cluster)) == nullptr &&
        read_copy(options_.store.path, stamp, ignored)) {
      error = fmt::format(
          "etcd knows no cluster '{}', and {} is a copy of a cluster's history, up to entry {} of "
          "generation {}. Correct cluster.name; or etcd has lost its data: stop all members, and "
          "begin with the copy that has come furthest, `syncctl cluster init --from`",
          options_.cluster, options_.store.path, stamp.tail.index, stamp.generation);
    }
    return false;
  }
  if (options_.shard >= config.shards) {
    error = fmt::format("cluster.shard = {}: cluster '{}' has {}", options_.shard, options_.cluster,
                        shards_text(config.shards));
    is_misconfigured_ = true;
  } else if (!ports_fit(options_.port_gap, options_.cluster, config.shards, error)) {
    is_misconfigured_ = true;
  } else if (options_.is_hidden && config.shards > 1) {
    error = fmt::format(
        "listen.tcp is for all addresses of this machine, and clients of cluster '{}', which has "
        "several shards, must be told one: set cluster.advertise to HOST:PORT",
        options_.cluster);
    is_misconfigured_ = true;
  } else if (copy_ != nullptr && !is_same(config, config_)) {
    error = "cluster '" + options_.cluster + "' was set up anew: start this member again";
  } else {
    config_ = config;
    return true;
  }
  return false;
}

bool Membership::prepare(std::string& error) {
  copy_ = std::make_unique<Copy>(
      options_.store, options_.shard,
      [this](JobId job, const Pointer& pointer, std::string& bytes, std::string& why) {
        return fetch(job, pointer, bytes, why);
      },
      [this] {
        if (keeper_) keeper_->turned();
      });
  if (!copy_->open(error)) return false;
  if (!begin_lease(error)) return false;
  leadership_.emplace(keys_, options_.shard, options_.member, process_, config_.generation,
                      config_.shards);
  if (options_.unfit_for > 0) leadership_->wait_for(options_.unfit_for, now());
  return true;
}

// Ends the lease that this member had before, and begins another one.
bool Membership::begin_lease(std::string& error) {
  const std::string file = lease_file(options_.store.path);
  const LeaseId earlier = read_lease_file(file);
  const auto id = static_cast<LeaseId>(random_number() >> 1);
  if (!write_lease_file(file, id, error)) return false;
  keeper_.reset();
  std::string ignored;  // it ends by itself
  if (earlier > 0) etcd_.revoke(earlier, call_timeout(), ignored);
  LeaseKeeper::Options lease;
  lease.lease = options_.lease;
  lease.read_key = keys_.leader();
  keeper_ = std::make_unique<LeaseKeeper>(std::move(lease), id, etcd_);
  return true;
}

// ---- following

Membership::Outcome Membership::follow(const std::function<bool()>& is_stopped,
                                       std::unique_ptr<store::Store>& store, std::string& error) {
  bool is_usable = false;
  Micros retry = kRetryMin;
  Micros next_look = 0;
  while (!is_stopped()) {
    if (!is_usable && now() >= next_look) {
      if (!check_etcd(is_usable, error)) return Outcome::kFailed;
      // A refused connection is an answer that comes at once.
      if (!is_usable) next_look = now() + retry;
      retry = std::min(2 * retry, kRetryMax);
    }
    if (keeper_) keeper_->turned();
    if (is_usable && now() >= next_look) {
      is_next_ = is_behind_ = false;
      if (!look(error)) return Outcome::kFailed;
      next_look = now() + (is_behind_ ? 0 : is_next_ ? kLookNext : look_every());
    }
    if (keeper_ && !take_turn(store, error)) return Outcome::kFailed;
    if (store != nullptr) return Outcome::kLeads;
    const Micros wake = leadership_ ? std::min(next_look, leadership_->wakes_at()) : next_look;
    const Micros pause = std::clamp<Micros>(wake - now(), 1'000, 50'000);
    std::this_thread::sleep_for(std::chrono::microseconds(pause));
  }
  return Outcome::kStopped;
}

// While etcd does not answer: a password, or a certificate, may have been replaced.
void Membership::look_for_access() {
  if (!options_.has_new_access || now() - access_at_ < kAccessEvery) return;
  access_at_ = now();
  if (options_.has_new_access()) depose("its password or certificate for etcd is a new one");
}

// Reads what matters of the cluster. False: this member cannot take part.
bool Membership::look(std::string& error) {
  const Answer seen = ask();
  if (seen.kind != Answer::Kind::kThen) {
    if (seen.kind == Answer::Kind::kRefused) {
      error = "etcd refuses to let this member read: " + seen.error;
      return false;
    }
    look_for_access();
    const std::lock_guard lock(view_mutex_);
    view_.problem = "etcd does not answer: " + seen.error;
    return true;
  }
  if (!read_config(seen, error) || is_set_back(seen, error)) return false;
  if (copy_ == nullptr && !prepare(error)) {
    if (!is_full(options_.store.path)) return false;
    copy_.reset();
    tell_behind(error);
    const std::lock_guard lock(view_mutex_);
    view_.problem = "the disk of its copy is full";
    return true;
  }
  if (!register_member(seen, error)) return false;
  note_leader(seen);
  note_others(seen);
  const std::string config = config_key(options_.cluster);
  leadership_->require({config, seen.find(config)->created});
  leadership_->on_view(view_of(seen), now());
  is_next_ = leadership_->is_next();
  Tail tail;
  const KeyValue* at = seen.find(keys_.tail());
  if (at == nullptr || !decode(at->value, tail)) {
    error = keys_.tail() + " is missing or damaged: the cluster's log cannot be trusted";
    return false;
  }
  bool is_good = true;
  if (std::string problem; !copy_->open(problem)) {
    tell_behind(problem);
  } else if (tail != copy_->stamp().tail || (pointers_left_out_ && pointers_due())) {
    is_good = catch_up(seen, error);
  } else {
    tell_behind("");
  }
  is_behind_ = take_up_problem_told_.empty() && copied() < tail.index;
  note_view(seen);
  return is_good;
}

Answer Membership::ask() {
  const std::string members = keys_.members();
  const std::string draining = draining_keys(options_.cluster);
  Answer seen = etcd_.transact({{},
                                {{Op::Kind::kGet, config_key(options_.cluster)},
                                 {Op::Kind::kGet, keys_.leader()},
                                 {Op::Kind::kGet, keys_.first()},
                                 {Op::Kind::kGet, keys_.tail()},
                                 {Op::Kind::kGet, keys_.set_back()},
                                 {Op::Kind::kGet, keys_.pin()},
                                 {Op::Kind::kGet, keys_.successor()},
                                 {Op::Kind::kGet, members, "", end_of(members)},
                                 {Op::Kind::kGet, draining, "", end_of(draining)}},
                                {}},
                               0, call_timeout());
  if (seen.kind != Answer::Kind::kRefused) say_problem(seen.error);
  return seen;
}

bool Membership::is_draining(const Answer& seen, const std::string& member) const {
  return seen.find(draining_key(options_.cluster, member)) != nullptr;
}

// Where no member is left that neither drains nor is unfit, any may try.
Leadership::View Membership::view_of(const Answer& seen) const {
  Leadership::View view{seen.revision, {}, {}, {}};
  if (const KeyValue* leader = seen.find(keys_.leader())) view.leader = *leader;
  if (const KeyValue* pin = seen.find(keys_.pin())) view.pin = pin->value;
  if (const KeyValue* heir = seen.find(keys_.successor())) view.successor = heir->value;
  First first;
  Tail tail;
  if (const KeyValue* at = seen.find(keys_.first())) decode(at->value, first);
  if (const KeyValue* at = seen.find(keys_.tail())) decode(at->value, tail);
  std::vector<std::string> others;
  for (const KeyValue& item : seen.got) {
    Member other;
    if (!item.key.starts_with(keys_.members()) || !decode(item.value, other)) continue;
    const std::string name = item.key.substr(keys_.members().size());
    // Another process has this one's name, or had it until a moment ago.
    if (name == options_.member && other.process != process_) continue;
    const bool is_fit = std::ranges::find(other.unfit, options_.shard) == other.unfit.end();
    if (!is_fit || is_draining(seen, name)) {
      others.push_back(name);
      continue;
    }
    view.members.push_back(name);
    const Index copied = other.copies.empty() ? 0 : other.copies.front();
    const bool follows = copied + 1 >= first.index;  // else it must be made anew
    if (follows && copied + kReadyWithin >= tail.index) view.ready.push_back(name);
  }
  if (view.members.empty()) view.members = std::move(others);
  return view;
}

// What the log must keep for them; and whether clients will find the same rules there.
void Membership::note_others(const Answer& seen) {
  Index present = UINT64_MAX;
  for (const KeyValue& item : seen.got) {
    Member other;
    if (!item.key.starts_with(keys_.members()) || !decode(item.value, other)) continue;
    const std::string name = item.key.substr(keys_.members().size());
    if (name == options_.member) continue;
    const Index copied = other.copies.empty() ? 0 : other.copies.front();
    others_[name] = {copied, now()};
    present = std::min(present, copied);
    compare_auth(name, other.auth_hash);
  }
  std::erase_if(others_, [&](const auto& one) { return now() - one.second.second > kAwayFor; });
  Index least = others_.empty() ? 0 : UINT64_MAX;
  for (const auto& [name, one] : others_) least = std::min(least, one.first);
  figures_->others_have = least;
  figures_->present_have = present;
}

// Of a member whose rules could not be read, or of an earlier version, nothing is known: 0.
void Membership::compare_auth(const std::string& member, std::uint64_t hash) {
  const std::uint64_t mine = auth_hash_;
  if (hash == 0 || mine == 0 || hash == mine) {
    auth_told_.erase(member);
    return;
  }
  if (std::exchange(auth_told_[member], hash) == hash) return;
  say(LogLevel::kWarn, "auth_differs",
      {{"member", options_.member},
       {"other", member},
       {"hint",
        "[auth] or its tokens differ, so that clients may be refused after a take-over: make them "
        "the same, and restart who follows"}});
}

// Whether a member's copy has entries that etcd lacks. If so, no member may lead.
bool Membership::is_set_back(const Answer& seen, std::string& error) const {
  const KeyValue* item = seen.find(keys_.set_back());
  if (item == nullptr || !item->value.starts_with(std::to_string(config_.generation) + " ")) {
    return false;
  }
  error = fmt::format(
      "etcd was set back: member '{}' has entries that the cluster's log has not, and acknowledged "
      "pushes would vanish. Stop all members, and begin with the copy that has come furthest, "
      "`syncctl cluster init --from`; or, if what only that member has may be lost, move its store "
      "away and delete the key {} in etcd",
      item->value.substr(item->value.find(' ') + 1), keys_.set_back());
  return true;
}

void Membership::tell_set_back() {
  const Transaction put{{},
                        {{Op::Kind::kPut, keys_.set_back(),
                          fmt::format("{} {}", config_.generation, options_.member)}},
                        {}};
  for (int tries = 0; tries < 3; ++tries) {
    if (etcd_.transact(put, 0, call_timeout()).kind == Answer::Kind::kThen) return;
  }
}

// This member's own key, on its lease.
bool Membership::register_member(const Answer& seen, std::string& error) {
  if (!keeper_->may_grant()) return true;
  Member value;
  value.process = process_;
  value.version = options_.version;
  value.addresses = options_.addresses;
  value.auth_hash = auth_hash_;
  value.copies = {view_.leads ? figures_->copied.load() : copied()};
  value.draining = is_draining(seen, options_.member);
  const bool is_fit =
      take_up_problem_told_.empty() && !leadership_->is_unfit(now()) && !options_.cannot_read;
  if (!is_fit) value.unfit = {options_.shard};
  const KeyValue* mine = seen.find(key_);
  Member there;
  if (mine != nullptr && decode(mine->value, there) && there.process != process_) {
    if (other_ != there.process) {
      other_ = there.process;
      other_since_ = now();
      say(LogLevel::kWarn, "member_waits",
          {{"member", options_.member},
           {"reason", "another process has this member's name, or had it until a moment ago"},
           {"hint", "if that process stays, this one ends: give it another cluster.member"}});
    }
    if (now() - other_since_ < kOtherLeases * options_.lease) return true;
    error = fmt::format("a member '{}' is alive, at {}: give this one another cluster.member",
                        options_.member,
                        there.addresses.empty() ? "an unknown address" : there.addresses.front());
    return false;
  }
  // It is put again while etcd fills: pages that it no longer needs count until something is
  // written.
  const bool fills = cluster::fills(figures_->etcd_bytes, options_.etcd_quota_bytes);
  const bool moved = fills || mine == nullptr || mine->value != encode(value);
  if (!moved || (mine != nullptr && now() - registered_at_ < kTellProgressEvery)) return true;
  Transaction put;
  put.compares = {mine == nullptr ? Compare{key_, 0} : Compare{key_, mine->created}};
  put.then = {{Op::Kind::kPutOnLease, key_, encode(value)}};
  const Answer answer = etcd_.transact(put, keeper_->id(), call_timeout());
  registered_at_ = now();
  if (answer.kind != Answer::Kind::kRefused) return true;  // the next look shows what became of it
  error = "etcd refuses to let this member write " + key_ + ": " + answer.error;
  return false;
}

void Membership::note_leader(const Answer& seen) {
  const KeyValue* item = seen.find(keys_.leader());
  Leader leader;
  std::string name;
  if (item != nullptr && decode(item->value, leader)) name = leader.member;
  if (name == leader_told_) return;
  leader_told_ = name;
  if (name.empty()) {
    say(LogLevel::kWarn, "leader_gone", {{"cluster", options_.cluster}});
  } else {
    say(LogLevel::kInfo, "leader_seen", {{"cluster", options_.cluster}, {"leader", name}});
  }
}

void Membership::note_view(const Answer& seen) {
  First first;
  Tail tail;
  const KeyValue* leader = seen.find(keys_.leader());
  if (const KeyValue* item = seen.find(keys_.first())) decode(item->value, first);
  if (const KeyValue* item = seen.find(keys_.tail())) decode(item->value, tail);
  const std::lock_guard lock(view_mutex_);
  view_.leader = leader_told_;
  view_.term = leader == nullptr ? 0 : leader->created;
  view_.first = first.index;
  view_.last = tail.index;
  view_.copied = copy_->stamp().tail.index;
  view_.problem = seen.find(key_) == nullptr           ? "etcd does not list it as a member yet"
                  : is_draining(seen, options_.member) ? "it is drained"
                                                       : why_not_leading(tail.index);
  looked_at_ = now();
}

// Of the follower that this member is.
std::string Membership::why_not_leading(Index last) const {
  if (!keeper_->may_grant()) {
    const std::string problem =
        lease_problem_told_.empty() ? keeper_->problem() : lease_problem_told_;
    return "etcd has not given it a lease" + (problem.empty() ? "" : ": " + problem);
  }
  if (leadership_->is_unfit(now())) return "it failed to lead a moment ago";
  if (options_.cannot_read) return "there is a job that it cannot read";
  if (!take_up_problem_told_.empty()) return "its copy is behind";
  return copied() + kReadyWithin < last ? "its copy is not complete yet" : "";
}

MemberView Membership::view() const {
  const std::lock_guard lock(view_mutex_);
  MemberView view = view_;
  if (view.leads) {
    view.first = figures_->first;
    view.last = figures_->last;
    view.copied = figures_->copied;
    view.lease_left = keeper_->left();
    view.etcd_bytes = figures_->etcd_bytes;
    view.etcd_file_bytes = figures_->etcd_file_bytes;
  } else if (view.problem.empty() && now() - looked_at_ > kStallLeases * options_.lease) {
    view.problem = "it has not read the cluster's state for a while";
  }
  return view;
}

// The last entry of this generation that the copy has.
Index Membership::copied() const {
  return copy_->stamp().generation == config_.generation ? copy_->stamp().tail.index : 0;
}

bool Membership::pointers_due() const {
  return now() - pointers_at_ >= kPointersEvery;
}

// A long log is read piece by piece: it might come to gigabytes at once, and over a slow network to
// more than there is time for.
bool Membership::catch_up(const Answer& seen, std::string& error) {
  First first;
  if (const KeyValue* item = seen.find(keys_.first())) decode(item->value, first);
  const Index from = std::max(copied() + 1, first.index);
  // A copy that begins anew is made of them. One that follows has all records, and is only read
  // the sooner for them when it leads.
  const bool is_new = copied() == 0 || first.index > copied() + 1;
  const bool pointers = is_new || pointers_due();
  if (pointers) pointers_at_ = now();
  keeper_->hold(true);
  const bool is_good = read_piece(from, pointers, error);
  keeper_->hold(false);
  pointers_left_out_ = !pointers || !take_up_problem_told_.empty();
  return is_good;
}

bool Membership::read_piece(Index from, bool pointers, std::string& error) {
  const Answer answer =
      etcd_.transact(take_over_read(keys_, from, kReadAtOnce, pointers), 0, kReadTimeout);
  if (answer.kind != Answer::Kind::kThen) {
    tell_behind("the cluster's log cannot be read: " + answer.error);
    return true;  // the next look tries again
  }
  // Its beginning was removed since.
  First first;
  if (const KeyValue* item = answer.find(keys_.first())) decode(item->value, first);
  if (first.index > from) return true;
  TakeOver read;
  if (!parse_take_over(keys_, answer, read, error, from, kReadAtOnce)) return false;
  bool is_up = false;
  return take_up(read, is_up, error);
}

// `is_up`: the copy has all of it. False: this member cannot take part.
bool Membership::take_up(const TakeOver& read, bool& is_up, std::string& error) {
  std::string problem;
  const Copy::Took took = copy_->take_up(config_, read, problem);
  if (!copy_->set_aside().empty() && copy_->set_aside() != set_aside_told_) {
    set_aside_told_ = copy_->set_aside();
    say(LogLevel::kWarn, "copy_set_aside",
        {{"store", options_.store.path},
         {"moved_to", set_aside_told_},
         {"hint",
          "it is of an earlier generation, or ended before the cluster's log begins: what only it "
          "has is in there"}});
    const std::uint64_t count = count_set_aside(options_.store.path);
    const std::lock_guard lock(view_mutex_);
    view_.set_aside = count;
  }
  is_up = took == Copy::Took::kAll;
  if (took == Copy::Took::kSetBack) tell_set_back();
  if (took == Copy::Took::kSetBack || took == Copy::Took::kRefused) {
    error = problem;
    return false;
  }
  tell_behind(is_up ? "" : problem);
  return true;
}

// Once for each problem; empty: there is none any more.
void Membership::tell_behind(const std::string& problem) {
  if (!problem.empty() && problem != take_up_problem_told_) {
    say(LogLevel::kWarn, "copy_behind", {{"store", options_.store.path}, {"reason", problem}});
  }
  take_up_problem_told_ = problem;
}

bool Membership::fetch(JobId job, const Pointer& pointer, std::string& bytes, std::string& error) {
  const std::string prefix = keys_.snapshot_parts(job, pointer.term, pointer.sequence);
  const Answer answer =
      etcd_.transact({{}, {{Op::Kind::kGet, prefix, "", end_of(prefix)}}, {}}, 0, kReadTimeout);
  bytes.clear();
  std::uint32_t parts = 0;
  for (const KeyValue& item : answer.got) {
    Part part;
    if (!decode(item.value, part)) break;
    bytes += part.bytes;
    ++parts;
  }
  const std::span whole(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  if (answer.kind == Answer::Kind::kThen && parts == pointer.parts &&
      crc32c(whole) == pointer.crc) {
    return true;
  }
  error = fmt::format("the snapshot of job #{} is not in etcd as its pointer says{}{}", job,
                      answer.error.empty() ? "" : ": ", answer.error);
  return false;
}

}  // namespace syncd::cluster
