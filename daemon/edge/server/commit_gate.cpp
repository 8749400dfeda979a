// Batches, tickets and held answers; see the header.
#include "daemon/edge/server/commit_gate.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

namespace syncd::server {
namespace {

// Room for so many held answers is kept when they are gone.
constexpr std::size_t kHeldKept = 16 * 1024;

template <class T>
void move_all(std::vector<T>& from, std::vector<T>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  from.clear();
}

wire::Error not_stored_yet() {
  return {Status::kStore, std::string("the daemon cannot write its history now: ") +
                              kReasonForClients +
                              "; the push counts once it is on the disk: push again"};
}

}  // namespace

void CommitGate::take_snapshots(Effects& effects) {
  move_all(effects.snapshots, open_snapshots_);
}

void CommitGate::find_facts(const Effects& effects) {
  const auto is_fact = [](const Record& record) { return record.kind != RecordKind::kPush; };
  const auto fresh = effects.records.begin() + static_cast<std::ptrdiff_t>(open_records_);
  if (std::any_of(fresh, effects.records.end(), is_fact)) facts_ = next_ticket_;
}

bool CommitGate::must_hold() const {
  return latest() > committed_ || must_settle_again();
}

void CommitGate::hold(Reply&& reply) {
  const auto* pushed = std::get_if<wire::Pushed>(&reply.body);
  if (held_count() >= kHeldMax || (pushed != nullptr && !store_error_.empty())) {
    refuse(reply.to);
  } else if (pushed != nullptr) {
    held_.emplace_back(latest(), now_, reply.to, *pushed, nullptr);
  } else {
    held_.emplace_back(latest(), now_, reply.to, wire::Pushed{},
                       std::make_unique<wire::Body>(std::move(reply.body)));
  }
}

// Too many are held, or the store takes no pushes.
[[gnu::cold]] void CommitGate::refuse(const Caller& to) {
  if (held_count() < kHeldMax) return release_(to, not_stored_yet());
  release_(to, wire::Error{Status::kStore, "the daemon cannot write its history fast enough: " +
                                               std::to_string(held_count()) +
                                               " answers wait for the disk already"});
}

void CommitGate::submit(Effects& effects) {
  if (!open_has_content()) return;
  submitted_ = next_ticket_++;
  store::Batch batch;
  batch.records.swap(effects.records);
  batch.snapshots.swap(open_snapshots_);
  const std::size_t about_as_many = std::exchange(open_records_, 0);
  if (backlog_.empty() && store_.submit(submitted_, std::move(batch))) {
    // A store that is done with it leaves the memory. NOLINTNEXTLINE(bugprone-use-after-move)
    if (batch.records.capacity() > effects.records.capacity()) effects.records.swap(batch.records);
    effects.records.clear();
    // Growing step by step would move each of them several times.
    effects.records.reserve(about_as_many);
    return;
  }
  // A batch that submit() refuses is untouched. NOLINTNEXTLINE(bugprone-use-after-move)
  backlog_.push_back({submitted_, std::move(batch)});
}

void CommitGate::report(const store::CommitReport& report) {
  const std::lock_guard lock(mutex_);
  if (report.failure != nullptr) {
    failure_ = report.failure;
    fresh_.store(true, std::memory_order_release);
    return;
  }
  reported_ = std::max(reported_, report.committed);
  reported_error_ = report.error;
  for (const store::Removed& removed : report.removed) {
    figures_.records_removed += removed.records;
    if (removed.first == 0) ++figures_.jobs_removed;
    removed_.push_back(removed);
  }
  wanted_.insert(wanted_.end(), report.wants_snapshot.begin(), report.wants_snapshot.end());
  if (report.batches > 0) {
    figures_.commit_time.add(report.commit_us);
    figures_.commit_records.add(static_cast<std::int64_t>(report.records), kBatchBounds);
    records_committed_ += report.records;
  } else if (!report.error.empty() && report.removed.empty() && report.wants_snapshot.empty()) {
    ++figures_.failures;
  }
  fresh_.store(true, std::memory_order_release);
}

std::vector<store::Removed> CommitGate::take_removed() {
  const std::lock_guard lock(mutex_);
  return std::exchange(removed_, {});
}

std::vector<JobId> CommitGate::take_wanted() {
  const std::lock_guard lock(mutex_);
  return std::exchange(wanted_, {});
}

StoreFigures CommitGate::figures() {
  const std::lock_guard lock(mutex_);
  StoreFigures figures = figures_;
  figures.records_waiting =
      records_taken_ > records_committed_ ? records_taken_ - records_committed_ : 0;
  return figures;
}

void CommitGate::settle() {
  if (!fresh_.exchange(false, std::memory_order_acquire)) return release_committed();
  {
    const std::lock_guard lock(mutex_);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    if (reported_ > committed_) committed_at_ = now_;
    committed_ = reported_;
    store_error_ = reported_error_;
  }
  release_committed();
  if (!store_error_.empty()) refuse_pushes();
  submit_backlog();
}

void CommitGate::refuse_pushes() {
  const auto first = std::stable_partition(
      held_.begin() + static_cast<std::ptrdiff_t>(held_first_), held_.end(),
      [this](const Held& held) { return held.other != nullptr || held.ticket <= committed_; });
  for (auto push = first; push != held_.end(); ++push) release_(push->to, not_stored_yet());
  held_.erase(first, held_.end());
}

void CommitGate::release_committed() {
  for (std::size_t left = kReleasedAtOnce; left > 0 && must_settle_again(); --left) {
    const Held& held = held_[held_first_++];
    if (held.other == nullptr) {
      release_(held.to, held.pushed);
    } else {
      release_(held.to, std::move(*held.other));
    }
  }
  // What was released is dropped once it is the larger part, so that each answer moves O(1) times.
  if (held_first_ * 2 <= held_.size()) return;
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(held_first_));
  held_first_ = 0;
  // A slow disk may have let millions pile up: that memory is given back.
  if (held_.capacity() > kHeldKept && held_.size() < kHeldKept / 2) held_.shrink_to_fit();
}

void CommitGate::submit_backlog() {
  while (!backlog_.empty() &&
         store_.submit(backlog_.front().ticket, std::move(backlog_.front().batch))) {
    backlog_.pop_front();
  }
}

std::string CommitGate::reason() const {
  if (!store_error_.empty()) return store_error_;
  if (!backlog_.empty()) return "the queue of records that wait for the disk is full";
  return {};
}

}  // namespace syncd::server
