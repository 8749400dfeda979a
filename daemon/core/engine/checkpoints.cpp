// See checkpoints.h.
#include "daemon/core/engine/checkpoints.h"

#include <algorithm>

#include "daemon/core/engine/limits.h"
#include "proto/base/plain_text.h"

namespace syncd {
namespace {

// A worker that is about to go asks for no other one than a complete one of this age: a machine
// that is taken away gives its processes no longer.
constexpr Micros kFreshUs = 20'000'000;

// Empty if the text may be kept and shown; else a sentence.
std::string check_text(const char* what, const std::string& text, std::size_t bytes_max) {
  if (text.size() > bytes_max) {
    return fmt::format("{} is {} bytes long: at most {} are allowed", what, text.size(), bytes_max);
  }
  return check_plain(what, text);
}

const char* workers_word(std::size_t count) {
  return count == 1 ? "worker" : "workers";
}

}  // namespace

Checkpoints::Member* Checkpoints::find(Rank rank) {
  if (!open_) return nullptr;
  const auto at = std::ranges::lower_bound(open_->members, rank, {}, &Member::rank);
  return at != open_->members.end() && at->rank == rank ? &*at : nullptr;
}

Record Checkpoints::make(RecordKind kind, const Worker* worker) const {
  Record record = recorder_.make(kind, worker);
  record.checkpoint = open_ ? open_->facts.number : asked_ + 1;
  return record;
}

void Checkpoints::commit(Record&& record) {
  recorder_.commit(std::move(record), [this](const Record& made) { apply(made); });
}

// ---- asking
// ----------------------------------------------------------------------------------------

bool Checkpoints::anybody_takes_part() const {
  return std::ranges::any_of(roster_.active(),
                             [this](Rank rank) { return takes_part(roster_.at(rank)); });
}

// Workers that have not come back since the daemon was started: what they were granted is not
// known.
RankList Checkpoints::not_back() const {
  RankList ranks;
  for (const Rank rank : roster_.active()) {
    if (roster_.at(rank).told_epoch == 0) ranks.push_back(rank);
  }
  return ranks;
}

Iteration Checkpoints::highest_next() const {
  if (roster_.active().empty()) return 0;
  return roster_.absolute_clocks().max() + (decentralized() ? 1 : 0);
}

bool Checkpoints::refuses(const Caller& caller, const std::string& reason) {
  if (answers_.refuses_as_ended(caller)) return true;
  if (std::string wrong = check_text("the reason", reason, limits::kReasonBytesMax);
      !wrong.empty()) {
    answers_.refuse(caller, Status::kInvalid, std::move(wrong));
    return true;
  }
  if (!roster_.running()) {
    answers_.refuse(caller, Status::kState,
                    "job '{}' waits for its start: there is nothing to save yet", spec_.name);
    return true;
  }
  // After a restart it is known once they have come back.
  if (not_back().size() == 0 && !anybody_takes_part()) {
    answers_.refuse(caller, Status::kState,
                    "no worker of job '{}' takes part in checkpoints: a worker says so when it "
                    "joins (checkpoints in syncd_join_options)",
                    spec_.name);
    return true;
  }
  return answers_.refuses_store(caller);
}

void Checkpoints::ask(const Caller& caller, Worker& worker, const wire::AskCheckpoint& request) {
  if (refuses(caller, request.reason)) return;
  if (!takes_part(worker)) {
    answers_.refuse(caller, Status::kState,
                    "{} does not take part in checkpoints: it must say so when it joins "
                    "(checkpoints in syncd_join_options)",
                    label(worker));
    return;
  }
  // A worker that goes asks no others to save once more: what is open will do, or just was
  // complete.
  if (request.unless_broken) {
    const bool is_fresh = latest_ && closed_ == latest_->number && closed_reason_.empty() &&
                          latest_->epoch == recorder_.epoch() &&  // not of an earlier start
                          engine_.now() - latest_->since_us < kFreshUs;
    if (is_fresh && !(open_ && lost_.empty())) {
      return answers_.reply(caller, wire::CheckpointAsked{latest_->number}, true);
    }
    // Others who went may have saved what is open: then it can still be whole.
    const bool have_saved =
        open_ && std::ranges::all_of(lost_, [this](Rank rank) {
          const Member* member = find(rank);
          return member != nullptr && member->answer != kUnanswered && member->answer != kGone;
        });
    if (!lost_.empty() && !have_saved) {
      answers_.refuse(caller, Status::kBroken, "job '{}' has lost {} {}: it cannot be saved whole",
                      spec_.name, workers_word(lost_.size()), RankList(lost_).text());
      return;
    }
    if (open_) return answers_.reply(caller, wire::CheckpointAsked{open_->facts.number}, true);
  }
  // One that it has come to already, or does not take part in, is none for this request.
  const Member* member = find(worker.rank);
  const bool is_past =
      open_ && (member != nullptr ? member->flagged != kNoIteration : open_->has_members());
  std::uint64_t number = open_ ? open_->facts.number : 0;
  if (!open_ || (is_past && !queued_)) {
    number = ask(worker.rank, request.reason, highest_next());
  } else if (is_past) {
    number = queued_->number;
  }
  answers_.reply(caller, wire::CheckpointAsked{number}, true);
  settle();
}

void Checkpoints::order(const Caller& caller, const wire::OrderCheckpoint& request) {
  if (refuses(caller, request.reason)) return;
  const std::uint64_t number =
      open_ ? open_->facts.number : ask(kNoRank, request.reason, highest_next());
  answers_.reply(caller, wire::CheckpointAsked{number}, true);
  settle();
}

std::uint64_t Checkpoints::ask(std::int64_t rank, const std::string& reason, Iteration next) {
  Record record = make(RecordKind::kCheckpointAsked,
                       rank == kNoRank ? nullptr : &roster_.at(static_cast<Rank>(rank)));
  const std::uint64_t number = record.checkpoint = asked_ + 1;
  record.reason = reason;
  record.clock = next;
  commit(std::move(record));
  ++counters_.checkpoints_asked;
  answers_.log(LogLevel::kInfo, "checkpoint_asked",
               rank == kNoRank ? nullptr : &roster_.at(static_cast<Rank>(rank)),
               {{"checkpoint", std::to_string(number)}, {"reason", reason}});
  arm();
  return number;
}

void Checkpoints::ask_every(Iteration next) {
  clock_ = next;
  renew_due();
  if (engine_.store_refusal() != nullptr || !roster_.running()) return;
  if (!anybody_takes_part()) {
    if (not_back().size() == 0) {
      answers_.log(LogLevel::kWarn, "checkpoint_skipped", nullptr,
                   {{"reason", "no worker takes part in checkpoints"}});
    }
    return;
  }
  ask(kNoRank, fmt::format("every {} iterations", spec_.checkpoint_every), next);
  settle();
}

// ---- where each worker saves
// -------------------------------------------------------------------------

void Checkpoints::barrier(Clock q) {
  if (!open_ || open_->facts.fixed || !has_barriers() || not_back().size() > 0) return;
  const auto at = [q](const Worker& worker) { return worker.base + q; };
  // An earlier daemon granted a worker what lies behind this barrier, unflagged: the next one.
  const bool is_behind = std::ranges::any_of(roster_.active(), [&](Rank rank) {
    const Worker& worker = roster_.at(rank);
    return takes_part(worker) && worker.granted >= at(worker);
  });
  if (!is_behind) fix(at);
}

void Checkpoints::settle() {
  if (!open_ || open_->facts.fixed || !roster_.running() || has_barriers()) return;
  if (not_back().size() > 0) return;
  if (decentralized()) {
    Iteration next = highest_next();
    for (const Rank rank : roster_.active()) next = std::max(next, roster_.at(rank).granted + 1);
    fix([next](const Worker&) { return next; });
    return;
  }
  // What a worker has behind it was granted, in this life of it or another.
  Clock most = -1 - limits::kStoredMax;
  for (const Rank rank : roster_.active()) {
    const Worker& worker = roster_.at(rank);
    most = std::max(most, std::max(worker.granted, worker.clock - 1) - worker.base);
  }
  fix([most](const Worker& worker) { return worker.base + 1 + most; });
}

template <class At>
void Checkpoints::fix(const At& at) {
  Record record = make(RecordKind::kCheckpointFixed);
  for (const Rank rank : roster_.active()) {
    const Worker& worker = roster_.at(rank);
    const Member* member = find(rank);
    const bool is_open =
        member != nullptr && member->from == kNoIteration && member->answer == kUnanswered;
    if (!takes_part(worker) || !(is_open || open_->members.empty())) continue;
    record.values.insert(record.values.end(), {static_cast<std::int64_t>(rank), at(worker)});
  }
  if (record.values.empty() && open_->members.empty()) {
    close("no worker is left that takes part in checkpoints");
    return;
  }
  commit(std::move(record));
  answers_.log(LogLevel::kInfo, "checkpoint_fixed", nullptr,
               {{"checkpoint", std::to_string(open_->facts.number)},
                {"workers", std::to_string(open_->members.size())},
                {"iteration", std::to_string(clock_)}});
  check();
}

Checkpoints::Flag Checkpoints::flag_for(const Member& member) const {
  return {open_->facts.number, static_cast<std::uint32_t>(&member - open_->members.data()),
          static_cast<std::uint32_t>(open_->members.size())};
}

Checkpoints::Flag Checkpoints::flag_of_open(const Worker& worker, Iteration iteration) {
  Member* member = find(worker.rank);
  if (member == nullptr || member->answer == kGone || member->flagged != kNoIteration ||
      member->from == kNoIteration || iteration < member->from) {
    return {};
  }
  member->flagged = iteration;
  return flag_for(*member);
}

Checkpoints::Flag Checkpoints::flagged(const Worker& worker) const {
  const Member* member = find(worker.rank);
  const bool is_told = member != nullptr && member->answer != kGone &&
                       member->flagged != kNoIteration && member->flagged == worker.granted;
  return is_told ? flag_for(*member) : Flag{};
}

void Checkpoints::claimed(const Worker& worker) {
  Member* member = find(worker.rank);
  if (member == nullptr || member->answer == kGone || member->flagged != kNoIteration ||
      member->from == kNoIteration) {
    return;
  }
  // Its first grant there, unless it jumped; it may have gone on since.
  if (worker.granted >= member->from) member->flagged = member->from;
}

bool Checkpoints::holds_leave(const Caller& caller, const Worker& worker, Iteration due) {
  if (!open_ || !worker.active() || !takes_part(worker)) return false;
  const Member* member = find(worker.rank);
  const bool must_save = member != nullptr
                             ? member->answer == kUnanswered && member->flagged == kNoIteration
                             : !open_->has_members();
  if (!must_save) return false;
  Record record = make(RecordKind::kCheckpointFixed, &worker);
  record.values = {static_cast<std::int64_t>(worker.rank), due};
  // The others save where that is fixed later.
  for (const Rank rank : roster_.active()) {
    if (open_->has_members() || rank == worker.rank || !takes_part(roster_.at(rank))) continue;
    record.values.insert(record.values.end(), {static_cast<std::int64_t>(rank), kNoIteration});
  }
  commit(std::move(record));
  wire::Granted granted;
  granted.iteration = due;
  flag_for(*find(worker.rank)).put(granted);
  answers_.reply(caller, std::move(granted), true);
  return true;
}

// ---- what was saved
// ----------------------------------------------------------------------------------

void Checkpoints::saved(const Caller& caller, const Worker& worker,
                        const wire::Checkpointed& answer) {
  const auto refuse = [&](Status status, const std::string& why) {
    answers_.refuse(caller, status, "{} about checkpoint {}: {}", label(worker), answer.number,
                    why);
  };
  if (answer.number == 0 || answer.number > asked_) {
    return refuse(Status::kInvalid,
                  asked_ == 0 ? "none was asked for"
                              : fmt::format("the latest one that was asked for is {}", asked_));
  }
  if (answer.shards == 0 ? answer.shard != 0 || !answer.location.empty()
                         : answer.shard >= answer.shards) {
    return refuse(Status::kInvalid,
                  answer.shards == 0
                      ? "0 shards mean that the worker has nothing to save: shard must be 0 then, "
                        "and the location empty"
                      : fmt::format("shard {} of {}: allowed are 0 to {}", answer.shard,
                                    answer.shards, answer.shards - 1));
  }
  if (std::string wrong =
          check_text("the location", answer.location, limits::kCheckpointLocationBytesMax);
      !wrong.empty()) {
    return refuse(Status::kInvalid, wrong);
  }
  if (answer.shards > 0 && answer.location.empty()) {
    return refuse(Status::kInvalid, "the location is empty: it must say where the shard lies");
  }
  if (latest_ && answer.number == latest_->number && latest_->epoch <= recorder_.epoch() &&
      answer.number <= closed_) {
    // One copy more, or the same once more.
    return answers_.reply(caller, wire::Ok{}, true);
  }
  if (!open_ || answer.number < open_->facts.number) {
    return refuse(Status::kState, answer.number == closed_ && !closed_reason_.empty()
                                      ? "it was given up: " + closed_reason_
                                      : "it is closed");
  }
  if (answer.number > open_->facts.number) {
    return refuse(Status::kState,
                  fmt::format("it is the next one; {} is open", open_->facts.number));
  }
  const Member* member = find(worker.rank);
  if (member == nullptr || member->answer == kGone) {
    return refuse(Status::kState, "the worker does not take part in it");
  }
  const std::int64_t said = answer.shards == 0 ? kNothing : answer.shard;
  if (member->answer != kUnanswered) {
    const auto before = std::ranges::find(open_->facts.saved, worker.rank, &SavedShard::rank);
    const bool same = member->answer == said &&
                      (before == open_->facts.saved.end() || before->location == answer.location);
    if (same) return answers_.reply(caller, wire::Ok{}, true);
    return refuse(Status::kState,
                  member->answer == kNothing
                      ? "it has said already that it has nothing to save"
                      : fmt::format("it has said already where its shard {} lies", member->answer));
  }
  if (member->flagged == kNoIteration) {
    return refuse(Status::kState,
                  fmt::format("it has not come there: it saves at iteration {}", member->from));
  }
  const std::uint32_t known = open_->facts.shards;
  if (answer.shards != 0 && known != 0 && answer.shards != known) {
    return refuse(Status::kInvalid, fmt::format("it says {} shards, but the others {}: all must "
                                                "say the same number, or 0",
                                                answer.shards, known));
  }
  const std::size_t members = open_->members.size();
  if (answer.shards > members) {
    return refuse(Status::kInvalid,
                  fmt::format("it says {} shards, but only {} {} part in it", answer.shards,
                              members, members == 1 ? "worker takes" : "workers take"));
  }
  if (answers_.refuses_store(caller)) return;
  if (answer.shards != 0 && !engine_.has_room_for_shards(1)) {
    return answers_.refuse(caller, Status::kLimit,
                           "this daemon keeps {} shards of checkpoints of all jobs, the most "
                           "allowed: jobs must end first",
                           limits::kCheckpointShardsMax);
  }
  Record record = make(RecordKind::kCheckpointSaved, &worker);
  record.iteration = member->flagged;
  record.shard = answer.shard;
  record.shards = answer.shards;
  record.location = answer.location;
  commit(std::move(record));
  answers_.reply(caller, wire::Ok{}, true);
  check();
}

RankList Checkpoints::ranks_with(std::initializer_list<std::int64_t> answers) const {
  RankList ranks;
  for (const Member& member : open_->members) {
    if (std::ranges::find(answers, member.answer) != answers.end()) ranks.push_back(member.rank);
  }
  return ranks;
}

std::string Checkpoints::shards_text() const {
  const CheckpointSnapshot& facts = open_->facts;
  return facts.shards == 0
             ? std::string("no shard is saved")
             : fmt::format("{} of {} shards are saved", facts.saved.size(), facts.shards);
}

void Checkpoints::check() {
  if (!open_) return;
  const CheckpointSnapshot& facts = open_->facts;
  if (facts.shards != 0 && facts.saved.size() == facts.shards) return complete();
  const std::size_t missing = facts.shards == 0 ? 1 : facts.shards - facts.saved.size();
  if (!open_->has_members() || open_->pending >= missing) return;
  const RankList gone = ranks_with({kGone});
  if (gone.size() == 0) {
    return close(facts.shards == 0 ? "no worker had anything to save"
                                   : "all workers have answered, but " + shards_text());
  }
  close(fmt::format("{} {} went before {} had saved; {}", workers_word(gone.size()), gone.text(),
                    gone.size() == 1 ? "it" : "they", shards_text()));
}

void Checkpoints::timed_out() {
  if (!open_ || spec_.checkpoint_timeout_us == 0) return;
  if (engine_.now() < open_->facts.since_us + spec_.checkpoint_timeout_us) return arm();
  const RankList late = ranks_with({kUnanswered});
  std::string text = "not complete after " + format_duration(spec_.checkpoint_timeout_us) + ": ";
  if (!open_->facts.fixed) {
    text += has_barriers() ? "no barrier has come" : "not all workers have come back";
  } else {
    text +=
        fmt::format("{}; waiting for {} {}", shards_text(), workers_word(late.size()), late.text());
  }
  close(text);
}

void Checkpoints::complete() {
  Record record = make(RecordKind::kCheckpointComplete);
  const CheckpointSnapshot& facts = open_->facts;
  record.shards = facts.shards;
  record.iteration = std::ranges::min(facts.saved, {}, &SavedShard::iteration).iteration;
  const std::string took = format_duration(engine_.now() - facts.since_us);
  Answers::Fields fields = {{"checkpoint", std::to_string(facts.number)},
                            {"iteration", std::to_string(record.iteration)},
                            {"shards", std::to_string(record.shards)},
                            {"took", took}};
  commit(std::move(record));
  ++counters_.checkpoints_complete;
  answers_.log(LogLevel::kInfo, "checkpoint_complete", nullptr, std::move(fields));
  arm();
  settle();
}

void Checkpoints::close(const std::string& reason) {
  Record record = make(RecordKind::kCheckpointIncomplete);
  for (const Member& member : open_->members) {
    if (member.answer == kUnanswered || member.answer == kGone)
      record.values.push_back(member.rank);
  }
  record.reason = reason;
  Answers::Fields fields = {{"checkpoint", std::to_string(record.checkpoint)},
                            {"reason", reason},
                            {"ranks", ranks_with({kUnanswered, kGone}).text()}};
  commit(std::move(record));
  ++counters_.checkpoints_incomplete;
  answers_.log(LogLevel::kWarn, "checkpoint_incomplete", nullptr, std::move(fields));
  arm();
  settle();
}

void Checkpoints::close_all(const std::string& reason) {
  while (open_) close(reason);
}

bool Checkpoints::inherit(const CheckpointSnapshot& from) {
  if (!engine_.has_room_for_shards(from.saved.size())) return false;
  const auto base = [&](RecordKind kind) {
    Record record = recorder_.make(kind);
    record.checkpoint = from.number;
    record.epoch = from.epoch;
    record.resumed = true;
    record.shards = from.shards;
    return record;
  };
  Record complete = base(RecordKind::kCheckpointComplete);
  complete.span_us = engine_.now() - from.since_us;
  commit(std::move(complete));
  for (const SavedShard& shard : from.saved) {
    Record record = base(RecordKind::kCheckpointSaved);
    record.rank = shard.rank;
    record.iteration = shard.iteration;
    record.shard = shard.shard;
    record.location = shard.location;
    commit(std::move(record));
  }
  return true;
}

// ---- recorded facts
// ----------------------------------------------------------------------------------

void Checkpoints::next(Micros now) {
  open_.reset();
  if (queued_) {
    open_ = Open{std::move(*queued_), {}, 0};
    open_->facts.state = CheckpointState::kOpen;
    open_->facts.since_us = now;
    queued_.reset();
  }
  renew_due();
}

void Checkpoints::apply(const Record& record) {
  switch (record.kind) {
    case RecordKind::kCheckpointAsked: {
      asked_ = record.checkpoint;
      CheckpointSnapshot facts;
      facts.number = record.checkpoint;
      facts.epoch = record.epoch;
      facts.reason = record.reason;
      facts.since_us = record.time_us;
      clock_ = std::max(clock_, record.clock);
      if (open_) {
        queued_ = std::move(facts);
      } else {
        facts.state = CheckpointState::kOpen;
        open_ = Open{std::move(facts), {}, 0};
      }
      return renew_due();
    }
    case RecordKind::kCheckpointFixed: {
      for (std::size_t i = 0; i + 1 < record.values.size(); i += 2) {
        const auto rank = static_cast<Rank>(record.values[i]);
        Member* member = find(rank);
        if (member == nullptr) {
          const auto at = std::ranges::lower_bound(open_->members, rank, {}, &Member::rank);
          member = &*open_->members.insert(at, {.rank = rank});
          ++open_->pending;
        }
        member->from = record.values[i + 1];
        // It was told to, as it left.
        if (member->rank == record.rank) member->flagged = member->from;
        clock_ = std::max(clock_, member->from);
      }
      open_->facts.fixed |= record.rank == kNoRank;
      return;
    }
    case RecordKind::kCheckpointSaved: {
      SavedShard saved{record.shard, static_cast<Rank>(record.rank), record.iteration,
                       record.location};
      if (record.resumed) {
        const auto& known = latest_->saved;
        if (record.shards == 0 ||
            std::ranges::binary_search(known, record.shard, {}, &SavedShard::shard)) {
          return;
        }
        latest_->add(std::move(saved));
        engine_.count_shards(1);
        return;
      }
      CheckpointSnapshot& facts = open_->facts;
      Member* member = find(saved.rank);
      member->answer = record.shards == 0 ? kNothing : record.shard;
      --open_->pending;
      if (record.shards == 0) return;
      facts.shards = record.shards;
      const auto at = std::ranges::lower_bound(facts.saved, record.shard, {}, &SavedShard::shard);
      if (at != facts.saved.end() && at->shard == record.shard) return;  // another copy
      facts.saved.insert(at, std::move(saved));
      engine_.count_shards(1);
      return;
    }
    case RecordKind::kCheckpointComplete:
      if (latest_) engine_.count_shards(-static_cast<std::int64_t>(latest_->saved.size()));
      if (record.resumed) {
        latest_ = CompleteCheckpoint{};
        latest_->number = record.checkpoint;
        latest_->shards = record.shards;
        latest_->epoch = record.epoch;
        // The job's own follow it: a number says which one of all by the job's name.
        asked_ = std::max(asked_, record.checkpoint);
      } else {
        latest_ = CompleteCheckpoint(std::move(open_->facts));
        latest_->epoch = recorder_.epoch();
        closed_ = record.checkpoint;
        closed_reason_.clear();
      }
      latest_->state = CheckpointState::kComplete;
      latest_->fixed = true;
      latest_->since_us = record.time_us - std::max<Micros>(record.span_us, 0);
      if (!record.resumed) next(record.time_us);
      return;
    case RecordKind::kCheckpointIncomplete:
      engine_.count_shards(-static_cast<std::int64_t>(open_->facts.saved.size()));
      closed_ = record.checkpoint;
      closed_reason_ = record.reason;
      return next(record.time_us);
    default:
      return;
  }
}

void Checkpoints::apply_started(Clock clock) {
  lost_.clear();
  clock_ = std::max<Clock>(clock, 0);
  renew_due();
}

void Checkpoints::apply_exit(Rank rank) {
  Member* member = find(rank);
  if (member == nullptr || member->answer != kUnanswered) return;
  member->answer = kGone;
  --open_->pending;
}

void Checkpoints::apply_lost(bool is_lost, Rank rank) {
  const auto at = std::ranges::lower_bound(lost_, rank);
  const bool is_there = at != lost_.end() && *at == rank;
  if (is_lost && !is_there) lost_.insert(at, rank);
  if (!is_lost && is_there) lost_.erase(at);
}

std::string Checkpoints::check(const Record& record) const {
  const std::string name = fmt::format("checkpoint {}", record.checkpoint);
  if (record.kind == RecordKind::kCheckpointAsked) {
    // Earlier versions counted from 1 where a job had taken one over.
    const std::uint64_t before = open_ ? open_->facts.number : closed_;
    if (record.checkpoint <= before) return name + " follows " + std::to_string(before);
    return queued_ ? "two checkpoints are queued" : "";
  }
  if (record.resumed) {
    if (record.kind == RecordKind::kCheckpointComplete) return {};
    if (record.kind == RecordKind::kCheckpointSaved && latest_ && record.rank >= 0 &&
        record.rank < limits::kWorkersPerJobMax && latest_->number == record.checkpoint) {
      return {};
    }
    return name + " cannot come from another job like that";
  }
  if (!open_ || open_->facts.number != record.checkpoint) return name + " is not open";
  const auto is_known = [this](std::int64_t rank) {
    return rank >= 0 && rank < limits::kWorkersPerJobMax &&
           roster_.find(static_cast<Rank>(rank)) != nullptr;
  };
  switch (record.kind) {
    case RecordKind::kCheckpointFixed:
      if (record.values.size() % 2 != 0) return name + " has a rank without an iteration";
      for (std::size_t i = 0; i + 1 < record.values.size(); i += 2) {
        if (!is_known(record.values[i])) return name + " has a worker that never joined";
        const std::int64_t from = record.values[i + 1];
        if (from < -limits::kStoredMax || from > limits::kStoredMax) {
          return name + " has an impossible iteration";
        }
      }
      return {};
    case RecordKind::kCheckpointSaved: {
      const Member* member = is_known(record.rank) ? find(static_cast<Rank>(record.rank)) : nullptr;
      if (member == nullptr || member->answer != kUnanswered) {
        return fmt::format("{} is not to be saved by worker {}", name, record.rank);
      }
      const std::uint32_t shards = open_->facts.shards;
      if (record.shards == 0 ||
          (record.shard < record.shards && (shards == 0 || record.shards == shards))) {
        return {};
      }
      return fmt::format("{} has an impossible shard {} of {}", name, record.shard, record.shards);
    }
    case RecordKind::kCheckpointComplete:
      return open_->facts.saved.empty() ? name + " has no shard" : "";
    default:
      return {};
  }
}

// ---- snapshots
// ---------------------------------------------------------------------------------------

void Checkpoints::save(JobSnapshot& out) const {
  if (latest_) out.checkpoints.push_back(*latest_);
  if (open_) {
    CheckpointSnapshot& open = out.checkpoints.emplace_back(open_->facts);
    for (const Member& member : open_->members) {
      open.members.insert(open.members.end(), {static_cast<std::int64_t>(member.rank), member.from,
                                               member.flagged, member.answer});
    }
  }
  if (queued_) out.checkpoints.push_back(*queued_);
  out.checkpoints_asked = asked_;
  // Without a checkpoint it is where the job began.
  out.checkpoint_clock = spec_.checkpoint_every != 0 || asked_ != 0 ? clock_ : 0;
  out.checkpoint_closed = closed_;
  out.checkpoint_closed_reason = closed_reason_;
}

std::string Checkpoints::restore(const JobSnapshot& snapshot) {
  for (const CheckpointSnapshot& stored : snapshot.checkpoints) {
    const std::string name = fmt::format("its snapshot's checkpoint {}", stored.number);
    if (stored.since_us < 0 || stored.since_us > limits::kStoredMax) {
      return name + " has an impossible time";
    }
    if (!std::ranges::is_sorted(stored.saved, {}, &SavedShard::shard)) {
      return name + " has its shards in disorder";
    }
    if (stored.state == CheckpointState::kComplete && !latest_ && !stored.saved.empty()) {
      latest_ = CompleteCheckpoint(CheckpointSnapshot(stored));
    } else if (stored.state == CheckpointState::kQueued && open_ && !queued_) {
      queued_ = stored;
      continue;
    } else if (stored.state == CheckpointState::kOpen && !open_) {
      open_ = Open{stored, {}, 0};
      open_->facts.members.clear();
      for (std::size_t i = 0; i + 3 < stored.members.size(); i += kCheckpointMemberValues) {
        const std::int64_t* values = &stored.members[i];
        const bool follows = open_->members.empty() || open_->members.back().rank < values[0];
        if (values[0] < 0 || values[0] >= limits::kWorkersPerJobMax || !follows) {
          return name + " has an impossible worker";
        }
        for (const std::int64_t iteration : {values[1], values[2]}) {
          if (iteration < -limits::kStoredMax || iteration > limits::kStoredMax) {
            return name + " has an impossible iteration";
          }
        }
        open_->members.push_back({static_cast<Rank>(values[0]), values[1], values[2], values[3]});
        open_->pending += values[3] == kUnanswered;
      }
    } else {
      return name + " has no place";
    }
    engine_.count_shards(static_cast<std::int64_t>(stored.saved.size()));
  }
  asked_ = std::max(snapshot.checkpoints_asked, latest_ ? latest_->number : 0);
  clock_ = snapshot.checkpoint_clock;
  closed_ = snapshot.checkpoint_closed;
  closed_reason_ = snapshot.checkpoint_closed_reason;
  if (clock_ < -limits::kStoredMax || clock_ > limits::kStoredMax) {
    return "its snapshot has an impossible clock of checkpoints";
  }
  renew_due();
  return {};
}

// ---- timers
// ------------------------------------------------------------------------------------------

void Checkpoints::arm() {
  if (open_ && spec_.checkpoint_timeout_us > 0) {
    engine_.set_timer(kNoRank, kTimerCheckpoint,
                      open_->facts.since_us + spec_.checkpoint_timeout_us);
  } else {
    engine_.cancel_timer(kNoRank, kTimerCheckpoint);
  }
}

void Checkpoints::renew_due() {
  const Iteration every = spec_.checkpoint_every;
  due_ = every == 0 || open_ ? kNever : (std::max<Iteration>(clock_, 0) / every + 1) * every;
}

std::int64_t Checkpoints::shards_kept() const {
  return static_cast<std::int64_t>((latest_ ? latest_->saved.size() : 0) +
                                   (open_ ? open_->facts.saved.size() : 0));
}

// ---- views
// -------------------------------------------------------------------------------------------

std::string Checkpoints::note() const {
  if (!open_) return {};
  std::string text = fmt::format("checkpoint {}: ", open_->facts.number);
  if (!open_->facts.fixed) {
    const RankList away = not_back();
    if (away.size() > 0) {
      return text +
             fmt::format("waiting for {} {} to come back", workers_word(away.size()), away.text());
    }
    return text + "waiting for the next barrier";
  }
  const RankList waiting = ranks_with({kUnanswered});
  return text + fmt::format("{}, waiting for {} {}", shards_text(), workers_word(waiting.size()),
                            waiting.text());
}

std::uint64_t Checkpoints::expected_of(Rank rank) const {
  const Member* member = find(rank);
  const bool is_expected =
      member != nullptr && member->answer == kUnanswered && member->from != kNoIteration;
  return is_expected ? open_->facts.number : 0;
}

wire::LatestCheckpointReply Checkpoints::latest(const CompleteCheckpoint* kept,
                                                const wire::LatestCheckpoint& asked) const {
  wire::LatestCheckpointReply out;
  if (open_) out.open = open_->facts.number;
  if (asked.shards_max < 0) out.open_text = note();  // O(workers)
  out.closed = closed_;
  out.closed_reason = closed_reason_;
  if (latest_) {
    latest_->put(asked, out);
  } else if (kept != nullptr) {
    kept->put(asked, out);
  }
  return out;
}

}  // namespace syncd
