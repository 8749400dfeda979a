// See shard_log.h.
#include "daemon/core/cluster/shard_log.h"

#include <algorithm>
#include <span>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/crc32c.h"

namespace syncd::cluster {
namespace {

std::uint32_t parts_of(std::size_t bytes) {
  return static_cast<std::uint32_t>((bytes + kPartBytes - 1) / kPartBytes);
}

std::string part_of(const std::string& bytes, std::uint32_t part) {
  return bytes.substr(part * kPartBytes, kPartBytes);
}

}  // namespace

ShardLog::ShardLog(ShardKeys keys, Term term, Nonce& nonces, const Tail& tail, const First& first)
    : keys_(std::move(keys)), term_(term), nonces_(nonces), tail_(tail), first_(first) {}

Ticket ShardLog::add(Change change) {
  SYNCD_CHECK(change.removed.size() <= kRemovedMax);
  for (const JobId job : change.removed) snapshots_.erase(job);
  queue_.push_back({++added_, std::move(change)});
  return added_;
}

void ShardLog::add_snapshot(JobId job, Sequence sequence, std::string bytes) {
  Snapshot& snapshot = snapshots_[job];
  SYNCD_CHECK(sequence > snapshot.pointer.sequence);
  snapshot = {added_, std::move(bytes), 0, {}};
  const std::span whole(reinterpret_cast<const std::uint8_t*>(snapshot.bytes.data()),
                        snapshot.bytes.size());
  snapshot.pointer = {term_, sequence, parts_of(whole.size()), crc32c(whole)};
}

void ShardLog::remove_before(Index index) {
  SYNCD_CHECK(index <= tail_.index + 1);
  remove_before_ = std::max(remove_before_, index);
}

std::optional<Attempt> ShardLog::next() {
  if (state_ != State::kLeads || under_way_) return std::nullopt;
  if (!step_) choose();
  if (!step_) return std::nullopt;
  under_way_ = true;
  return Attempt{++attempt_, step_->transaction};
}

// Whatever is put is fenced by the tail, too: an attempt that lands late finds another one.
Transaction ShardLog::fenced(std::string compared, std::string value) const {
  Transaction transaction;
  transaction.compares = {{keys_.leader(), term_.revision}, {compared, 0, std::move(value)}};
  transaction.otherwise = {{Op::Kind::kGet, keys_.leader()}, {Op::Kind::kGet, std::move(compared)}};
  return transaction;
}

void ShardLog::choose() {
  if (!frozen_ && remove_before_ > first_.index) {
    Step step{Step::Kind::kRemoval, fenced(keys_.first(), encode(first_))};
    step.first = remove_before_;
    step.transaction.then = {
        {Op::Kind::kDelete, keys_.entry(first_.index), "", keys_.entry(step.first)},
        {Op::Kind::kPut, keys_.first(), encode(First{step.first})}};
    step_ = std::move(step);
    return;
  }
  if (!frozen_) {
    const auto partial =
        std::ranges::find_if(snapshots_, [](const auto& item) { return !item.second.is_put(); });
    if (partial != snapshots_.end() && (queue_.empty() || !entry_is_due_)) {
      return choose_snapshot_part(partial->first, partial->second);
    }
    if (!queue_.empty() || !snapshots_.empty()) freeze();
  }
  if (!frozen_) return;
  if (frozen_parts_.empty()) {
    step_ = Step{Step::Kind::kEntry, frozen_entry_};
    return;
  }
  Step step{Step::Kind::kEntryPart, fenced(keys_.tail(), encode(tail_))};
  step.transaction.then = {{Op::Kind::kPut, keys_.part(frozen_->index, frozen_parts_put_),
                            encode(Part{frozen_->nonce, frozen_parts_.back()})}};
  step_ = std::move(step);
}

void ShardLog::choose_snapshot_part(JobId job, const Snapshot& snapshot) {
  Step step{Step::Kind::kSnapshotPart, fenced(keys_.tail(), encode(tail_))};
  step.job = job;
  step.sequence = snapshot.pointer.sequence;
  step.transaction.then = {{Op::Kind::kPut,
                            keys_.snapshot_part(job, term_, step.sequence, snapshot.parts_put),
                            encode(Part{{}, part_of(snapshot.bytes, snapshot.parts_put)})}};
  step_ = std::move(step);
}

// Makes the next batch of what has come, and every byte of it.
void ShardLog::freeze() {
  ++nonces_.count;
  frozen_ = Tail{tail_.index + 1, nonces_};
  frozen_ticket_ = committed_;
  Entry entry{term_, frozen_->nonce, tail_.nonce};
  std::vector<JobId> removed;
  std::optional<Meta> meta;
  while (!queue_.empty()) {
    Change& change = queue_.front().change;
    const bool fits = entry.records.size() + change.records.size() <= kGroupBytesMax &&
                      removed.size() + change.removed.size() <= kRemovedMax;
    if (!fits && frozen_ticket_ != committed_) break;
    entry.records += change.records;
    removed.insert(removed.end(), change.removed.begin(), change.removed.end());
    if (change.meta) meta = change.meta;
    frozen_ticket_ = queue_.front().ticket;
    queue_.pop_front();
  }

  frozen_entry_ = fenced(keys_.tail(), encode(tail_));
  Transaction& put = frozen_entry_;
  put.otherwise.push_back({Op::Kind::kGet, keys_.entry(frozen_->index)});
  frozen_parts_put_ = 0;
  if (entry.records.size() > kGroupBytesMax) {
    entry.parts = parts_of(entry.records.size());
    for (std::uint32_t i = entry.parts; i > 0; --i) {
      frozen_parts_.push_back(part_of(entry.records, i - 1));
    }
    entry.records.clear();
  }
  put.then = {{Op::Kind::kPut, keys_.entry(frozen_->index), encode(entry)},
              {Op::Kind::kPut, keys_.tail(), encode(*frozen_)}};
  if (meta) put.then.push_back({Op::Kind::kPut, keys_.meta(), encode(*meta)});
  for (const JobId job : removed) {
    const std::string parts = keys_.snapshot_parts(job);
    put.then.push_back({Op::Kind::kDelete, keys_.pointer(job)});
    put.then.push_back({Op::Kind::kDelete, parts, "", end_of(parts)});
  }
  std::size_t pointers = 0;
  for (auto at = snapshots_.begin(); at != snapshots_.end() && pointers < kPointersMax;) {
    const auto& [job, snapshot] = *at;
    if (snapshot.after > frozen_ticket_ || !snapshot.is_put()) {
      ++at;
      continue;
    }
    // What sorts before its parts are those of older snapshots, and of leaders that were deposed.
    put.then.push_back({Op::Kind::kPut, keys_.pointer(job), encode(snapshot.pointer)});
    put.then.push_back({Op::Kind::kDelete, keys_.snapshot_parts(job), "",
                        keys_.snapshot_parts(job, term_, snapshot.pointer.sequence)});
    frozen_pointers_.emplace_back(job, snapshot.pointer.sequence);
    ++pointers;
    at = snapshots_.erase(at);
  }
}

void ShardLog::on_answer(std::uint64_t attempt, const Answer& answer) {
  if (attempt != attempt_ || !under_way_) return;
  under_way_ = false;
  switch (answer.kind) {
    case Answer::Kind::kThen:
      return succeeded();
    case Answer::Kind::kElse:
      return decide_otherwise(answer);
    case Answer::Kind::kUnknown:
      return;
    case Answer::Kind::kRefused:
      state_ = State::kUnfit;
      return;
  }
}

void ShardLog::succeeded() {
  switch (step_->kind) {
    case Step::Kind::kEntryPart:
      frozen_parts_.pop_back();
      ++frozen_parts_put_;
      break;
    case Step::Kind::kEntry:
      tail_ = *frozen_;
      committed_ = frozen_ticket_;
      frozen_.reset();
      frozen_entry_ = {};
      pointers_.insert(pointers_.end(), frozen_pointers_.begin(), frozen_pointers_.end());
      frozen_pointers_.clear();
      entry_is_due_ = false;
      break;
    case Step::Kind::kSnapshotPart: {
      // Meanwhile the job may have been removed, or a later snapshot have come.
      const auto at = snapshots_.find(step_->job);
      if (at != snapshots_.end() && at->second.pointer.sequence == step_->sequence) {
        ++at->second.parts_put;
      }
      entry_is_due_ = true;
      break;
    }
    case Step::Kind::kRemoval:
      first_.index = step_->first;
      break;
  }
  step_.reset();
}

void ShardLog::decide_otherwise(const Answer& answer) {
  const KeyValue* leader = answer.find(keys_.leader());
  const bool leads = leader != nullptr && leader->created == term_.revision;
  // An earlier attempt has landed if what it put is there.
  bool landed = false;
  bool unchanged = false;
  if (step_->kind == Step::Kind::kRemoval) {
    const KeyValue* first = answer.find(keys_.first());
    landed = first != nullptr && first->value == encode(First{step_->first});
    unchanged = first != nullptr && first->value == encode(first_);
  } else {
    const KeyValue* tail = answer.find(keys_.tail());
    unchanged = tail != nullptr && tail->value == encode(tail_);
    if (step_->kind == Step::Kind::kEntry) {
      const KeyValue* put = answer.find(keys_.entry(frozen_->index));
      Entry entry;
      landed = (tail != nullptr && tail->value == encode(*frozen_)) ||
               (put != nullptr && decode(put->value, entry) && entry.nonce == frozen_->nonce);
    }
  }
  if (landed) succeeded();
  // Neither holds only of an answer that contradicts itself, which decides nothing.
  if (!leads || !(landed || unchanged)) state_ = State::kDeposed;
}

}  // namespace syncd::cluster
