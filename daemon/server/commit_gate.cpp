// Batches, tickets and held answers; see the header.
#include "daemon/server/commit_gate.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace syncd::server {
namespace {

template <class T>
void move_all(std::vector<T>& from, std::vector<T>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  from.clear();
}

}  // namespace

void CommitGate::take(Effects& effects) {
  move_all(effects.records, open_.records);
  move_all(effects.snapshots, open_.snapshots);
}

void CommitGate::pass(Reply&& reply) {
  // Tickets rise with time, so the latest one covers every record that was taken before.
  const Ticket needed = open_has_content() ? next_ticket_ : submitted_;
  if (!reply.after_records || needed <= committed_) {
    release_(std::move(reply));
    return;
  }
  if (held_.size() >= kHeldMax) {
    reply.body = wire::Error{Status::kStore, "the daemon cannot write its history fast enough: " +
                                                 std::to_string(held_.size()) +
                                                 " answers wait for the disk already"};
    release_(std::move(reply));
    return;
  }
  held_.push_back({needed, std::move(reply)});
}

void CommitGate::submit() {
  if (!open_has_content()) return;
  submitted_ = next_ticket_++;
  store::Batch batch;
  batch.records.swap(open_.records);
  batch.snapshots.swap(open_.snapshots);
  if (backlog_.empty() && store_.submit(submitted_, std::move(batch))) return;
  backlog_.push_back({submitted_, std::move(batch)});
}

void CommitGate::report(const store::CommitReport& report) {
  const std::lock_guard lock(mutex_);
  reported_ = std::max(reported_, report.committed);
  reported_error_ = report.error;
  fresh_.store(true, std::memory_order_release);
}

void CommitGate::settle() {
  if (!fresh_.exchange(false, std::memory_order_acquire)) return;
  {
    const std::lock_guard lock(mutex_);
    committed_ = reported_;
    store_error_ = reported_error_;
  }
  while (!held_.empty() && held_.front().ticket <= committed_) {
    Reply reply = std::move(held_.front().reply);
    held_.pop_front();
    release_(std::move(reply));
  }
  submit_backlog();
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
