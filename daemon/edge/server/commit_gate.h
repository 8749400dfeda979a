// Between the engine's effects and the store: collects what one turn of the loop produced into one
// batch, and holds the answers that must not leave before their records are committed. Loop thread,
// except report(), which the store's writer thread calls.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/counters.h"
#include "daemon/core/engine/effects.h"
#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/types.h"
#include "daemon/edge/store/store.h"

namespace syncd::server {

// Records that one commit took along.
inline constexpr std::array<std::int64_t, 9> kBatchBounds = {1,    4,     16,     64,    256,
                                                             1024, 4'096, 16'384, 65'536};

// Why the store cannot be written, for all but administrators: the reason itself names paths.
inline constexpr const char* kReasonForClients = "its log says why";

// What the store has done so far.
struct StoreFigures {
  SpanHistogram commit_time;
  Histogram<kBatchBounds.size()> commit_records;
  std::uint64_t failures = 0;  // times that it has said that it cannot write
  std::uint64_t records_waiting = 0;
  std::uint64_t records_removed = 0;  // by retention
  std::uint64_t jobs_removed = 0;     // wholly, likewise
};

class CommitGate {
 public:
  using Release = std::function<void(const Caller& to, wire::Body&& answer)>;

  // `release` sends an answer that is free to go.
  CommitGate(store::Store& store, Release release)
      : store_(store), is_shared_(store.is_shared()), release_(std::move(release)) {}

  // The time of whatever is passed or settled from now on.
  void set_time(Micros now) { now_ = now; }
  // Takes the snapshots out of `effects`, and counts its records, which gather there until
  // submit(); call before the replies of the same effects are given to pass().
  void take(Effects& effects) {
    records_taken_ += effects.records.size() - open_records_;
    if (is_shared_) find_facts(effects);
    open_records_ = effects.records.size();
    if (!effects.snapshots.empty()) take_snapshots(effects);
  }
  // Sends the answer now, or when everything taken so far is committed. When too many are held
  // already (the disk stands still and clients keep repeating themselves), it is answered with an
  // Error STORE instead; so is a push, which may be made again, when the store cannot write.
  //
  // With a store that is shared, every answer waits for the records other than pushes that were
  // taken before it: otherwise a client could hear of an eviction that the next leader does not
  // know of.
  void pass(Reply&& reply) {
    const bool waits = reply.after_records || facts_ > committed_;
    if (waits && must_hold()) return hold(std::move(reply));
    release_(reply.to, std::move(reply.body));
  }
  // Hands what was taken to the store, as one batch, with the records that have gathered.
  void submit(Effects& effects);

  // Any thread: what the store has done. True if the loop thread should call settle() soon.
  void report(const store::CommitReport& report);
  // Releases answers whose records are committed, kReleasedAtOnce of them at most, and hands over
  // what the store refused before. If the store cannot write, a caller that waits for the answer to
  // a push is told so. Throws what has ended the store's writer.
  void settle();
  // Whether it has left some for the next call.
  bool must_settle_again() const {
    return held_count() != 0 && held_[held_first_].ticket <= committed_;
  }

  StoreFigures figures();
  // What retention has removed since the last call.
  std::vector<store::Removed> take_removed();

  // Of which jobs the store wants snapshots; none are named twice.
  std::vector<JobId> take_wanted();

  // Whether the store takes records now, and if not, why.
  bool writable() const { return backlog_.empty() && store_error_.empty(); }
  std::string reason() const;  // may name paths: for administrators
  // Since when the oldest of the held answers waits without anything's being committed; kNever:
  // there is none.
  Micros waits_since() const {
    return held_count() == 0 ? kNever : std::max(held_[held_first_].since, committed_at_);
  }
  // Nothing waits for the store any more.
  bool idle() const {
    return held_count() == 0 && backlog_.empty() && !open_has_content() && committed_ == submitted_;
  }

  static constexpr std::size_t kHeldMax = limits::kHeldAnswersMax;
  // About two milliseconds' work: after a standstill of the disk, other clients are looked at
  // between one slice and the next.
  static constexpr std::size_t kReleasedAtOnce = 4'096;

 private:
  struct Waiting {
    Ticket ticket;
    store::Batch batch;
  };
  // Most are of pushes: these are kept without what other answers need.
  struct Held {
    Ticket ticket;
    Micros since;
    Caller to;
    wire::Pushed pushed;
    std::unique_ptr<wire::Body> other;  // null: it is `pushed`
  };
  void take_snapshots(Effects& effects);
  void find_facts(const Effects& effects);
  // Tickets rise with time, so the latest one covers every record that was taken before.
  Ticket latest() const { return open_has_content() ? next_ticket_ : submitted_; }
  bool must_hold() const;
  void hold(Reply&& reply);
  void refuse(const Caller& to);
  std::size_t held_count() const { return held_.size() - held_first_; }
  void release_committed();
  void refuse_pushes();
  bool open_has_content() const { return open_records_ > 0 || !open_snapshots_.empty(); }
  void submit_backlog();

  store::Store& store_;
  const bool is_shared_;
  Release release_;
  Ticket facts_ = 0;  // of the latest batch with a record other than a push
  // Of this turn, whose ticket is next_ticket_.
  std::size_t open_records_ = 0;
  std::vector<JobSnapshot> open_snapshots_;
  Ticket next_ticket_ = 1;
  Ticket submitted_ = 0;  // the latest ticket given to a batch
  Ticket committed_ = 0;
  std::deque<Waiting> backlog_;  // refused by a full queue, in order
  std::vector<Held> held_;       // tickets rise; those before held_first_ have been released
  std::size_t held_first_ = 0;
  std::uint64_t records_taken_ = 0;
  std::string store_error_;
  Micros now_ = 0;
  Micros committed_at_ = 0;  // when committed_ rose

  std::atomic<bool> fresh_{false};
  std::mutex mutex_;  // guards what follows
  StoreFigures figures_;
  std::uint64_t records_committed_ = 0;
  Ticket reported_ = 0;
  std::string reported_error_;
  std::exception_ptr failure_;
  std::vector<store::Removed> removed_;
  std::vector<JobId> wanted_;
};

}  // namespace syncd::server
